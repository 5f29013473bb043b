"""Counts in messages."""

from __future__ import annotations

import pytest

from reverie.core.counters import Budget
from reverie.core.wording import count


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1000, "1,000 runs"), (1001, "1,001 runs")]
)
def test_only_one_is_singular(amount: int, text: str) -> None:
    assert count(amount, "run") == text


def test_irregular_plural() -> None:
    assert [count(amount, "entry", "entries") for amount in (1, 2)] == ["1 entry", "2 entries"]


def test_budget_is_written_with_its_unit() -> None:
    assert [Budget().amount(number) for number in (1, 2)] == ["1 env step", "2 env steps"]
    assert Budget("updates").amount(1) == "1 update"
