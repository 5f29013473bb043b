"""stable-retro: one emulator per process, actions, memory as observation, missing roms."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector, num_workers, resolve_vector
from reverie.envs.render import render_fps

pytestmark = pytest.mark.needs("retro")
GAME = "Retro/Airstriker-Genesis-v0"
AIRSTRIKER = EnvConfig(id=GAME)


def test_every_env_gets_a_process_of_its_own() -> None:
    config = EnvConfig(id=GAME, num_envs=3, workers=1)
    assert num_workers(config, 3) == 3
    with closing(make_env(config)) as env:
        assert resolve_vector(config, env) == "process"
    with closing(make_vector(config.model_copy(update={"vector": "sync"}), seed=1)) as vector:
        rows = vector.reset()
        assert rows["obs"].shape == (3, 224, 320, 3)
        with closing(make_vector(EnvConfig(id=GAME, vector="process"), seed=1, stream="evaluate")) as second:
            assert second.reset()["obs"].any()
        assert vector.step(np.zeros(3, np.int64))["obs"].any()


def test_a_second_emulator_in_this_process_is_refused() -> None:
    with closing(make_env(AIRSTRIKER)), pytest.raises(ConfigError, match="cannot be started") as caught:
        make_env(AIRSTRIKER)
    assert "env.vector" in caught.value.fix


@pytest.mark.parametrize(
    ("actions", "kind", "classes"),
    [("discrete", "discrete", (126,)), ("multi_discrete", "multi_discrete", (3, 3, 14)), ("filtered", "binary", ())],
)
def test_actions(actions: str, kind: str, classes: tuple[int, ...]) -> None:
    specs = make_specs(EnvConfig(id=GAME, kwargs={"actions": actions}))
    assert specs.action.kind == kind or classes == ()
    assert specs.action.classes == classes or specs.action.shape == (12,)
    with closing(make_vector(EnvConfig(id=GAME, kwargs={"actions": actions}, vector="sync"), seed=1)) as vector:
        vector.reset()
        assert vector.step(specs.action.sample(make_generator("actions"), 1))["obs"].any()


def test_memory_as_observation() -> None:
    specs = make_specs(EnvConfig(id=GAME, obs="ram"))
    assert specs.observations["obs"].shape == (65536,)


def test_losing_all_lives_terminates() -> None:
    with closing(make_env(AIRSTRIKER)) as env:
        assert render_fps(env) == 60
        env.reset(seed=0)
        for _ in range(2000):
            _, _, terminated, truncated, info = env.step(0)
            assert not truncated
            if terminated:
                break
    assert terminated
    assert info["lives"] == 0


def test_a_missing_rom_says_how_to_import_it() -> None:
    with pytest.raises(ConfigError, match="rom of 'SonicTheHedgehog-Genesis-v0' is missing") as caught:
        make_env(EnvConfig(id="Retro/SonicTheHedgehog-Genesis-v0"))
    assert "python -m stable_retro.import" in caught.value.fix


def test_an_unknown_game_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no game 'Airstriker-Genesis'") as caught:
        make_env(EnvConfig(id="Retro/Airstriker-Genesis"))
    assert "Airstriker-Genesis-v0" in caught.value.fix


def test_a_folder_with_an_integration_of_your_own(tmp_path: Path) -> None:
    import stable_retro as retro

    of_package = Path(retro.data.get_file_path("Airstriker-Genesis-v0", "data.json")).parent
    shutil.copytree(of_package, tmp_path / "Mine-Genesis-v0")
    kwargs: dict[str, Any] = {"data_path": str(tmp_path)}
    with closing(make_env(EnvConfig(id="Retro/Mine-Genesis-v0", kwargs=kwargs))) as env:
        assert env.reset(seed=0)[0].any()
    retro.data.Integrations.clear_custom_paths()
