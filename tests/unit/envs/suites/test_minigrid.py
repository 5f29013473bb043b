"""MiniGrid and BabyAI: forms of the grid, missions as word tokens, limits and snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.config.compose import compose
from reverie.core.errors import ConfigError
from reverie.core.specs import flatten_observation
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.envs.snapshot import probe_snapshot
from reverie.envs.suites.minigrid import CELL_CLASSES, to_planes
from reverie.envs.wrappers.text import UNKNOWN

pytestmark = pytest.mark.needs("minigrid")
DOOR_KEY = "MiniGrid-DoorKey-5x5-v0"


def with_form(form: str, env_id: str = DOOR_KEY) -> EnvConfig:
    return EnvConfig(id=env_id, obs=form)


@pytest.mark.parametrize(
    ("form", "kind", "shape"),
    [("image", "image", (7, 7, 21)), ("symbolic", "discrete", (7, 7, 3)), ("full", "discrete", (5, 5, 3))],
)
def test_forms_of_the_grid(form: str, kind: str, shape: tuple[int, ...]) -> None:
    specs = make_specs(with_form(form))
    grid = specs.observations["obs/image"]
    assert (grid.kind, grid.shape) == (kind, shape)
    assert specs.observations["obs/mission"].shape == (13,)  # use the key to open the door and then get to the goal
    assert (specs.action.classes, specs.max_episode_steps) == ((7,), 250)
    env = make_env(with_form(form))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


def test_rows_of_the_grid_come_first_and_the_agent_is_drawn_into_the_full_grid() -> None:
    env = make_env(with_form("full"))
    grid: Any = env.unwrapped
    image = env.reset(seed=3)[0]["image"]
    column, row = grid.agent_pos
    assert image[row, column].tolist() == [CELL_CLASSES[0] - 1, 0, grid.agent_dir]
    assert (image[0, :, 0] == 2).all()  # the upper wall
    assert (image[..., 0] == 4).sum() == 1  # one door


def test_planes_are_one_hot() -> None:
    planes = to_planes(np.array([[[5, 4, 0], [4, 0, 2]]]))
    assert planes.shape == (1, 2, 21)
    assert np.flatnonzero(planes[0, 0]).tolist() == [5, 11 + 4, 17 + 0]
    assert np.flatnonzero(planes[0, 1]).tolist() == [4, 11 + 0, 17 + 2]
    assert set(planes.ravel().tolist()) == {0, 255}


def test_views_agree_on_what_the_agent_sees() -> None:
    indices, planes = make_env(with_form("symbolic")), make_env(with_form("image"))
    seen = [env.reset(seed=5)[0] for env in (indices, planes)]
    np.testing.assert_array_equal(to_planes(seen[0]["image"]), seen[1]["image"])


@pytest.mark.parametrize(
    "env_id",
    [
        "MiniGrid-Empty-8x8-v0", "MiniGrid-Fetch-5x5-N2-v0", "MiniGrid-LockedRoom-v0", "MiniGrid-PutNear-6x6-N2-v0",
        "MiniGrid-Playground-v0", "BabyAI-GoToRedBall-v0", "BabyAI-MiniBossLevel-v0", "BabyAI-SynthLoc-v0",
    ],
)  # fmt: skip
def test_every_word_of_a_mission_is_a_token(env_id: str, capfd: pytest.CaptureFixture[str]) -> None:
    env = make_env(EnvConfig(id=env_id))
    for seed in range(8):
        observation, info = env.reset(seed=seed)
        mission = env.unwrapped.mission.split()  # type: ignore[attr-defined]
        tokens = flatten_observation(env.observation_space, observation)["obs/mission"]
        assert (tokens > UNKNOWN).sum() == len(mission)
        assert (tokens != UNKNOWN).all()
        assert info["success"] == 0
    assert capfd.readouterr().out == ""  # BabyAI prints the missions that it rejects


def test_success_is_logged_and_the_limit_truncates() -> None:
    vector = make_vector(EnvConfig(id="MiniGrid-Empty-5x5-v0", vector="sync", log_keys=("success",)), seed=0)
    vector.reset()
    rows = [vector.step(np.array([action])) for action in (2, 2, 1, 2, 2)]
    assert rows[-1]["terminated"][0]
    assert rows[-1]["reward"][0] > 0.9
    assert [float(row["log/success"][0]) for row in rows] == [0, 0, 0, 0, 1]
    vector.step(np.array([0]))
    flags = [vector.step(np.array([0]))["truncated"][0] for _ in range(100)]
    assert np.flatnonzero(flags).tolist() == [99]
    vector.close()


def test_babyai_declares_no_limit_because_it_changes_with_the_mission() -> None:
    assert make_specs(EnvConfig(id="BabyAI-GoToRedBall-v0")).max_episode_steps is None
    fixed = EnvConfig(id="BabyAI-GoToRedBall-v0", kwargs={"max_steps": 40})
    assert make_specs(fixed).max_episode_steps == 40


def test_frames_and_pixels() -> None:
    env = make_env(EnvConfig(id=DOOR_KEY), "rgb_array")
    env.reset(seed=0)
    frame: Any = env.render()
    assert frame.ndim == 3
    assert frame.std() > 10
    pixels = EnvConfig.model_validate({"id": DOOR_KEY, "wrappers": [{"kind": "render_pixels"}]})
    assert make_specs(pixels).observations["obs"].shape == (64, 64, 3)


def test_the_wrapper_refuses_other_envs() -> None:
    config = EnvConfig.model_validate({"id": "CartPole-v1", "wrappers": [{"kind": "minigrid"}]})
    with pytest.raises(ConfigError, match="needs an env of MiniGrid"):
        make_env(config)


def test_envs_without_their_pictures_are_explained() -> None:
    with pytest.raises(ConfigError, match="lacks the picture") as caught:
        make_env(EnvConfig(id="MiniGrid-WFC-MazeSimple-v0"))
    assert "patterns" in caught.value.fix


@pytest.mark.no_cover
def test_snapshots_are_exact() -> None:
    verdict = probe_snapshot(with_form("symbolic", "MiniGrid-Dynamic-Obstacles-5x5-v0"))
    assert (verdict.kind, verdict.method) == ("exact", "replay")


def test_worker_processes_register_each_env_once(capfd: pytest.CaptureFixture[str]) -> None:
    """MiniGrid registers all its ids when it is imported, which Gymnasium reports for ids that are known already."""
    vector = make_vector(EnvConfig(id=DOOR_KEY, vector="process", workers=1), seed=1, num_envs=1)
    vector.reset()
    vector.close()
    assert "Overriding" not in capfd.readouterr().err


def test_dreamers_preset_for_grid_worlds_reads_images() -> None:
    config = compose(f"{DOOR_KEY}:dreamer", ["minigrid"]).tree["env"]
    specs = make_specs(EnvConfig(id=DOOR_KEY, obs=config["obs"], wrappers=config.get("wrappers", ())))
    assert specs.observations["obs"].shape == (64, 64, 3)
