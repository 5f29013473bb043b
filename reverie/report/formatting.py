"""Formats numbers, times and untrusted text for reports."""

from __future__ import annotations

import datetime
import html
import math
import re
from typing import Any

LONGEST_TEXT = 400
MISSING = "–"
_MARKDOWN = re.compile(r"([\\`*\[\]#|~>$]|(?<!\w)_|_(?!\w))")
"""Characters that could start markup. An underscore within a word cannot."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")


def clean(value: Any) -> str:
    """Any value as one line of plain text: no control characters, at most ``LONGEST_TEXT`` long."""
    text = _CONTROL.sub(" ", str(value))
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def escape(value: Any) -> str:
    """Text that is safe anywhere in HTML, also within quotes."""
    return html.escape(clean(value), quote=True)


def escape_markdown(value: Any) -> str:
    """Text that is safe anywhere in Markdown, also in tables and where HTML is allowed."""
    text = clean(value).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", text)


def number(value: float | None) -> str:
    """A number with about four significant digits."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3 or size >= 1e7:
        return f"{value:.3g}".replace("-", "−")
    digits = 0 if size >= 1e4 else 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4
    return f"{value:,.{digits}f}".replace("-", "−")


def score(value: float | None) -> str:
    """A score with one decimal, or two for small numbers."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= 1e7:
        return number(value)
    return f"{value:,.{1 if abs(value) >= 10 or value == 0 else 2}f}".replace("-", "−")


def whole(value: float | None) -> str:
    return MISSING if value is None or not math.isfinite(value) else f"{value:,.0f}".replace("-", "−")


def short_number(value: float) -> str:
    """For the ticks of an axis: 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def moment(seconds: float | None) -> str:
    """A time of creation, in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(seconds or math.nan, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return MISSING
    return when.strftime("%Y-%m-%d %H:%M UTC")


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{100 * fraction:.1f} %"


ALGORITHMS = {"ppo": "PPO", "dqn": "DQN", "sac": "SAC", "reinforce": "REINFORCE", "qlearning": "Q-learning"}


def title(algorithm: str) -> str:
    """The name of an algorithm as papers write it."""
    return ALGORITHMS.get(algorithm, algorithm.capitalize() if algorithm.isalpha() else algorithm)


def group_title(label: str) -> str:
    """The label of a group with its algorithm as papers write it."""
    algorithm, space, rest = label.partition(" ")
    return f"{title(algorithm)}{space}{rest}"
