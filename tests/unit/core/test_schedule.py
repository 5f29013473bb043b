"""Schedules: constants, linear changes, and how they are written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reverie.core.config import Config
from reverie.core.schedule import Fraction, Rate, Scheduled, constant, expand_linear, shorten
from reverie.core.types import Clock


class Example(Config):
    rate: Scheduled


class Positive(Config):
    rate: Rate


class FractionConfig(Config):
    fraction: Fraction


def at(value: Any, env_steps: int) -> float:
    return Example(rate=value).rate.at(Clock(env_steps=env_steps))


def test_a_number_is_constant() -> None:
    assert at(3e-4, 0) == at(3e-4, 10**9) == 3e-4
    assert at(2, 5) == 2.0
    assert constant(0.2).at(Clock(env_steps=7)) == 0.2


@pytest.mark.parametrize(("steps", "value"), [(0, 1.0), (100, 1.0), (150, 0.75), (300, 0.0), (900, 0.0)])
def test_linear_schedule_is_constant_before_and_after(steps: int, value: float) -> None:
    assert at({"start": 1.0, "end": 0.0, "from": 100, "to": 300}, steps) == pytest.approx(value)


def test_linear_schedule_may_rise() -> None:
    assert at({"start": 0.0, "end": 8.0, "to": 4}, 1) == 2.0


def test_linear_text_falls_to_zero_over_the_horizon() -> None:
    assert expand_linear("lin_3e-4", 1000) == {"start": 3e-4, "end": 0.0, "from": 0, "to": 1000}
    assert at(expand_linear("lin_2", 1000), 250) == 1.5


@pytest.mark.parametrize(
    "wrong", ["3e-4x", "linear", "lin_", "lin_a", True, {"start": 1}, {"start": 1, "end": 0, "x": 1}]
)
def test_invalid_text_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        Example(rate=wrong)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), {"start": 1, "end": float("-inf"), "to": 5}])
def test_values_are_finite(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="must be a finite number"):
        Example(rate=wrong)


@pytest.mark.parametrize("moments", [{}, {"from": 5, "to": 5}, {"from": 5, "to": 4}])
def test_linear_schedule_needs_an_interval(moments: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="must be above 'from'"):
        Example(rate={"start": 1.0, "end": 0.5, **moments})
    assert Example(rate={"start": 1.0, "end": 1.0, **moments}).rate == constant(1.0).model_copy(
        update={f"{name}_steps": steps for name, steps in moments.items()}
    )


@pytest.mark.parametrize("wrong", [-1e-9, "lin_-3e-4", {"start": 1, "end": -1, "to": 5}])
def test_rates_are_not_negative(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="must not be negative"):
        Positive(rate=wrong)
    assert Example(rate=wrong)
    assert Positive(rate=0).rate == constant(0)


@pytest.mark.parametrize("wrong", [1.01, -1e-9, "lin_2", {"start": 1, "end": 3, "to": 5}])
def test_fractions_are_between_zero_and_one(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="must be between 0 and 1"):
        FractionConfig(fraction=wrong)
    assert (FractionConfig(fraction=0).fraction, FractionConfig(fraction="lin_1").fraction.start) == (constant(0), 1)


def test_dumped_schedules_can_be_read_again() -> None:
    line = {"start": 1.0, "end": 0.5, "from": 2, "to": 6}
    for value in (0.25, line):
        dumped = Example(rate=value).model_dump(mode="json")
        assert dumped == {"rate": value}
        assert Example(**dumped) == Example(rate=value)


@pytest.mark.parametrize(
    ("start", "short"), [(0.001, "1e-3"), (0.0003, "3e-4"), (2.5e-4, "2.5e-4"), (0.5, "0.5"), (-1e-5, "-1e-5")]
)
def test_shortened_linear_schedule_expands_to_the_same_values(start: float, short: str) -> None:
    assert shorten(expand_linear(f"lin_{start}", 100), 100) == f"lin_{short}"
    assert expand_linear(f"lin_{short}", 100) == expand_linear(f"lin_{start}", 100)


@pytest.mark.parametrize(
    "value", [0.5, "lin_1e-3", {"start": 1}, {"start": 1.0, "end": 0.1, "from": 0, "to": 100}, None]
)
def test_other_values_have_no_short_form(value: Any) -> None:
    assert shorten(value, 100) == value


def test_schedule_may_count_updates() -> None:
    line = Example.model_validate({"rate": {"start": 1.0, "end": 0.0, "from": 0, "to": 10, "unit": "updates"}}).rate
    assert line.at(Clock(env_steps=10, updates=5)) == 0.5
    assert Example.model_validate({"rate": line.model_dump()}).rate == line
    assert expand_linear("lin_0.5", 40, "updates") == {"start": 0.5, "end": 0.0, "from": 0, "to": 40, "unit": "updates"}
    with pytest.raises(ValidationError, match="the update where 'end' is reached"):
        Example.model_validate({"rate": {"start": 1.0, "end": 0.0, "from": 5, "to": 5, "unit": "updates"}})
