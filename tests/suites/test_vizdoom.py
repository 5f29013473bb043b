"""ViZDoom: observations, how episodes end, own configs and wads, and errors."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector, max_episode_steps_of, with_observation
from reverie.envs.render import render_fps
from reverie.envs.suites.vizdoom import FOLDER_VARIABLE

pytestmark = pytest.mark.needs("vizdoom")
BASIC = EnvConfig(id="VizdoomBasic-v1", kwargs={"frame_skip": 4})


def package_folder() -> Path:
    import vizdoom

    return Path(vizdoom.scenarios_path)


def test_the_screen_comes_with_game_variables() -> None:
    specs = make_specs(BASIC)
    assert specs.observations["obs/screen"].kind == "image"
    assert specs.observations["obs/gamevariables"].shape == (1,)  # ammunition
    assert specs.action.classes == (4,)
    assert with_observation(BASIC) == BASIC


def test_an_episode_of_300_tics_is_truncated_with_its_last_image() -> None:
    with closing(make_env(BASIC)) as env:
        assert max_episode_steps_of(env) == 75
        assert render_fps(env) == 35 / 4
        env.reset(seed=0)
        ends = [env.step(0) for _ in range(75)]
    flags = [end[2:4] for end in ends]
    over = next(number for number, (_, truncated) in enumerate(flags) if truncated)
    assert not any(terminated for terminated, _ in flags)
    assert over >= 70
    assert ends[over][0]["screen"].any()  # ViZDoom itself shows zeros


def test_a_time_limit_counts_actions_not_tics() -> None:
    with closing(make_env(BASIC.model_copy(update={"max_episode_steps": 20}))) as env:
        assert max_episode_steps_of(env) == 20
        env.reset(seed=0)
        ends = [env.step(0)[2:4] for _ in range(20)]
    assert ends == [(False, False)] * 19 + [(False, True)]


def test_killing_the_monster_terminates() -> None:
    with closing(make_env(BASIC)) as env:
        for seed in range(40):
            env.reset(seed=seed)
            _, reward, terminated, truncated, _ = env.step(1)  # shoot: the monster is sometimes right ahead
            for _ in range(8):
                if terminated:
                    break
                _, reward, terminated, truncated, _ = env.step(0)
            if terminated:
                assert not truncated
                assert reward > 90
                return
    pytest.fail("no seed had the monster right ahead")


def test_nothing_is_written_into_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(make_env(BASIC)) as env:
        env.reset(seed=0)
        env.step(0)
    assert list(tmp_path.iterdir()) == []


def test_worker_processes_give_the_same_rows() -> None:
    rows: list[list[Row]] = []
    for kind in ("sync", "process"):
        config = BASIC.model_copy(update={"vector": kind, "workers": 2})
        with closing(make_vector(config, seed=1, num_envs=2)) as vector:
            actions = vector.specs.action.sample(make_generator("actions"), 60).reshape(30, 2)
            rows.append([vector.reset(), *({**vector.step(action)} for action in actions)])
    for one, other in zip(*rows, strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A config of our own: one button, another map file."""
    text = (package_folder() / "basic.cfg").read_text().replace("MOVE_LEFT", "").replace("basic.wad", "mine.wad")
    (tmp_path / "mine.cfg").write_text(text.replace("episode_timeout = 300", "episode_timeout = 60"))
    shutil.copy(package_folder() / "basic.wad", tmp_path / "mine.wad")
    return tmp_path


@pytest.mark.parametrize("by", ["path", "folder", "id"])
def test_own_config_and_wad(own_folder: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {"path": str(own_folder / "mine.cfg"), "folder": "mine.cfg"}
    kwargs = {"config_path": paths[by]} if by in paths else {}
    if by != "path":
        monkeypatch.setenv(FOLDER_VARIABLE, str(own_folder))
    config = EnvConfig(id="Vizdoom/mine" if by == "id" else "VizdoomBasic-v1", kwargs=kwargs)
    with closing(make_env(config)) as env:
        assert env.action_space.n == 3  # nothing, right, attack
        assert max_episode_steps_of(env) == 60
        assert env.reset(seed=0)[0]["screen"].any()


def test_a_wad_replaces_that_of_the_config(own_folder: Path) -> None:
    config = EnvConfig(id="VizdoomBasic-v1", kwargs={"wad_path": str(own_folder / "mine.wad")})
    with closing(make_env(config)) as env:
        game: Any = env.unwrapped
        assert game.game.get_doom_scenario_path() == str(own_folder / "mine.wad")
        env.reset(seed=0)


def test_a_missing_config_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match=r"'basik\.cfg' is not here or in") as caught:
        make_env(EnvConfig(id="VizdoomBasic-v1", kwargs={"config_path": "basik.cfg"}))
    assert "basic.cfg" in caught.value.fix
    assert FOLDER_VARIABLE in caught.value.fix


def test_doom_needs_its_own_wad() -> None:
    with pytest.raises(ConfigError, match=r"doom\.wad") as caught:
        make_env(EnvConfig(id="VizdoomDoomE1M1-S1-v0"))
    assert "VizdoomFreedoom1E1M1-S1-v0" in caught.value.fix


def test_an_unknown_id_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="VizdoomBasik-v1") as caught:
        make_env(EnvConfig(id="VizdoomBasik-v1"))
    assert "VizdoomBasic-v1" in caught.value.fix


def test_freedoom_and_notifications_can_be_made() -> None:
    for env_id in ("VizdoomFreedoom1E1M1-S1-v0", "VizdoomBasicNotifications-v1", "VizdoomDefendCenter-MultiBinary-v1"):
        with closing(make_env(EnvConfig(id=env_id))) as env:
            observation, _ = env.reset(seed=0)
            assert env.observation_space.contains(observation)
            observation = env.step(env.action_space.sample())[0]
            assert np.asarray(observation["screen"]).any()
