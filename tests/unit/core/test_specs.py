"""Specs of every kind of space, and observations as flat rows."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs, flatten_observation, read_specs

OBSERVATIONS = {
    "floats": (spaces.Box(-1, 1, (3,)), ObservationSpec((3,), "float32", "vector"), 3),
    "one number": (spaces.Box(-1, 1, ()), ObservationSpec((), "float32", "vector"), 1),
    "doubles": (spaces.Box(-1, 1, (2, 3), np.float64), ObservationSpec((2, 3), "float32", "vector"), 6),
    "whole numbers": (spaces.Box(0, 9, (2,), np.int64), ObservationSpec((2,), "float32", "vector"), 2),
    "bytes": (spaces.Box(0, 255, (128,), np.uint8), ObservationSpec((128,), "uint8", "vector"), 128),
    "picture": (spaces.Box(0, 255, (8, 9, 3), np.uint8), ObservationSpec((8, 9, 3), "uint8", "image"), 216),
    "grey picture": (spaces.Box(0, 255, (8, 9), np.uint8), ObservationSpec((8, 9, 1), "uint8", "image"), 72),
    "discrete": (spaces.Discrete(5, start=-2), ObservationSpec((), "int64", "discrete", (5,)), 5),
    "multi discrete": (spaces.MultiDiscrete([2, 3]), ObservationSpec((2,), "int64", "discrete", (2, 3)), 5),
    "multi binary": (spaces.MultiBinary(4), ObservationSpec((4,), "float32", "vector"), 4),
}  # fmt: skip
ACTIONS = {
    "discrete": (spaces.Discrete(4, start=2), ActionSpec("discrete", (), "int64", (4,), start=(2,)), 4),
    "multi discrete": (
        spaces.MultiDiscrete([2, 3]), ActionSpec("multi_discrete", (2,), "int64", (2, 3), start=(0, 0)), 5,
    ),
    "multi binary": (spaces.MultiBinary(3), ActionSpec("multi_binary", (3,), "int64", (2, 2, 2)), 6),
    "mixed": (
        spaces.Dict({"b": spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))), "a": spaces.Box(-1, 3, (2, 1))}),
        ActionSpec("mixed", (5,), "float32", parts=(
            ActionSpec("continuous", (2, 1), "float32", low=(-1, -1), high=(3, 3)),
            ActionSpec("discrete", (), "int64", (4,), start=(0,)),
            ActionSpec("multi_binary", (2,), "int64", (2, 2)),
        )), 2 + 4 + 4,
    ),
    "bounded": (
        spaces.Box(np.array([-2, 0], np.float32), np.array([6, 1], np.float32)),
        ActionSpec("continuous", (2,), "float32", low=(-2, 0), high=(6, 1)), 2,
    ),
    "half bounded": (
        spaces.Box(0, np.inf, (1,)), ActionSpec("continuous", (1,), "float32", low=(0,), high=(np.inf,)), 1,
    ),
}  # fmt: skip


class Env(gym.Env[Any, Any]):
    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action


def specs_of(observation: spaces.Space[Any], action: spaces.Space[Any] | None = None) -> Specs:
    return read_specs(Env(observation, action or spaces.Discrete(2)), 100)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations(name: str) -> None:
    space, spec, size = OBSERVATIONS[name]
    assert specs_of(space).observations == {"obs": spec}
    assert spec.size == size
    space.seed(1)
    flat = flatten_observation(space, space.sample())["obs"]
    assert (flat.shape, flat.dtype) == (spec.shape, spec.dtype)
    if spec.kind == "discrete":
        assert (flat >= 0).all()
        assert (flat < np.array(spec.classes).reshape(flat.shape)).all()


@pytest.mark.parametrize("name", ACTIONS)
def test_actions(name: str) -> None:
    space, spec, size = ACTIONS[name]
    assert specs_of(spaces.Discrete(2), space).action == spec
    assert spec.size == size
    assert spec.is_scaled == (name in ("bounded", "mixed"))
    assert spec.zeros(3, 2).shape == (3, 2, *spec.shape)
    assert spec.zeros(1).dtype == spec.dtype


def test_random_mixed_actions_concatenate_those_of_their_parts() -> None:
    drawn = ACTIONS["mixed"][1].sample(make_generator("test"), 500)
    assert (drawn.shape, drawn.dtype) == ((500, 5), "float32")
    assert -1 <= drawn[:, :2].min() < -0.95
    assert [sorted(set(column.tolist())) for column in drawn[:, 2:].T] == [[0, 1, 2, 3], [0, 1], [0, 1]]


@pytest.mark.parametrize("name", [name for name in ACTIONS if name not in ("half bounded", "mixed")])
def test_random_actions_cover_the_whole_range(name: str) -> None:
    spec = ACTIONS[name][1]
    drawn = spec.sample(make_generator("test"), 500)
    assert (drawn.shape, drawn.dtype) == ((500, *spec.shape), spec.dtype)
    if spec.kind == "continuous":
        assert -1 <= drawn.min() < -0.95
        assert 0.95 < drawn.max() <= 1
    else:
        columns = drawn.reshape(500, -1).T
        assert [sorted(set(column.tolist())) for column in columns] == [list(range(n)) for n in spec.classes]


def test_random_actions_without_bounds_are_standard_normal() -> None:
    drawn = ACTIONS["half bounded"][1].sample(make_generator("test"), 2000)
    assert abs(float(drawn.mean())) < 0.1
    assert abs(float(drawn.std()) - 1) < 0.1


def test_nested_observations_have_a_key_per_leaf() -> None:
    space = spaces.Dict({"pair": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(0, 1, (2,)))),
                         "camera": spaces.Box(0, 255, (4, 4), np.uint8)})  # fmt: skip
    value = {"pair": (2, np.array([0.5, 1.0])), "camera": np.full((4, 4), 7, np.uint8)}
    flat = flatten_observation(space, value)
    assert list(flat) == list(specs_of(space).observations)
    assert flat["obs/pair/0"] == 1
    assert flat["obs/pair/1"].tolist() == [0.5, 1.0]
    assert flat["obs/camera"].shape == (4, 4, 1)


@pytest.mark.parametrize("name", ACTIONS)
def test_specs_survive_json(name: str) -> None:
    observation = spaces.Dict({str(i): space for i, (space, _, _) in enumerate(OBSERVATIONS.values())})
    specs = specs_of(observation, ACTIONS[name][0])
    assert Specs.from_json(json.loads(json.dumps(specs.to_json()))) == specs


def test_leaves_with_equal_names_are_refused() -> None:
    """One would overwrite the other in every row."""
    box = spaces.Box(0, 1, (2,))
    with pytest.raises(ConfigError, match="both called 'a/b'") as caught:
        specs_of(spaces.Dict({"a/b": box, "a": spaces.Dict({"b": box})}))
    assert "'a_b'" in caught.value.fix
    assert list(specs_of(spaces.Dict({"a/b": box})).observations) == ["obs/a/b"]


def test_unsupported_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="'obs/words' is a Text space"):
        specs_of(spaces.Dict({"words": spaces.Text(4)}))
    with pytest.raises(ConfigError, match="Actions of a Text space"):
        specs_of(spaces.Discrete(2), spaces.Text(4))
