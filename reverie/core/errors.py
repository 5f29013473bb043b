"""Errors that a user can act on: each says what is wrong and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ReverieError(Exception):
    """A problem whose message is meant for the person at the keyboard; shown without a stack trace."""

    exit_code = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n{self.fix}" if self.fix else self.message


class ConfigError(ReverieError):
    """The command line or a config file asks for something that does not exist or does not fit."""

    exit_code = 2


class ForeignCodeError(ConfigError):
    """A run that the user did not make asks for code outside of Reverie."""


class RunError(ReverieError):
    """A run folder is missing, damaged, locked or not what was asked for."""


class TrainingError(ReverieError):
    """Training had to stop: a loss is not finite, an environment keeps crashing."""


class TooFewRowsError(TrainingError):
    """An update came before its buffer held enough."""

    def __init__(self, message: str, fix: str, rows: int) -> None:
        super().__init__(message, fix)
        self.rows = rows
        self.resume_with = ""
        """The setting with which the run goes on, as typed."""


class OutOfMemoryError(TrainingError):
    """An update needs more memory than there is."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known words, if any is close."""
    close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    return "Did you mean " + " or ".join(f"'{word}'" for word in close) + "?" if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known words, or lists them when none is close."""
    known = sorted(known)
    if sentence := did_you_mean(name, known):
        return sentence
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"Known: {shown}." if shown else ""
