"""Figures of a world model's looks: they show what they are given, whatever that is, and sinks get them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.foresight.figures import MOST_PANELS, draw_calibrations, draw_errors
from reverie.foresight.measure import Calibration, Errors
from reverie.runs.foresight_files import show_look
from tests.unit.foresight.test_measure import Painter, counting_rows, measurement_of

BLUE, ORANGE = (31, 119, 180), (255, 127, 14)
FULL = np.full(4, 5)


def has(image: Any, colour: tuple[int, int, int]) -> bool:
    return bool((np.abs(image.astype(int) - colour).sum(-1) < 12).any())


class Notes:
    """A recorder that keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: dict[tuple[str, str], Any] = {}

    def show(self, kind: str, name: str, **content: Any) -> None:
        self.shown[kind, name] = content


def test_a_look_shows_errors_and_calibration_of_all_keys() -> None:
    notes: Any = Notes()
    look = measurement_of(Painter(0.5), counting_rows(2, 9))
    show_look(look, notes)
    errors, bins = (notes.shown["figure", name]["image"] for name in ("open_loop/errors", "calibration/bins"))
    np.testing.assert_array_equal(errors, draw_errors(look.errors))
    np.testing.assert_array_equal(bins, draw_calibrations(look.calibrations))
    assert errors.dtype == np.uint8
    assert errors.shape == (480, 4 * 320, 3)  # three observations, reward, continuation, value and two latents
    assert bins.shape == (240, 2 * 320, 3)


def test_both_curves_are_drawn_as_far_as_there_are_dreams() -> None:
    both = draw_errors({"obs": Errors(np.arange(4.0), 2 * np.arange(4.0), FULL)})
    assert has(both, BLUE)
    assert has(both, ORANGE)
    none = draw_errors({"obs": Errors(np.arange(4.0), 2 * np.arange(4.0), np.zeros(4, int))})
    assert not has(none[:, 80:][60:180], BLUE)  # only the legend
    other = draw_errors({"obs": Errors(np.arange(4.0) ** 2, 2 * np.arange(4.0), FULL)})
    assert (other != both).any()


def test_what_came_is_drawn_over_what_was_predicted() -> None:
    true = draw_calibrations({"reward": Calibration(np.arange(4.0), np.arange(4.0), FULL)})
    wrong = draw_calibrations({"reward": Calibration(np.arange(4.0), np.arange(4.0)[::-1], FULL)})
    assert (true != wrong).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1e300])
def test_whatever_a_model_says_can_be_drawn(value: float) -> None:
    values = np.full(4, value)
    draw_errors({"a_$key$": Errors(values, np.zeros(4), FULL)})
    draw_calibrations({"reward": Calibration(values, values, FULL)})


def test_many_keys_do_not_make_an_endless_figure() -> None:
    errors = {str(key): Errors(np.ones(4), np.ones(4), FULL) for key in range(MOST_PANELS + 2)}
    assert draw_errors(errors).shape == (2 * 240, 4 * 320, 3)
