from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.envs import make
from reverie.envs.config import EnvConfig
from reverie.envs.suites import mujoco
from reverie.machine.installation import install_command

STEP_SECONDS = make._step_seconds  # as it is before tests/conftest.py takes the stopwatch away
UNUSED: Any = gym.Env()
"""An env that is not looked at."""


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def _wrapped(env_id: str, *wrappers: object, **settings: object) -> EnvConfig:
    return EnvConfig.model_validate({"id": env_id, "wrappers": wrappers, **settings})


def test_an_env_comes_without_checking_wrappers() -> None:
    env = make.make_env(EnvConfig(id="CartPole-v1"))
    assert type(env) is gym.wrappers.TimeLimit
    assert env.env is env.unwrapped


def test_the_time_limit_of_the_config_replaces_the_envs_own() -> None:
    longer = make.make_env(EnvConfig(id="CartPole-v1", max_episode_steps=700))
    assert make.max_episode_steps_of(longer) == 700
    assert make.max_episode_steps_of(make.make_env(EnvConfig(id="CartPole-v1"))) == 500
    unlimited = EnvConfig(id="reverie.envs.suites.reverie.counting.CountingEnv")
    assert make.max_episode_steps_of(make.make_env(unlimited)) is None


def test_repeats_and_inner_limits_count_in_steps_of_the_agent() -> None:
    repeated = {"kind": "action_repeat", "repeats": 3}
    assert make.make_specs(_wrapped("CartPole-v1", repeated)).max_episode_steps == 167
    limited = _wrapped("CartPole-v1", repeated, {"kind": "time_limit", "steps": 90})
    assert make.make_specs(limited).max_episode_steps == 90


def test_a_dotted_class_is_an_env_unless_foreign_code_is_refused() -> None:
    config = EnvConfig(id="broken_envs.Sound", max_episode_steps=3)
    assert make.make_specs(config).max_episode_steps == 3
    with registry.known_kinds_only(), pytest.raises(ConfigError, match="--trust"):
        make.make_env(config)
    with registry.known_kinds_only(), pytest.raises(ConfigError, match="--trust"):
        make.make_env(EnvConfig(id="broken_envs:CartPole-v1"))


def test_an_unknown_id_names_its_neighbours() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'CartPole-v1'"):
        make.make_env(EnvConfig(id="Cartpole-v1"))
    with pytest.raises(ConfigError, match="Taxi-v4"):
        make.make_env(EnvConfig(id="Taxi-v3"))
    with pytest.raises(ConfigError, match="no environment 'Sounds'"):
        make.make_env(EnvConfig(id="broken_envs.Sounds"))


def test_an_unknown_id_may_be_one_of_another_package() -> None:
    with pytest.raises(ConfigError, match="install the package and write package:Id"):
        make.make_env(EnvConfig(id="MiniGrid-Emptier-v0"))
    with pytest.raises(ConfigError, match="no environment called 'broken_envs:Nothing-v0'") as caught:
        make.make_env(EnvConfig(id="broken_envs:Nothing-v0"))
    assert "package:Id" not in caught.value.fix


def test_a_class_after_a_colon_is_named_with_a_dot() -> None:
    with pytest.raises(ConfigError, match=r"Write broken_envs\.Sound, with a dot"):
        make.make_env(EnvConfig(id="broken_envs:Sound"))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise gym.error.DependencyNotInstalled("MuJoCo is not installed")

    monkeypatch.setattr(gym, "make", lambda *_, **kwargs: refuse(**kwargs))
    with pytest.raises(ConfigError, match=re.escape(install_command("mujoco"))):
        make.make_env(EnvConfig(id="HalfCheetah-v5"))
    with pytest.raises(ConfigError, match=re.escape(install_command("box2d"))):
        make.make_env(EnvConfig(id="LunarLander-v3"))


@pytest.mark.needs("mujoco")
def test_mujoco_leaves_no_file_and_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Of what can go wrong in a run, not of Gymnasium's own model files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco, "_printed", set())
    for steps in range(2):
        env = make.make_env(EnvConfig(id="HalfCheetah-v5"))
        env.reset(seed=0)
        for _ in range(steps):
            env.step(env.action_space.sample())
        env.unwrapped.data.qvel[:] = float("nan")  # type: ignore[attr-defined]
        env.step(env.action_space.sample())
    output = capfd.readouterr()
    (line,) = output.err.splitlines()
    assert line.startswith("MuJoCo warns: Nan")
    assert output.out == ""
    assert not list(tmp_path.iterdir())


def test_warnings_of_mujoco_survive_a_terminal_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """C calls it, which an error would bring down."""
    monkeypatch.setattr(mujoco, "_printed", set())
    gone = open(os.devnull, "w")  # noqa: SIM115
    gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    mujoco._print_warning("Nan in QACC at DOF 1")
    assert mujoco._printed == {"Nan in QACC"}


def test_ataris_games_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gym.registry, "ALE/Pong-v5", raising=False)
    with pytest.raises(ConfigError, match="Atari") as caught:
        make.make_env(EnvConfig(id="ALE/Pong-v5"))
    assert caught.value.fix == install_command("atari")


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(ConfigError, match=r"env\.kwargs"):
        make.make_env(EnvConfig(id="CartPole-v1", kwargs={"colour": "red"}))


def test_something_that_is_no_env_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Inherit from gymnasium\.Env"):
        make.make_env(EnvConfig(id="pathlib.Path"))


def test_auto_is_not_a_way_to_run() -> None:
    with pytest.raises(ConfigError, match="sync, process, native"):
        make.make_vector(EnvConfig(id="CartPole-v1"), seed=0)


def test_num_envs_can_differ_from_the_config() -> None:
    vector = make.make_vector(EnvConfig(id="CartPole-v1", vector="sync", num_envs=4), 0, num_envs=2)
    assert vector.reset()["reward"].shape == (2,)


@pytest.mark.parametrize(
    ("step_seconds", "num_envs", "workers", "choice"),
    [(5e-6, 8, 2, "sync"), (5e-3, 8, 2, "process"), (5e-3, 1, 2, "sync"), (5e-3, 8, 1, "sync")],
)
def test_workers_are_chosen_where_they_pay(
    monkeypatch: pytest.MonkeyPatch, step_seconds: float, num_envs: int, workers: int, choice: str
) -> None:
    monkeypatch.setattr(make, "_step_seconds", lambda config, env: step_seconds)
    config = EnvConfig(id="CartPole-v1", num_envs=num_envs, workers=workers)
    assert make.resolve_vector(config, UNUSED) == choice


def test_the_probe_measures_a_real_env_and_settled_choices_stay() -> None:
    config = EnvConfig(id="broken_envs.Sound")
    assert 0 < STEP_SECONDS(config, make.make_env(config)) < 1
    assert make.resolve_vector(EnvConfig(id="CartPole-v1", vector="native"), UNUSED) == "native"


def test_an_env_of_the_running_script_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_step_seconds", lambda config, env: 1.0)
    assert make.resolve_vector(EnvConfig(id="__main__.MyEnv", num_envs=8, workers=2), UNUSED) == "sync"


def test_any_env_that_renders_can_be_observed_as_pixels() -> None:
    config = EnvConfig.model_validate({"id": "CartPole-v1", "obs": "pixels", "wrappers": ["grayscale"]})
    (spec,) = make.make_specs(config).observations.values()
    assert (spec.kind, spec.shape) == ("image", (64, 64, 1))


def test_an_unknown_form_of_observation_is_answered_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"'CartPole-v1' has no observation 'pixel'\.") as caught:
        make.make_env(EnvConfig(id="CartPole-v1", obs="pixel"))
    assert "'pixels'" in caught.value.fix
