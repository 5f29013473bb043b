"""Adapters for packages that cannot be installed here, against stand-ins with the interfaces that these document."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.envs.old_gym import convert_space, split_end
from reverie.envs.suites import find_suite
from reverie.envs.suites.dmlab import ACTIONS
from reverie.envs.suites.minerl import SIMPLE
from tests.unit.envs.suites.stand_ins import (
    STEPS,
    Lab,
    MineDojoGame,
    MineRLGame,
    OldBox,
    OldDict,
    OldDiscrete,
    OldMultiBinary,
    OldText,
    module,
    old_gym,
)

IDS = ["dmlab/explore_goal_locations_small", "minerl/MineRLBasaltFindCave-v0", "minedojo/harvest_milk"]


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepmind_lab", module("deepmind_lab", Lab=Lab))
    monkeypatch.setitem(sys.modules, "gym", old_gym(MineRLGame))
    monkeypatch.setitem(sys.modules, "minerl", module("minerl"))
    monkeypatch.setitem(sys.modules, "minedojo", module("minedojo", make=MineDojoGame))


def made(env_id: str, **kwargs: Any) -> closing[Any]:
    return closing(make_env(EnvConfig(id=env_id, kwargs=kwargs)))


@pytest.mark.parametrize("env_id", IDS)
def test_a_missing_package_is_answered_with_its_set_up(env_id: str) -> None:
    suite = find_suite(env_id)
    assert suite is not None
    if suite.is_installed:
        pytest.skip("the package is installed here")
    with pytest.raises(ConfigError) as caught:
        make_env(EnvConfig(id=env_id))
    assert caught.value.fix == suite.setup
    script = Path(__file__).parents[4] / suite.setup.split()[1]
    assert script.read_text().startswith("#!/bin/sh")


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("env_id", IDS)
def test_episodes_as_rows(env_id: str) -> None:
    with closing(make_vector(EnvConfig(id=env_id, vector="sync"), seed=1)) as vector:
        rows = [vector.reset(), *(vector.step(np.array([1])) for _ in range(STEPS + 1))]
    assert [bool(row["is_first"][0]) for row in rows] == [True, *[False] * STEPS, True]
    assert rows[STEPS]["terminated"][0] == (env_id == IDS[1])
    assert rows[STEPS]["truncated"][0] == (env_id != IDS[1])
    assert all(row["reward"][0] > 0 for row in rows[1 : STEPS + 1])


@pytest.mark.usefixtures("stand_ins")
def test_a_level_of_dmlab() -> None:
    with made(IDS[0], width=32, height=24) as env:
        lab = env.unwrapped._lab
        assert (lab.level, lab.names) == ("contributed/dmlab30/explore_goal_locations_small", ["RGB_INTERLEAVED"])
        first, _ = env.reset(seed=3)
        env.reset(seed=3)
        assert first.shape == (24, 32, 3)
        assert lab.seeds[0] == lab.seeds[1]
        steps = [env.step(action) for action in (0, 4, 8, 0, 0)]
        assert lab.actions[:3] == [(list(ACTIONS[action]), 4) for action in (0, 4, 8)]
        assert steps[-1][0].max() == 30 + STEPS - 1  # the last image that there was
        assert env.render().shape == (24, 32, 3)
    with made("dmlab/demos/map_generation/seek_goal") as env:
        assert env.unwrapped._lab.level == "demos/map_generation/seek_goal"


@pytest.mark.usefixtures("stand_ins")
def test_language_levels_of_dmlab_have_an_instruction() -> None:
    specs = make_specs(EnvConfig(id="dmlab/language_execute_random_task"))
    assert set(specs.observations) == {"obs/image", "obs/instruction"}
    with made("dmlab/language_execute_random_task") as env:
        env.reset(seed=0)
        assert env.unwrapped._last["instruction"] == "go to red"


@pytest.mark.usefixtures("stand_ins")
def test_simple_actions_of_minerl_press_keys_and_turn_the_camera() -> None:
    with made(IDS[1], size=16) as env:
        game = env.unwrapped._game
        assert game.task == "MineRLBasaltFindCave-v0"
        assert env.reset(seed=8)[0].shape == (16, 16, 3)
        assert game.seeds == [8]
        jump, turn = SIMPLE.index({"forward": 1, "jump": 1}), SIMPLE.index({"camera": (15, 0)})
        env.step(jump)
        env.step(turn)
        assert (game.actions[0]["forward"], game.actions[0]["jump"], game.actions[0]["ESC"]) == (1, 1, 0)
        assert game.actions[1]["camera"].tolist() == [15, 0]
        assert game.actions[1]["forward"] == 0
        assert env.render().shape == (360, 640, 3)
    assert game.is_closed


@pytest.mark.usefixtures("stand_ins")
def test_full_actions_of_minerl_are_a_dict_space() -> None:
    config = EnvConfig(id=IDS[1], kwargs={"actions": "full"}, vector="sync")
    assert make_specs(config).action.kind == "mixed"
    with closing(make_vector(config, seed=1)) as vector:
        vector.reset()
        assert vector.step(vector.specs.action.zeros(1))["reward"][0] == 1
    with pytest.raises(ConfigError, match="no actions 'fool'"):
        make_env(EnvConfig(id=IDS[1], kwargs={"actions": "fool"}))


@pytest.mark.usefixtures("stand_ins")
def test_minedojo_shows_channels_last_and_parts_of_life() -> None:
    with made(IDS[2], size=8, world_seed="x") as env:
        game = env.unwrapped._game
        assert (game.task, game.image_size, game.settings) == ("harvest_milk", (8, 8), {"world_seed": "x"})
        observation, _ = env.reset(seed=0)
        assert observation["image"].shape == (8, 8, 3)
        assert observation["image"][0, 0].tolist() == [200, 0, 0]
        np.testing.assert_allclose(observation["stats"], [0.5, 1, 1])
        for action in (0, 5, 10, 13):
            env.step(action)
        assert game.actions == [
            [0, 0, 0, 12, 12, 0, 0, 0], [1, 0, 1, 12, 12, 0, 0, 0],
            [0, 0, 0, 12, 13, 0, 0, 0], [1, 0, 0, 12, 12, 3, 0, 0],
        ]  # fmt: skip


@pytest.mark.usefixtures("stand_ins")
def test_spaces_of_the_old_gym() -> None:
    box = OldBox(low=np.zeros(3), high=np.ones(3), dtype=np.dtype(np.float32))
    nested = OldDict(spaces={"a": OldDiscrete(n=4), "b": OldDict(spaces={"c": box}), "d": OldMultiBinary(n=2)})
    inner = spaces.Dict({"c": spaces.Box(0, 1, (3,), np.float32)})
    assert convert_space(nested) == spaces.Dict({"a": spaces.Discrete(4), "b": inner, "d": spaces.MultiBinary(2)})
    with pytest.raises(ConfigError, match="OldText of the old gym"):
        convert_space(OldText())


def test_the_one_flag_of_the_old_gym() -> None:
    assert split_end(False, {}) == (False, False)
    assert split_end(True, {}) == (True, False)
    assert split_end(True, {"TimeLimit.truncated": True}) == (False, True)
