"""Shapes of learning curves: synthetic ones, whose shape is known, and recorded ones of real short runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reverie.lab.analyze.shape import Kind, read_shape

RECORDED = json.loads((Path(__file__).parent / "recorded_curves.json").read_text())
X = np.linspace(0, 1000, 40)
CURVES = {
    "nothing learnt": np.zeros(40),
    "learnt": 100 / (1 + np.exp(-(X - 300) / 60)),
    "still improving": X / 10,
    "collapse": np.where(X < 600, X / 6, 5.0),
    "got worse": -X / 10,
}


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
@pytest.mark.parametrize("offset", [0.0, -1e4])
def test_clean_curves(kind: str, scale: float, offset: float) -> None:
    assert read_shape(X, scale * (CURVES[kind] + offset)).kind == kind


@pytest.mark.parametrize("kind", CURVES)
def test_noise_does_not_change_the_shape(kind: str) -> None:
    rng = np.random.default_rng(0)
    found = [read_shape(X, CURVES[kind] + rng.normal(0, 8, 40)).kind for _ in range(100)]
    assert found.count(kind) >= 80, {name: found.count(name) for name in set(found)}


@pytest.mark.parametrize("points", [4, 8, 20, 41, 200])
def test_pure_noise_is_rarely_called_learning(points: int) -> None:
    rng = np.random.default_rng(1)
    found = [read_shape(np.arange(points), rng.exponential(20, points), merge=5).kind for _ in range(300)]
    wrong = [kind for kind in found if kind not in ("nothing learnt", "unknown")]
    assert len(wrong) <= 30, {kind: wrong.count(kind) for kind in set(wrong)}


def test_the_goal_tells_learnt_from_a_plateau() -> None:
    assert read_shape(X, CURVES["learnt"], solved_at=95).kind == "learnt"
    assert read_shape(X, CURVES["learnt"], solved_at=200).kind == "plateau"


def test_a_curve_that_begins_above_random_play_has_learnt_before_its_first_point() -> None:
    flat = np.array([186.0, 190.0, 181.0, 200.0])
    assert read_shape(np.arange(4), flat, solved_at=475).kind == "nothing learnt"
    assert read_shape(np.arange(4), flat, solved_at=475, random=22).kind == "plateau"
    assert read_shape(np.arange(4), flat, solved_at=475, random=185).kind == "nothing learnt"


def test_few_points_claim_nothing() -> None:
    shape = read_shape(np.arange(3), np.array([0.0, 50.0, 100.0]))
    assert (shape.kind, shape.points, shape.best, shape.best_at) == ("unknown", 3, 100.0, 2.0)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("learnt with dips", ("learnt",)), ("collapsed", ("collapse",)), ("no reward", ("nothing learnt",)),
        ("falling", ("got worse",)), ("untrained episodes", ("nothing learnt", "unknown")),
        ("random episodes", ("nothing learnt",)),
    ],
)  # fmt: skip
def test_recorded_curves(name: str, kinds: tuple[Kind, ...]) -> None:
    curve, goal = RECORDED[name], {"no reward": -110.0, "untrained episodes": -200.0}.get(name, 475.0)
    merge = 5 if "episodes" in name else 1
    assert read_shape(np.array(curve["x"], float), np.array(curve["y"]), goal, merge).kind in kinds
