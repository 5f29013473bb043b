"""Running scales of returns against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from reverie import backend
from reverie.nets.scaling import DeviationScale, NoScale, PercentileScale, RangeScale

ZERO_TO_HUNDRED = torch.arange(101.0)


def numbers(scale: torch.nn.Module) -> list[float]:
    return [float(number) for number in scale()]


def test_percentiles_move_by_the_rate() -> None:
    scale = PercentileScale(PercentileScale.Config(rate=0.1))
    assert numbers(scale) == [0, 1]
    scale.update(ZERO_TO_HUNDRED.view(1, 101))
    assert numbers(scale) == pytest.approx([0.5, 9.5 - 0.5])
    scale.update(2 * ZERO_TO_HUNDRED)
    assert numbers(scale) == pytest.approx([0.45 + 1, 0.9 * 9 + 0.1 * 180])


def test_small_ranges_are_not_amplified() -> None:
    scale = PercentileScale(PercentileScale.Config(rate=1.0))
    scale.update(ZERO_TO_HUNDRED / 1000)
    assert numbers(scale) == pytest.approx([0.005, 1.0])


def test_outliers_do_not_affect_the_percentiles() -> None:
    scale = PercentileScale(PercentileScale.Config(rate=1.0))
    scale.update(torch.cat([ZERO_TO_HUNDRED, torch.tensor([1e9])]))
    assert numbers(scale)[1] < 100


def test_moments_are_unbiased_from_the_first_batch() -> None:
    scale = DeviationScale(DeviationScale.Config(rate=0.1))
    scale.update(torch.tensor([1.0, 3.0]))
    assert numbers(scale) == pytest.approx([2, 1])
    scale.update(torch.tensor([5.0, 5.0]))
    # weights 0.09 and 0.1 of the two batches
    mean, square = (0.09 * 2 + 0.1 * 5) / 0.19, (0.09 * 5 + 0.1 * 25) / 0.19
    assert numbers(scale) == pytest.approx([mean, math.sqrt(square - mean**2)], rel=1e-5)


def test_no_scale_changes_nothing() -> None:
    scale = NoScale(NoScale.Config())
    scale.update(ZERO_TO_HUNDRED)
    assert numbers(scale) == [0, 1]


@pytest.mark.parametrize("kind", [PercentileScale, DeviationScale])
def test_running_statistics_are_in_the_state(kind: type[PercentileScale] | type[DeviationScale]) -> None:
    scale, other = kind(kind.Config()), kind(kind.Config())
    scale.update(ZERO_TO_HUNDRED)
    backend.load_module_state(other, backend.module_state(scale))
    assert numbers(other) == numbers(scale)


def test_a_range_moves_by_the_rate_and_starts_at_its_limit() -> None:
    """The percentiles of 0 to 100 are 5 and 95: a range of 90."""
    scale = RangeScale(RangeScale.Config(rate=0.1))
    assert numbers(scale) == [0, 1]
    scale.update(ZERO_TO_HUNDRED)
    assert numbers(scale) == pytest.approx([0, 0.9 + 9])
    scale.update(ZERO_TO_HUNDRED / 1000)  # a range of 0.09 counts as 1
    assert numbers(scale) == pytest.approx([0, 0.9 * 9.9 + 0.1])
