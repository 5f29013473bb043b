"""Values that change with env steps or updates.

A schedule is a number (constant), ``lin_3e-4`` (falls linearly to 0 over the run's planned env steps, or its planned
updates if it makes no env steps) or ``{start, end, from, to}`` (linear between two env steps, constant before and
after; with ``unit: updates`` between two updates). ``lin_`` is expanded to the long form when a run is created, so a
longer budget does not change it later.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from reverie.core.types import Clock

LINEAR = re.compile(r"^lin_([-+0-9.eE]+)$")


class Schedule(BaseModel):
    """A constant, or a linear change between two counts of env steps or updates."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    start: float
    end: float
    from_steps: int = Field(0, alias="from")
    to_steps: int = Field(0, alias="to")
    unit: Literal["steps", "updates"] = "steps"
    """What ``from`` and ``to`` count: env steps or updates."""

    @model_validator(mode="after")
    def check(self) -> Schedule:
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise ValueError("must be a finite number")
        if self.start != self.end and self.to_steps <= self.from_steps:
            what = f"'to' (the {self._moment} where 'end' is reached)"
            raise ValueError(f"{what} must be above 'from' ({self.from_steps})")
        return self

    def at(self, clock: Clock) -> float:
        if self.start == self.end:
            return self.start
        span = self.to_steps - self.from_steps
        position = clock.updates if self.unit == "updates" else clock.env_steps
        fraction = min(1.0, max(0.0, (position - self.from_steps) / span))
        return self.start + fraction * (self.end - self.start)

    @property
    def _moment(self) -> str:
        return "update" if self.unit == "updates" else "env step"

    @model_serializer
    def dump(self) -> Any:
        if self.start == self.end:
            return self.start
        line = {"start": self.start, "end": self.end, "from": self.from_steps, "to": self.to_steps}
        return {**line, "unit": self.unit} if self.unit == "updates" else line


def constant(value: float) -> Schedule:
    """A schedule that does not change, for defaults in configs."""
    return Schedule(start=value, end=value)


def _parse(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a schedule is a number, 'lin_3e-4' or {start, end, from, to}")
    if isinstance(value, (int, float)):
        return {"start": value, "end": value}
    if isinstance(value, str):
        return expand_linear(value, horizon=1)
    return value


def expand_linear(text: str, horizon: int, unit: str = "steps") -> dict[str, Any]:
    """``lin_x`` written out: from x to 0 over the first ``horizon`` env steps or updates."""
    match = LINEAR.match(text)
    if not match:
        raise ValueError(f"'{text}' is not a schedule; write a number, 'lin_3e-4' or {{start, end, from, to}}")
    line = {"start": float(match[1]), "end": 0.0, "from": 0, "to": horizon}
    return {**line, "unit": unit} if unit == "updates" else line


def shorten(value: Any, horizon_steps: Any) -> Any:
    """The inverse of :func:`expand_linear`. Other values are returned unchanged."""
    if not isinstance(value, dict) or set(value) != {"start", "end", "from", "to"}:
        return value
    is_linear = value["end"] == 0 and value["from"] == 0 and value["to"] == horizon_steps
    return f"lin_{short_number(value['start'])}" if is_linear else value


def short_number(number: Any) -> str:
    """A number as it is written in configs: 3e-4, 0.5, 2.5e-4."""
    if not isinstance(number, float) or not 0 < abs(number) < 0.01:
        return str(number)
    return f"{Decimal(repr(number)).normalize():e}"


Scheduled = Annotated[Schedule, BeforeValidator(_parse)]
"""The type of config fields that may have a schedule."""


def _check_rate(schedule: Schedule) -> Schedule:
    if min(schedule.start, schedule.end) < 0:
        raise ValueError("must not be negative")
    return schedule


Rate = Annotated[Scheduled, AfterValidator(_check_rate)]
"""A schedule that must not be negative: learning rates, clipping, temperatures."""


def _check_fraction(schedule: Schedule) -> Schedule:
    if not 0 <= min(schedule.start, schedule.end) <= max(schedule.start, schedule.end) <= 1:
        raise ValueError("must be between 0 and 1")
    return schedule


Fraction = Annotated[Scheduled, AfterValidator(_check_fraction)]
"""A schedule of probabilities or fractions."""
