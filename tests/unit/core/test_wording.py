"""Words that messages share."""

from __future__ import annotations

import pytest

from reverie.core.counters import Budget
from reverie.core.wording import count


@pytest.mark.parametrize(
    ("amount", "told"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1000, "1,000 runs"), (1001, "1,001 runs")]
)
def test_one_is_one_and_everything_else_is_many(amount: int, told: str) -> None:
    assert count(amount, "run") == told


def test_a_plural_of_its_own() -> None:
    assert [count(amount, "entry", "entries") for amount in (1, 2)] == ["1 entry", "2 entries"]


def test_a_budget_is_told_in_its_unit() -> None:
    assert [Budget().amount(number) for number in (1, 2)] == ["1 env step", "2 env steps"]
    assert Budget("updates").amount(1) == "1 update"
