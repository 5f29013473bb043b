"""EnvPool as a backend: what rows mean, resumes, and what is refused. A stand-in plays a missing package."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import make_generator
from reverie.core.types import Array, Row
from reverie.envs import envpool_vector
from reverie.envs.config import EnvConfig
from reverie.envs.envpool_vector import EnvPoolVector, find_envpool_task
from reverie.envs.make import make_vector
from reverie.envs.snapshot import probe_snapshot

CARTPOLE = EnvConfig(id="CartPole-v1", num_envs=4, vector="envpool", max_episode_steps=9)


class StandIn:
    """EnvPool's documented interface over Gymnasium's envs: it resets in a step of its own, and an episode that ends in
    the last step before the limit is truncated, never terminated."""

    def __init__(self, name: str, num_envs: int, num_threads: int, seed: list[int], max_episode_steps: int) -> None:
        self.envs = [gym.make(name).unwrapped for _ in range(num_envs)]
        self.observation_space: Any = self.envs[0].observation_space
        self.action_space: Any = self.envs[0].action_space
        self.limit, self.seeds = max_episode_steps, list(seed)
        self.elapsed, self.over = np.zeros(num_envs, int), np.zeros(num_envs, bool)

    def reset(self, ids: Array | None = None) -> tuple[Array, dict[str, Any]]:
        indices = range(len(self.envs)) if ids is None else ids
        return np.stack([self._begin(int(index)) for index in indices]), {}

    def _begin(self, index: int) -> Array:
        self.elapsed[index], self.over[index] = 0, False
        self.seeds[index] += 1000
        return np.asarray(self.envs[index].reset(seed=self.seeds[index])[0])

    def step(self, action: Array, ids: Array | None = None) -> tuple[Any, ...]:
        indices = range(len(self.envs)) if ids is None else ids
        columns = zip(*(self._step(int(i), a) for i, a in zip(indices, action, strict=True)), strict=True)
        observation, reward, done, at_limit = (np.stack(column) for column in columns)
        return observation, reward.astype(np.float32), done & ~at_limit, done & at_limit, {}

    def _step(self, index: int, action: Any) -> tuple[Any, float, bool, bool]:
        if self.over[index]:
            return self._begin(index), 0.0, False, False
        observation, reward, terminated, _, _ = self.envs[index].step(action)
        self.elapsed[index] += 1
        at_limit = bool(self.elapsed[index] >= self.limit)
        self.over[index] = terminated or at_limit
        return observation, float(reward), bool(self.over[index]), at_limit


@pytest.fixture(params=["stand-in", pytest.param("package", marks=pytest.mark.needs("envpool"))])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "stand-in":
        module = SimpleNamespace(make_gymnasium=StandIn)
        monkeypatch.setattr(envpool_vector, "import_envpool", lambda: module)
    return str(request.param)


def play(vector: Any, steps: int, purpose: str = "first") -> tuple[list[Array], list[Row]]:
    rng = make_generator(purpose)
    actions = [vector.specs.action.sample(rng, vector.num_envs) for _ in range(steps)]
    return actions, [vector.step(action) for action in actions]


def physics(observation: Array, action: Any) -> tuple[Array, bool]:
    """What Gymnasium's CartPole does from an observation."""
    env: Any = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = tuple(observation.astype(float))
    after, _, terminated, _, _ = env.step(int(action))
    return after, terminated


def test_rows_of_an_episode_are_its_own_from_the_first_to_the_last(backend: str) -> None:
    vector = EnvPoolVector(CARTPOLE, 0, "collect", 4)
    now = vector.reset()
    assert now["is_first"].all()
    length, lengths = np.zeros(4, int), []
    for action, after in zip(*play(vector, 40), strict=True):
        over = now["terminated"] | now["truncated"]
        assert (after["is_first"] == over).all()
        assert (after["reward"] == ~over).all()
        length = np.where(after["is_first"], 0, length + 1)
        assert (after["truncated"] == (length == 9)).all()
        for index in np.flatnonzero(~over):
            expected, terminated = physics(now["obs"][index], action[index])
            assert after["obs"][index] == pytest.approx(expected, abs=1e-5)
            assert after["terminated"][index] == terminated
        lengths += length[after["terminated"] | after["truncated"]].tolist()
        now = after
    assert max(lengths) == 9
    assert len(lengths) >= 12


def test_an_end_in_the_last_step_before_the_limit_is_not_only_a_truncation(backend: str) -> None:
    """A pole that falls at step 9 of 9 has no future; EnvPool alone would say that it was cut off."""
    ends = []
    for limit in (8, 9, 10):
        vector = EnvPoolVector(CARTPOLE.model_copy(update={"max_episode_steps": limit}), 0, "collect", 4)
        vector.reset()
        for step in range(1, limit + 1):
            row = vector.step(np.ones(4, np.int64))
            ends += [bool(row["truncated"][index]) for index in np.flatnonzero(row["terminated"]) if step == limit]
    assert ends
    assert all(ends)


def test_seeds_decide_the_rows(backend: str) -> None:
    def rows(seed: int, stream: str) -> list[Row]:
        vector = EnvPoolVector(CARTPOLE, seed, stream, 4)
        return [vector.reset(), *play(vector, 30)[1]]

    one, same, seed, stream = rows(0, "collect"), rows(0, "collect"), rows(1, "collect"), rows(0, "evaluate")
    for left, right in zip(one, same, strict=True):
        assert all(left[key].tobytes() == right[key].tobytes() for key in left)
    assert len({row.tobytes() for other in (one, seed, stream) for row in other[0]["obs"]}) == 12


def test_rows_stay_as_they_were_returned(backend: str) -> None:
    vector = EnvPoolVector(CARTPOLE, 0, "collect", 4)
    first = vector.reset()
    kept = {key: values.copy() for key, values in first.items()}
    play(vector, 20)
    assert all(first[key].tobytes() == kept[key].tobytes() for key in kept)


def test_a_resume_truncates_what_was_not_over_and_goes_on_with_new_episodes(backend: str) -> None:
    vector = EnvPoolVector(CARTPOLE, 0, "collect", 4)
    began = vector.reset()
    now = began
    while not now["terminated"][0] or now["terminated"].all():
        now = vector.step(np.array([1, *(now["obs"][1:, 2] > 0)], np.int64))
    state = vector.state()
    restored = EnvPoolVector(CARTPOLE, 0, "collect", 4)
    restored.load_state(state)
    running = ~(now["terminated"] | now["truncated"])
    assert restored.check_restored(now) == running.sum()
    (one, two, three) = play(restored, 3)[1]
    assert (one["truncated"] == running).all()
    assert one["obs"][running].tobytes() == now["obs"][running].tobytes()
    assert not one["reward"].any()
    assert (one["is_first"] == ~running).all()
    assert (two["is_first"] == running).all()
    assert not three["is_first"].any()
    assert not set(map(bytes, two["obs"][running])) & set(map(bytes, began["obs"]))


def test_a_vector_saved_before_its_first_reset_loses_nothing(backend: str) -> None:
    restored = EnvPoolVector(CARTPOLE, 0, "collect", 4)
    restored.load_state(EnvPoolVector(CARTPOLE, 0, "collect", 4).state())
    assert restored.check_restored(restored.reset()) == 4
    with pytest.raises(RunError, match=r"env\.num_envs=4"):
        EnvPoolVector(CARTPOLE, 0, "collect", 2).load_state(restored.state())


def test_an_env_that_rests_keeps_its_next_episode(backend: str) -> None:
    vector = EnvPoolVector(CARTPOLE, 0, "collect", 2)
    row = vector.reset()
    while not row["terminated"][0]:
        row = vector.step(np.array([1, row["obs"][1, 2] > 0], np.int64))
    rest = vector.step(np.zeros(2, np.int64), np.array([False, True]))
    assert not rest["obs"][0].any()
    assert rest["is_first"][0]
    assert vector.step(np.zeros(2, np.int64))["is_first"][0]


def test_rewards_are_clipped_for_all_envs_at_once(backend: str) -> None:
    wrappers = [{"kind": "reward_clip", "low": 0, "high": 0.25}]
    config = EnvConfig.model_validate({**CARTPOLE.model_dump(), "wrappers": wrappers})
    vector = EnvPoolVector(config, 0, "collect", 4)
    vector.reset()
    assert vector.step(np.zeros(4, np.int64))["reward"].tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "Blackjack-v1"}, "no env that is the same task"),
        ({"id": "my_module.MyEnv"}, "no env that is the same task"),
        ({"id": "CartPole-v1", "log_keys": ("success",)}, r"env\.log_keys"),
        ({"id": "CartPole-v1", "wrappers": ("one_hot",)}, "wrapper one_hot"),
        ({"id": "CartPole-v1", "wrappers": ("reward_clip", "reward_clip")}, "twice"),
        ({"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}}, r"env\.kwargs\.sutton_barto_reward"),
        ({"id": "CartPole-v1", "vary": {"mass": {"train": (0.5, 2.0)}}}, r"env\.vary"),
        ({"id": "CartPole-v1", "obs": "pixels"}, "wrapper render_pixels"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_way_out(settings: dict[str, object], message: str) -> None:
    config = EnvConfig.model_validate({**settings, "vector": "envpool"})
    with pytest.raises(ConfigError, match=message):
        make_vector(config, 0)


def test_another_task_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(make_gymnasium=lambda name, **arguments: StandIn("Acrobot-v1", **arguments))
    monkeypatch.setattr(envpool_vector, "import_envpool", lambda: module)
    with pytest.raises(ConfigError, match=r"classes of actions, form of obs") as caught:
        make_vector(CARTPOLE, 0)
    assert "env.vector=sync" in caught.value.fix


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    with pytest.raises(ConfigError, match="needs EnvPool") as caught:
        make_vector(CARTPOLE, 0)
    assert "[envpool]" in caught.value.fix


def test_what_the_package_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **arguments: Any) -> None:
        raise ImportError("cannot load") from ImportError("libQt5Gui.so.5: cannot open shared object file")

    monkeypatch.setattr(envpool_vector, "import_envpool", lambda: SimpleNamespace(make_gymnasium=fail))
    with pytest.raises(ConfigError, match="cannot load") as caught:
        make_vector(CARTPOLE, 0)
    assert "libqt5gui5" in caught.value.fix


def test_snapshots_are_declared_statistical() -> None:
    verdict = probe_snapshot(CARTPOLE)
    assert (verdict.kind, verdict.method) == ("statistical", "none")


@pytest.mark.needs("atari")
def test_the_presets_preprocessing_is_translated() -> None:
    config = make_config("atari/space_invaders:ppo", ["env.vector=envpool"]).env
    task = find_envpool_task(config)
    assert task.id == "SpaceInvaders-v5"
    assert not task.wrappers
    expected = {"stack_num": 4, "frame_skip": 4, "noop_max": 30, "gray_scale": True, "img_height": 84}
    expected |= {"repeat_action_probability": 0.0, "full_action_space": False, "episodic_life": False}
    assert expected.items() <= task.kwargs.items()


@pytest.mark.needs("atari")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"obs": "ram"}, "only images"),
        ({"obs": "gray", "wrappers": ()}, "must come first"),
        ({"kwargs": {"frameskip": [2, 5]}}, "fixed frame skip"),
        ({"wrappers": ({"kind": "atari", "max_frames": False},)}, "maximum of two frames"),
        ({"wrappers": ({"kind": "atari", "noops": 0},)}, "at least one frame"),
        ({"kwargs": {"sound_obs": True}}, "sound_obs"),
    ],
)
def test_other_preprocessing_is_refused(settings: dict[str, Any], message: str) -> None:
    given = {"id": "ALE/Pong-v5", "vector": "envpool", "wrappers": ({"kind": "atari"},), **settings}
    with pytest.raises(ConfigError, match=message):
        find_envpool_task(EnvConfig.model_validate(given))


SAME = [
    *("CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"),
    *("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"),
    *(pytest.param(name, marks=pytest.mark.needs("box2d")) for name in ("LunarLander-v3", "BipedalWalker-v3")),
    *(pytest.param(f"{name}-v5", marks=pytest.mark.needs("mujoco")) for name in ("HalfCheetah", "Humanoid", "Reacher")),
    *(pytest.param(f"dmc/{name}", marks=pytest.mark.needs("dmc")) for name in ("walker_walk", "point_mass_easy")),
]


@pytest.mark.needs("envpool")
@pytest.mark.parametrize("env_id", SAME)
def test_the_package_has_the_same_spaces_and_first_rows_alike(env_id: str) -> None:
    config = EnvConfig(id=env_id, num_envs=8, max_episode_steps=50)
    rows = {kind: _average(config.model_copy(update={"vector": kind})) for kind in ("sync", "envpool")}
    for key, (mean, spread) in rows["sync"].items():
        other, _ = rows["envpool"][key]
        assert np.abs(mean - other).max() <= 0.1 + 6 * spread.max() / np.sqrt(400), key


def _average(config: EnvConfig) -> dict[str, tuple[Array, Array]]:
    vector = make_vector(config, 3)
    rows = [vector.reset(), *play(vector, 49)[1]]
    vector.close()
    arrays = {
        key: np.concatenate([row[key].astype(float) for row in rows]) for key in ("obs", "reward") if key in rows[0]
    }
    return {key: (values.mean(0), values.std(0)) for key, values in arrays.items()}


@pytest.mark.needs("envpool")
@pytest.mark.needs("atari")
@pytest.mark.parametrize(("game", "obs"), list(itertools.product(("Pong", "Breakout"), ("gray", "rgb"))))
def test_the_packages_atari_shows_the_same_frames(game: str, obs: str) -> None:
    """Without chance both play the same game. EnvPool's image is the exact mean of the area of each pixel."""

    def make(vector: str, height: int, width: int) -> Any:
        wrappers = [{"kind": "atari", "noops": 1, "height": height, "width": width}, {"kind": "frame_stack"}]
        kwargs = {"repeat_action_probability": 0.0}
        settings = {"id": f"ALE/{game}-v5", "obs": obs, "vector": vector, "wrappers": wrappers, "kwargs": kwargs}
        return make_vector(EnvConfig.model_validate(settings), 0)

    sync, pool = make("sync", 210, 160), make("envpool", 84, 84)
    rows, columns = area_mean(210, 84), area_mean(160, 84)
    full, small = sync.reset(), pool.reset()
    for action in np.random.default_rng(0).integers(0, sync.specs.action.classes[0], (60, 1)):
        images = np.moveaxis(full["obs"][0].astype(float), 2, 0)
        assert np.abs(np.moveaxis(rows @ images @ columns.T, 0, 2) - small["obs"][0]).max() <= 1
        assert full["reward"] == small["reward"]
        full, small = sync.step(action), pool.step(action)


def area_mean(size: int, wanted: int) -> Array:
    """The matrix that averages areas, (wanted, size)."""
    edges, pixels = np.arange(wanted + 1) * size / wanted, np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(overlap, 0) * wanted / size
