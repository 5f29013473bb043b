"""Values that change with env steps.

A schedule is written as a number (constant), as ``lin_3e-4`` (falls linearly to 0 over the run's planned env
steps) or as ``{start, end, from, to}`` (linear between two env steps, held before and after). ``lin_`` is
turned into the long form when a run is created, so that a longer budget later does not bend it.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from reverie.core.types import Clock

LINEAR = re.compile(r"^lin_([-+0-9.eE]+)$")


class Schedule(BaseModel):
    """A constant, or a straight line between two moments of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    start: float
    end: float
    from_steps: int = Field(0, alias="from")
    to_steps: int = Field(0, alias="to")

    @model_validator(mode="after")
    def check(self) -> Schedule:
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise ValueError("must be a finite number")
        if self.start != self.end and self.to_steps <= self.from_steps:
            raise ValueError(f"'to' must lie after 'from' ({self.from_steps}), at the env step where 'end' is reached")
        return self

    def at(self, clock: Clock) -> float:
        """The value at this moment."""
        if self.start == self.end:
            return self.start
        span = self.to_steps - self.from_steps
        share = min(1.0, max(0.0, (clock.env_steps - self.from_steps) / span))
        return self.start + share * (self.end - self.start)

    @model_serializer
    def dump(self) -> Any:
        if self.start == self.end:
            return self.start
        return {"start": self.start, "end": self.end, "from": self.from_steps, "to": self.to_steps}


def constant(value: float) -> Schedule:
    """A schedule that stays where it is: the form of defaults in configs."""
    return Schedule(start=value, end=value)


def _parse(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a schedule is a number, 'lin_3e-4' or {start, end, from, to}")
    if isinstance(value, (int, float)):
        return {"start": value, "end": value}
    if isinstance(value, str):
        return expand_linear(value, horizon_steps=1)
    return value


def expand_linear(text: str, horizon_steps: int) -> dict[str, float]:
    """``lin_x`` as a line from x to 0 over ``horizon_steps``."""
    match = LINEAR.match(text)
    if not match:
        raise ValueError(f"'{text}' is not a schedule; write a number, 'lin_3e-4' or {{start, end, from, to}}")
    return {"start": float(match[1]), "end": 0.0, "from": 0, "to": horizon_steps}


def shorten(value: Any, horizon_steps: Any) -> Any:
    """``lin_x`` for a line from x to 0 over the whole horizon, in its long form; everything else as it is."""
    if not isinstance(value, dict) or set(value) != {"start", "end", "from", "to"}:
        return value
    is_linear = value["end"] == 0 and value["from"] == 0 and value["to"] == horizon_steps
    return f"lin_{short_number(value['start'])}" if is_linear else value


def short_number(number: Any) -> str:
    """A number as people write it in a config: 3e-4, 0.5, 2.5e-4."""
    if not isinstance(number, float) or not 0 < abs(number) < 0.01:
        return str(number)
    return f"{Decimal(repr(number)).normalize():e}"


Scheduled = Annotated[Schedule, BeforeValidator(_parse)]
"""The type of a config field that may follow a schedule."""


def _check_rate(schedule: Schedule) -> Schedule:
    if min(schedule.start, schedule.end) < 0:
        raise ValueError("must not be negative")
    return schedule


Rate = Annotated[Scheduled, AfterValidator(_check_rate)]
"""A schedule that makes no sense below 0: learning rates, clipping, temperatures."""


def _check_share(schedule: Schedule) -> Schedule:
    if not 0 <= min(schedule.start, schedule.end) <= max(schedule.start, schedule.end) <= 1:
        raise ValueError("must lie between 0 and 1")
    return schedule


Share = Annotated[Scheduled, AfterValidator(_check_share)]
"""A schedule of probabilities, or of steps that are parts of the way."""
