from __future__ import annotations

import numpy as np
import pytest

from reverie.agents.random import RandomController
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs

NOW = {"is_first": np.zeros(500, bool)}


def act(spec: ActionSpec, seed: int = 0) -> np.ndarray:
    return RandomController(Specs({}, spec)).act(NOW, make_generator(seed))


def test_discrete_actions_cover_the_space() -> None:
    action = act(ActionSpec("discrete", (), "int64", (3,)))
    assert action.shape == (500,)
    assert np.bincount(action).min() > 100


def test_each_part_of_an_action_has_its_own_range() -> None:
    action = act(ActionSpec("multi_discrete", (2,), "int64", (2, 5)))
    assert action.shape == (500, 2)
    assert action.max(axis=0).tolist() == [1, 4]


def test_bounded_actions_fill_the_agents_range() -> None:
    action = act(ActionSpec("continuous", (2,), "float32", low=(-3.0, 0.0), high=(3.0, 9.0)))
    assert action.dtype == np.float32
    assert action.min(axis=0) == pytest.approx([-1, -1], abs=0.03)
    assert action.max(axis=0) == pytest.approx([1, 1], abs=0.03)


def test_the_stream_decides() -> None:
    spec = ActionSpec("discrete", (), "int64", (3,))
    assert np.array_equal(act(spec, seed=1), act(spec, seed=1))
    assert not np.array_equal(act(spec, seed=1), act(spec, seed=2))
