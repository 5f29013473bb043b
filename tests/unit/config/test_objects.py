"""Python arguments become the overrides of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.algos.ppo import PPO
from reverie.api import make_config
from reverie.config.compose import compose, override_assignments
from reverie.config.objects import as_words, describe_order, whole_number
from reverie.config.typed import COMMAND_LINE, PYTHON, typed_in
from reverie.core.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (0.5, 0.5), (3, 3), (True, True), (None, None), ("lin_3e-4", "lin_3e-4"), ("1", "1"), ("a b", "a b"),
        ((64, 64), [64, 64]), (np.float32(0.5), 0.5), (np.arange(2), [0, 1]), (Path("a/b"), "a/b"),
        (float("inf"), float("inf")), ("grün \U0001f600", "grün \U0001f600"), (PPO, "reverie.algos.ppo.PPO"), ({}, {}),
    ],
)  # fmt: skip
def test_values_are_passed_unchanged(value: Any, read: Any) -> None:
    assert override_assignments(as_words({"env.key": value})) == [(("env", "key"), read)]


def test_keys_may_be_nested_or_dotted() -> None:
    nested = {"algorithm": {"gamma": 0.5, "network": {"units": (8, 8)}}, "env.num_envs": 2}
    config = make_config("CartPole-v1:ppo", overrides=nested | {"phases.learn.duration_steps": 5000}, seed=3)
    assert (config.algorithm.gamma, config.env.num_envs, config.seed) == (0.5, 2, 3)  # type: ignore[attr-defined]
    assert config.algorithm.network.units == (8, 8)  # type: ignore[attr-defined]
    assert config.horizon_steps == 5000


def test_config_object_is_accepted_as_a_value() -> None:
    config = make_config("CartPole-v1:ppo", overrides={"algorithm": PPO.Config(gamma=0.5)})
    assert config.algorithm.gamma == 0.5  # type: ignore[attr-defined]


def test_an_env_and_an_algorithm_make_a_spec() -> None:
    assert describe_order("CartPole-v1:dqn", None, ["debug"]) == ("CartPole-v1:dqn", ["debug"])
    assert describe_order("CartPole-v1", "dqn") == ("CartPole-v1:dqn", [])
    assert describe_order("CartPole-v1", PPO)[0] == "CartPole-v1:reverie.algos.ppo.PPO"
    assert describe_order("minigrid:Id-v0", "dqn")[0] == "minigrid:Id-v0:dqn"
    assert describe_order(Path.cwd, words="a=1", overrides={"b": 2}) == ("Python/cwd:ppo", ["a=1", "b=2"])


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"env": "CartPole-v1:ppo", "algorithm": "dqn"}, ["'CartPole-v1:ppo' names an algorithm, and so does"]),
        ({"env": "CartPole-v1", "algorithm": 3}, ["algorithm: a int cannot be written into a config"]),
        ({"env": "CartPole-v1", "algorithm": lambda: 0}, ["<lambda>' cannot be imported", "at the top of a module"]),
        ({"env": "CartPole-v1:ppo", "overrides": ["seed=1"]}, ["overrides must map keys to values", "of type list"]),
        ({"env": "CartPole-v1:ppo", "overrides": {"seed=1": 2}}, ["'seed=1' is not a key"]),
        ({"env": "CartPole-v1:ppo", "overrides": {3: 2}}, ["3 is not a key"]),
        ({"env": "CartPole-v1:ppo", "overrides": {"a": {"b": object()}}}, ["a.b: a object cannot be written"]),
        ({"env": "CartPole-v1:ppo", "words": [{"seed": 1}]}, ["are text, not dict", "overrides={...}"]),
        ({"env": "CartPole-v1:ppo", "words": [7]}, ["are text, not int", "algorithm.gamma=0.99"]),
    ],
)
def test_wrong_types_are_explained(order: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        describe_order(**order)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("value", ["1000", 10.5, True, float("nan")])
def test_budget_must_be_an_int(value: Any) -> None:
    assert whole_number("steps", 1e5) == 100_000
    assert whole_number("steps", None) is None
    with pytest.raises(ConfigError, match="steps must be a whole number"):
        make_config("CartPole-v1:ppo", steps=value)


def test_sources_and_errors_name_the_origin_of_overrides() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.gamma = 2 \(Python\): must be at most 1"):
        make_config("CartPole-v1:ppo", overrides={"algorithm.gamma": 2})
    with typed_in(COMMAND_LINE), pytest.raises(ConfigError, match=r"algorithm.gamma = 2 \(command line\)"):
        make_config("CartPole-v1:ppo", ["algorithm.gamma=2"])
    with typed_in(PYTHON):
        sources = compose("CartPole-v1:ppo", ["seed=1"]).sources
    assert sources["seed"] == "Python"
    assert compose("CartPole-v1:ppo", ["seed=1"]).sources["seed"] == "command line"
