"""How a metric is shown: which direction is better, how many digits, how important. See ``metric_styles.yaml``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import Field

from reverie.core.config import Config

Better = Literal["higher", "lower", "neither"]


class MetricRule(Config):
    """The style of all metrics that match a pattern. Fields that are left out keep the value of earlier rules."""

    better: Better | None = None
    """Which direction is better: higher, lower or neither."""
    digits: int | None = Field(None, ge=0, le=9)
    """Digits after the decimal point. By default about four significant digits are shown."""
    unit: str | None = Field(None, max_length=4)
    """Text after the number."""
    importance: int | None = Field(None, ge=0, le=100)
    """Metrics with a higher number are kept when the window is too small for all."""
    highlight: bool | None = None
    """Whether the metric is drawn in bold."""


@dataclass(frozen=True)
class Style:
    """The style of one metric, from all rules that match it."""

    better: Better = "neither"
    digits: int | None = None
    unit: str = ""
    importance: int = 20
    highlight: bool = False

    def format(self, value: float) -> str:
        """A number with its unit, in at most nine characters if possible."""
        return format_number(value, self.digits) + self.unit

    def is_better(self, new: float, old: float) -> bool:
        return new > old if self.better == "higher" else new < old if self.better == "lower" else False


class Rules:
    """The built-in rules, then those of a config, and which metrics are shown at all."""

    def __init__(self, more: Mapping[str, MetricRule] | None = None, show: Sequence[str] = ()) -> None:
        shipped = load_shipped()
        self.groups: tuple[str, ...] = tuple(shipped["groups"])
        self.show = tuple(show)
        pairs = [(pattern, MetricRule.model_validate(rule)) for pattern, rule in shipped["rules"].items()]
        pairs += (more or {}).items()
        self._rules = [(re.compile(translate(pattern)), rule.model_dump(exclude_none=True)) for pattern, rule in pairs]

    def style(self, name: str) -> Style:
        """The combined style of all rules that match. Later rules win."""
        fields: dict[str, Any] = {}
        for pattern, rule in self._rules:
            if pattern.match(name):
                fields.update(rule)
        return replace(Style(), **fields)

    def is_wanted(self, name: str) -> bool:
        return not self.show or any(fnmatchcase(name, pattern) for pattern in self.show)

    def group_rank(self, group: str) -> tuple[int, str]:
        """Sorting key of a group: in the order of the file, update_actor beside update, unknown groups last."""
        for rank, known in enumerate(self.groups):
            if group == known or group.startswith(known + "_"):
                return rank, group
        return len(self.groups), group


@cache
def load_shipped() -> dict[str, Any]:
    text = resources.files("reverie.log").joinpath("metric_styles.yaml").read_text(encoding="utf-8")
    shipped: dict[str, Any] = yaml.safe_load(text)
    return shipped


def format_number(value: float, digits: int | None = None) -> str:
    """Format a number for a narrow column."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1e7 or 0 < size < 10 ** -(4 if digits is None else max(digits, 4)):
        return f"{value:.2e}"
    if digits is None:
        digits = 0 if size >= 1000 or value == 0 else max(1, 3 - math.floor(math.log10(size)))
        digits = min(digits, 5)
    elif digits == 1 and 0 < size < 10:
        digits = 2  # one digit is too coarse for returns between 0 and 1
    return f"{value:,.{digits}f}"
