"""Errors for users: what is wrong, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_LINE, MOST_LINES = 600, 60
"""Limits of a message. Longer text comes from a file or a name and helps nobody."""


class ReverieError(Exception):
    """A problem whose message is meant for the person at the keyboard; shown without a stack trace."""

    exit_code = 1

    def __init__(self, message: str, fix: str = "") -> None:
        self.message = one_screen(message)
        self.fix = one_screen(fix)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.fix}" if self.fix else self.message


class ConfigError(ReverieError):
    """The command line or a config file asks for something that does not exist or does not fit together."""

    exit_code = 2


class ForeignCodeError(ConfigError):
    """A run that somebody else made names code outside of Reverie."""


class RunError(ReverieError):
    """A run folder is missing, damaged, locked or not what was asked for."""


class TrainingError(ReverieError):
    """Training had to stop: a loss is not finite, an environment keeps crashing."""


class TooFewRowsError(TrainingError):
    """An update started before its buffer had enough rows."""

    def __init__(self, message: str, fix: str, rows: int) -> None:
        super().__init__(message, fix)
        self.rows = rows
        self.resume_with = ""
        """The setting that lets the run continue, as typed."""


class OutOfMemoryError(TrainingError):
    """An update needs more memory than there is."""


def one_screen(text: str) -> str:
    """Text of limited size without control characters."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        left_out = f"... ({len(lines) - MOST_LINES:,} more lines)"
        lines = [*lines[: MOST_LINES // 2], left_out, *lines[-MOST_LINES // 2 :]]
    return "\n".join(map(_one_line, lines))


def _one_line(line: str) -> str:
    if len(line) > LONGEST_LINE:
        begin, end = line[: LONGEST_LINE * 2 // 3], line[-LONGEST_LINE // 4 :]
        line = f"{begin} ... ({len(line) - len(begin) - len(end):,} more characters) ... {end}"
    return line if line.isprintable() else "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """A sentence that names the closest known words, if any is at least as similar as ``cutoff``."""
    known = sorted(known)
    close = [word for word in known if word.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, known, n=3, cutoff=cutoff)
    return "Did you mean " + " or ".join(f"'{word}'" for word in close) + "?" if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known words, or lists them when none is close."""
    known = sorted(known)
    if sentence := did_you_mean(name, known):
        return sentence
    shown = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f"Known: {shown}." if shown else ""
