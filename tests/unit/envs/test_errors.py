"""Training reports mistakes of an env with the messages of ``reverie envs check``, with every kind of vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.api import train
from reverie.core.errors import ConfigError
from reverie.envs import make
from reverie.envs.config import EnvConfig
from reverie.envs.errors import EnvError, check_reward
from reverie.envs.make import make_env, make_vector

STEP_SECONDS = make._step_seconds  # as it is before tests/conftest.py takes the stopwatch away
MISTAKES = {
    "OldStep": "step() returns 4 values instead of 5.",
    "OldReset": "reset() does not return two values, observation and info.",
    "SeedlessReset": "reset() raised TypeError",
    "WrongShape": "The observation has shape (1,) at step 1; its space has (2,).",
    "TextReward": "The reward at step 1 is '1.0', not a number.",
    "ArrayReward": "The reward at step 1 is array([1.]), not a number.",
    "NanReward": "The reward at step 1 is nan.",
    "MissingKey": "The observation lacks the key 'speed' at step 1, which its space has.",
    "NoDict": "The observation is a ndarray at step 1; its space is a Dict.",
    "ShortTuple": "The observation is 1 part at step 1; its space is a Tuple of 2.",
    "FailingStep": "step() raised RuntimeError: the wheel came off",
}


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def _play(name: str, **settings: Any) -> EnvError:
    vector = make_vector(EnvConfig(id=f"broken_envs.{name}", **settings), 0)
    actions = vector.specs.action.zeros(vector.num_envs)
    try:
        with pytest.raises(EnvError) as caught:
            [vector.reset(), *(vector.step(actions) for _ in range(3))]
    finally:
        vector.close()
    return caught.value


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize(
    "settings", [{}, {"max_episode_steps": 4}, {"wrappers": [{"kind": "action_repeat"}]}], ids=["bare", "limit", "own"]
)
def test_training_says_what_is_wrong(name: str, settings: dict[str, Any]) -> None:
    error = _play(name, vector="sync", **settings)
    expected = MISTAKES[name]
    if "wrappers" in settings:  # a wrapper of ours that meets the reward first does not count steps
        expected = expected.replace("The reward at step 1", "The reward")
    assert error.message.startswith(expected)
    assert error.fix


@pytest.mark.parametrize("name", ["OldStep", "MissingKey", "TextReward"])
def test_a_mistake_in_a_worker_is_told_alike_and_at_once(name: str) -> None:
    one, other = _play(name, vector="sync"), _play(name, vector="process", num_envs=2, workers=1)
    assert (one.message, one.fix) == (other.message, other.fix)


def test_an_exception_comes_with_the_envs_own_lines_and_no_others() -> None:
    error = _play("FailingStep", vector="sync", max_episode_steps=4)
    source = Path(__file__).with_name("broken_envs.py")
    number = next(i for i, line in enumerate(source.read_text().splitlines(), 1) if "the wheel came off" in line)
    assert error.fix == f"Correct step() in {source}, line {number}."
    assert error.message.count("File ") == 1
    assert 'raise RuntimeError("the wheel came off")' in error.message


@pytest.mark.parametrize("name", ["OldStep", "FailingStep"])
def test_the_trial_that_times_an_env_tells_it_too(name: str) -> None:
    config = EnvConfig(id=f"broken_envs.{name}")
    with pytest.raises(EnvError) as caught:
        STEP_SECONDS(config, make.make_env(config))
    assert caught.value.message.startswith(MISTAKES[name])


def test_a_run_on_a_broken_env_is_refused_before_it_has_a_folder(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="step\\(\\) returns 4 values"):
        train("broken_envs.OldStep:ppo", "env.max_episode_steps=9", runs_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_constructor_that_lacks_arguments_names_them_as_settings() -> None:
    with pytest.raises(ConfigError, match="without size and colour") as caught:
        make_env(EnvConfig(id="broken_envs.NeedsSize"))
    assert caught.value.fix == "Set env.kwargs.size=... env.kwargs.colour=..."


def test_a_constructor_that_raises_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"a negative size \(.*broken_envs\.py, line \d+\)") as caught:
        make_env(EnvConfig(id="broken_envs.NeedsSize", kwargs={"size": -1, "colour": "red"}))
    assert "env.kwargs" in caught.value.fix


@pytest.mark.parametrize("reward", [1, 1.5, True, np.float32(2), np.int64(3), np.array(4.0), np.bool_(True)])
def test_every_kind_of_number_is_a_reward(reward: Any) -> None:
    assert check_reward(reward) == float(reward)


@pytest.mark.parametrize("reward", ["1", None, [1.0], np.ones(1), 1j, np.complex64(1), np.array("x")])
def test_nothing_else_is_a_reward(reward: Any) -> None:
    with pytest.raises(EnvError, match="not a number"):
        check_reward(reward)
