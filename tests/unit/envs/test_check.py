from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie.core.errors import ConfigError
from reverie.envs.check import check_env
from reverie.envs.config import EnvConfig


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def _check(name: str, **settings: Any) -> list[tuple[str, str, str]]:
    """What is found but for the lack of a time limit, which they all share."""
    findings = check_env(EnvConfig(id=f"broken_envs.{name}", **settings), max_steps=50)
    others = [finding for finding in findings if "no time limit" not in finding.message]
    return [(finding.severity, finding.message, finding.fix) for finding in others]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Reverie/Motion-v0", "FrozenLake-v1"])
def test_sound_envs_have_no_findings(env_id: str) -> None:
    assert check_env(EnvConfig(id=env_id)) == []


@pytest.mark.parametrize(
    ("name", "severity", "message", "fix"),
    [
        ("OldStep", "error", "step() returns 4 values", "old Gym API"),
        ("OldReset", "error", "reset() does not return two values", "(observation, info)"),
        ("SeedlessReset", "error", "reset() raised TypeError", "seed and options"),
        ("FailingStep", "error", "the wheel came off", "broken_envs.py, line "),
        ("OutOfBounds", "error", "leaves its bounds at step 1", "Widen"),
        ("WrongShape", "error", "has shape (1,) at step 1; its space has (2,)", "Correct"),
        ("WrongDtype", "warning", "is float64 at step 1; its space has float32", "astype(np.float32)"),
        ("ListObservation", "error", "is a list at step 1", "np.array"),
        ("NanObservation", "error", "NaN or infinity at step 1", "division"),
        ("NanReward", "error", "reward at step 1 is nan", "division"),
        ("ArrayReward", "error", "not a number", "float(reward)"),
        ("TextReward", "error", "The reward at step 1 is '1.0', not a number", "float(reward)"),
        ("MissingKey", "error", "The observation lacks the key 'speed' at step 1", "It has 'place'"),
        (
            "ShortTuple",
            "error",
            "The observation is 1 part at step 1; its space is a Tuple of 2",
            "one value for each",
        ),
        ("NoDict", "error", "The observation is a ndarray at step 1; its space is a Dict", "keys of the space"),
        ("Ragged", "error", "no regular shape at step 1", "Correct"),
        ("NoInfo", "error", "a NoneType as info", "Return a dict"),
        ("IntegerFlags", "warning", "int, int instead of bool", "bool"),
        ("Endless", "warning", "did not end within 50 steps", "env.max_episode_steps"),
        ("Unseeded", "error", "episodes differ from the reset on", "self.np_random"),
        ("Remembering", "error", "depend on earlier episodes", "in reset()"),
        ("Aliasing", "warning", "changed the observation that step", "copy"),
        ("Large", "warning", "large numbers (up to 1e+04)", "normaliser.observation=rolling"),
        ("Invisible", "warning", "cannot render images", "rgb_array"),
    ],
)
def test_each_mistake_is_found_and_nothing_else(name: str, severity: str, message: str, fix: str) -> None:
    findings = _check(name)
    assert len(findings) == 1
    assert findings[0][0] == severity
    assert message in findings[0][1]
    assert fix in findings[0][2]


def test_what_wrappers_choke_on_is_told_in_the_same_words() -> None:
    """A time limit unpacks what the env returns: without care, its ValueError would be all that one sees."""
    findings = check_env(EnvConfig(id="broken_envs.OldStep", max_episode_steps=9))
    assert [finding.message for finding in findings] == ["step() returns 4 values instead of 5."]


def test_an_env_that_cuts_its_own_episodes_needs_no_limit() -> None:
    assert check_env(EnvConfig(id="broken_envs.Truncating")) == []


def test_action_bounds_are_looked_at() -> None:
    assert _check("BoxAction") == []
    assert "not symmetric" in _check("BoxAction", kwargs={"low": 0})[0][1]
    unbounded = {"low": float("-inf"), "high": float("inf")}
    assert "no finite bounds" in _check("BoxAction", kwargs=unbounded)[0][1]


def test_a_log_key_that_never_comes_is_told_with_its_neighbour() -> None:
    (finding,) = _check("Sound", log_keys=("sucess", "success"))
    assert "'sucess'" in finding[1]
    assert "'success'" in finding[2]


@pytest.mark.parametrize("name", ["Sound", "Endless"])
def test_a_limit_in_the_config_satisfies(name: str) -> None:
    assert check_env(EnvConfig(id=f"broken_envs.{name}", max_episode_steps=20)) == []


def test_an_env_that_ends_its_episodes_still_needs_a_limit() -> None:
    (finding,) = check_env(EnvConfig(id="broken_envs.Sound"))
    assert finding.severity == "warning"
    assert "no time limit" in finding.message
    assert "env.max_episode_steps=1000" in finding.fix


@pytest.mark.needs("box2d")
def test_the_walker_gets_a_fresh_world_for_every_episode() -> None:
    findings = check_env(EnvConfig(id="BipedalWalker-v3"))
    assert not any("depend on earlier episodes" in finding.message for finding in findings)


def test_an_env_that_does_not_exist_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        check_env(EnvConfig(id="NoSuchEnv-v0"))
