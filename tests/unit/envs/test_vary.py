"""Variations: factors follow from the episode's seed, change the simulator, and survive an exact resume."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig, VaryConfig
from reverie.envs.make import make_env, make_vector
from reverie.envs.snapshot import probe_snapshot

dmc, box2d, mujoco = pytest.mark.needs("dmc"), pytest.mark.needs("box2d"), pytest.mark.needs("mujoco")
WIDE = {"train": [0.5, 2.0], "evaluate": [3.0, 3.0]}
ALL = {"colour": WIDE, "mass": WIDE, "friction": WIDE}
ENVS = [
    pytest.param("dmc/cartpole_swingup", marks=dmc),
    pytest.param("Hopper-v5", marks=mujoco),
    pytest.param("CarRacing-v3", marks=box2d),
]


def varied(env_id: str, vary: dict[str, Any] | None = None, **more: Any) -> EnvConfig:
    return EnvConfig.model_validate({"id": env_id, "vary": ALL if vary is None else vary, **more})


def properties(env: gym.Env[Any, Any]) -> dict[str, float]:
    """A colour, a mass and a friction, as the simulator has them now."""
    bare: Any = env.unwrapped
    if hasattr(bare, "car"):
        tile, hull = bare.road[0], bare.car.hull
        return {"colour": bare.grass_color[1], "mass": hull.mass, "friction": tile.road_friction}
    model = bare.suite_env.physics.model if hasattr(bare, "suite_env") else bare.model
    return {
        "colour": model.geom_rgba[:, :3].sum(),
        "mass": model.body_mass[1:].sum(),
        "friction": model.geom_friction[0, 0],
    }


def reset(env: gym.Env[Any, Any], seed: int) -> tuple[dict[str, float], dict[str, float]]:
    _, info = env.reset(seed=seed)
    return properties(env), {key: value for key, value in info.items() if key.startswith("vary_")}


@pytest.mark.parametrize("env_id", ENVS)
def test_factors_multiply_the_original_and_follow_from_the_seed(env_id: str) -> None:
    plain, env = make_env(EnvConfig(id=env_id)), make_env(varied(env_id))
    original, nothing = reset(plain, 3)
    first, factors = reset(env, 3)
    other, _ = reset(env, 4)
    again, same = reset(env, 3)
    assert (again, same, nothing) == (first, factors, {})
    assert all(first[name] != other[name] for name in ("mass", "friction"))
    for name in ("mass", "friction"):
        assert first[name] == pytest.approx(original[name] * factors[f"vary_{name}"], rel=1e-5)
        assert 0.5 <= factors[f"vary_{name}"] <= 2
    assert first["colour"] != original["colour"]
    assert env.step(env.action_space.sample() * 0)[4]["vary_mass"] == factors["vary_mass"]
    env.close()
    plain.close()


@mujoco
def test_a_heavier_body_moves_in_another_way() -> None:
    def positions(factor: float) -> list[float]:
        env = make_env(varied("Hopper-v5", {"mass": {"train": [factor, factor]}} if factor != 1 else {}))
        env.reset(seed=0)
        found = [env.step(np.ones(3, np.float32))[0].tolist() for _ in range(5)][-1]
        env.close()
        return list(found)

    assert positions(2.0) != positions(1.0)
    assert positions(2.0) == positions(2.0)


@box2d
def test_colours_of_the_image_change() -> None:
    config = varied("CarRacing-v3", {"colour": {"train": [0.3, 0.3]}})
    env, plain = make_env(config), make_env(EnvConfig(id="CarRacing-v3"))
    dark, usual = env.reset(seed=1)[0], plain.reset(seed=1)[0]
    assert dark[:60].mean() < 0.5 * usual[:60].mean()
    env.close()
    plain.close()


def test_evaluation_has_its_own_ranges() -> None:
    config = varied("Hopper-v5", {"mass": {"train": [0.9, 1.1], "evaluate": [0.5, 1.5]}, "friction": {"train": [1, 2]}})
    assert config.vary.ranges() == {"mass": (0.9, 1.1), "friction": (1.0, 2.0)}
    assert config.for_evaluation().vary.ranges() == {"mass": (0.5, 1.5)}
    assert config.for_evaluation().for_evaluation() == config.for_evaluation()
    assert VaryConfig().ranges() == {}


@pytest.mark.parametrize("env_id", [ENVS[0], ENVS[2]])
def test_a_varied_episode_is_restored_exactly(env_id: str) -> None:
    config = varied(env_id, max_episode_steps=60, log_keys=("vary_mass",))
    if env_id == "CarRacing-v3":
        config = config.model_copy(update={"max_episode_steps": 20})
    verdict = probe_snapshot(config)
    assert (verdict.kind, verdict.reason) == ("exact", "")


@dmc
def test_every_env_of_a_vector_draws_its_own_factors() -> None:
    config = varied("dmc/cartpole_swingup", {"mass": WIDE}, vector="sync", log_keys=("vary_mass",))
    vector = make_vector(config, seed=1, num_envs=2)
    first = vector.reset()["log/vary_mass"].copy()
    vector.close()
    assert first[0] != first[1]


def test_what_cannot_be_varied_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot vary mass"):
        make_env(varied("CartPole-v1", {"mass": WIDE}))


@mujoco
def test_wrong_ranges_are_refused() -> None:
    for wrong in ([0.0, 1.0], [2.0, 1.0]):
        with pytest.raises(ConfigError, match=r"env\.vary\.mass has the range"):
            make_env(varied("Hopper-v5", {"mass": {"train": wrong}}))
