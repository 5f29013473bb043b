from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import make_generator
from reverie.core.specs import read_specs
from reverie.core.types import Row
from reverie.envs import snapshot, snapshot_cache, suites
from reverie.envs.accelerators import find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.make import make_env, make_vector
from reverie.envs.snapshot import cached_verdict, probe_snapshot
from reverie.envs.snapshot_cache import SnapshotVerdict, load_verdict, save_verdict, verdict_key
from reverie.envs.suite import Suite
from reverie.envs.suites.crafter import order_crafter_objects
from reverie.envs.vector import allocate_rows, row_layout
from reverie.envs.worker import decode_state, encode_state
from reverie.envs.wrappers.observations import FrameStack
from reverie.envs.wrappers.steps import RewardClip

BOX2D, MUJOCO, ATARI = (pytest.mark.needs(extra) for extra in ("box2d", "mujoco", "atari"))
EXACT = SnapshotVerdict("exact", "", "replay")
CARTPOLE = EnvConfig(id="CartPole-v1")
FICKLE = """
import os
import gymnasium as gym

class Fickle(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    steps = 0
    length = 2

    def reset(self, *, seed=None, options=None):
        self.steps, self.length = 0, {length}
        return 0, {{}}

    def step(self, action):
        self.steps += 1
        return 0, 0.0, self.steps >= self.length, False, {{}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and an empty memory; our test envs can be imported, here and in other processes."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warnings into the working folder
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(snapshot_cache, "_known", {})
    return tmp_path / "cache"


@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1",
        "Pendulum-v1",
        "Acrobot-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "FrozenLake-v1",
        "Taxi-v4",
        "CliffWalking-v1",
        "Blackjack-v1",
        "Reverie/Constant-v0",
        pytest.param("LunarLander-v3", marks=BOX2D),
        pytest.param("BipedalWalker-v3", marks=BOX2D),
        pytest.param("BipedalWalkerHardcore-v3", marks=BOX2D),
        pytest.param("HalfCheetah-v5", marks=MUJOCO),
        pytest.param("Hopper-v5", marks=MUJOCO),
        pytest.param("Ant-v5", marks=MUJOCO),
    ],
)
def test_replay_is_exact(env_id: str) -> None:
    assert probe_snapshot(EnvConfig(id=env_id)) == EXACT


def test_wrappers_and_logged_numbers_are_part_of_the_probe() -> None:
    settings = {"wrappers": [{"kind": "frame_stack"}], "log_keys": ["success"], "vector": "process"}
    assert probe_snapshot(EnvConfig.model_validate({"id": "broken_envs.Sound", **settings})) == EXACT


@pytest.mark.parametrize("name", ["Unseeded", "Remembering"])
def test_what_does_not_follow_from_the_seed_is_statistical(name: str) -> None:
    """The second differs only where a reset is the first in its process: after a snapshot with a reset due."""
    verdict = probe_snapshot(EnvConfig(id=f"broken_envs.{name}"))
    assert (verdict.kind, verdict.method) == ("statistical", "replay")
    assert verdict.reason == "restored in another process, row 1 after the snapshot differs in obs"


def test_an_episode_that_ends_early_elsewhere_is_statistical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    length = f"9 if os.getpid() == {os.getpid()} else 1"
    (tmp_path / "fickle.py").write_text(FICKLE.format(length=length))
    monkeypatch.syspath_prepend(tmp_path)
    verdict = probe_snapshot(EnvConfig(id="fickle.Fickle"))
    assert (verdict.kind, verdict.method) == ("statistical", "replay")
    assert "could not be restored" in verdict.reason
    assert "cannot be repeated" in verdict.reason


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EnvConfig(id="broken_envs.FailingStep"), "the wheel came off"),
        (EnvConfig(id="broken_envs.FailsInWorkers", kwargs={"parent": os.getpid()}), "no licence"),
    ],
)
def test_what_cannot_be_tried_is_unchecked_and_tried_again(config: EnvConfig, reason: str) -> None:
    verdict = cached_verdict(config)
    assert (verdict.kind, verdict.method) == ("statistical", "unchecked")
    assert reason in verdict.reason
    assert load_verdict(config) is None


def test_an_env_of_the_running_script_is_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(gym.Env[Any, Any]):
        pass

    monkeypatch.setitem(gym.registry, "Test/Local-v0", EnvSpec("Test/Local-v0", Local))
    verdict = probe_snapshot(EnvConfig(id="Test/Local-v0"))
    assert verdict.method == "unchecked"
    assert "is defined in the running script" in verdict.reason


def test_arguments_that_cannot_travel_are_no_obstacle() -> None:
    verdict = cached_verdict(EnvConfig(id="broken_envs.Sound", kwargs={"render_mode": object()}))
    assert verdict.method == "unchecked"
    assert "cannot be sent" in verdict.reason


def test_a_wrong_id_is_told_as_ever() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'CartPole-v1'"):
        cached_verdict(EnvConfig(id="Cartpole-v1"))


def test_native_vectors_are_judged_by_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_snapshot(EnvConfig(id="CartPole-v1", vector="native")) == SnapshotVerdict("exact", "", "arrays")
    other = EnvSpec("Test/Native-v0", "broken_envs:Sound", vector_entry_point="gymnasium.vector:SyncVectorEnv")
    monkeypatch.setitem(gym.registry, "Test/Native-v0", other)
    verdict = probe_snapshot(EnvConfig(id="Test/Native-v0", vector="native"))
    assert (verdict.kind, verdict.method) == ("statistical", "none")
    assert "'Test/Native-v0' cannot be saved" in verdict.reason


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[EnvConfig]:
    """The configs for which a probe was asked; each is found exact."""
    asked: list[EnvConfig] = []
    monkeypatch.setattr(snapshot, "probe_snapshot", lambda config: asked.append(config) or EXACT)
    return asked


def test_a_verdict_is_found_again_in_memory_and_on_disk(probed: list[EnvConfig]) -> None:
    assert [cached_verdict(CARTPOLE), cached_verdict(CARTPOLE)] == [EXACT, EXACT]
    assert len(probed) == 1
    snapshot_cache._known.clear()
    assert cached_verdict(CARTPOLE) == EXACT
    assert len(probed) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "perfect", "reason": "", "method": "replay"}', "\udcff"])
def test_a_broken_cache_is_ignored_and_mended(cache: Path, probed: list[EnvConfig], text: str) -> None:
    cached_verdict(CARTPOLE)
    (file,) = (cache / "snapshots").iterdir()
    file.write_bytes(text.encode(errors="surrogateescape"))
    for expected in (2, 2):
        snapshot_cache._known.clear()
        assert cached_verdict(CARTPOLE) == EXACT
        assert len(probed) == expected


def test_a_cache_that_cannot_be_written_only_costs_a_probe(cache: Path, probed: list[EnvConfig]) -> None:
    cache.write_text("a file where the folder should be")
    assert [cached_verdict(CARTPOLE), cached_verdict(CARTPOLE)] == [EXACT, EXACT]
    assert len(probed) == 1


def test_the_cache_lies_where_the_user_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: list[EnvConfig]
) -> None:
    monkeypatch.delenv("REVERIE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "general"))
    cached_verdict(CARTPOLE)
    assert len(list((tmp_path / "general" / "reverie" / "snapshots").glob("*.json"))) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    save_verdict(CARTPOLE, EXACT)
    assert len(list((tmp_path / "home" / ".cache" / "reverie" / "snapshots").glob("*.json"))) == 1


def test_a_verdict_holds_for_the_same_env_only(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[dict[str, Any]] = [
        {"id": "Acrobot-v1"},
        {"kwargs": {"sutton_barto_reward": True}},
        {"wrappers": [{"kind": "frame_stack"}]},
        {"wrappers": [{"kind": "frame_stack", "frames": 2}]},
        {"max_episode_steps": 9},
        {"log_keys": ["success"]},
        {"vector": "native"},
    ]
    others = {verdict_key(EnvConfig.model_validate({"id": "CartPole-v1", **change})) for change in changes}
    assert len(others - {verdict_key(CARTPOLE)}) == len(changes)
    assert verdict_key(EnvConfig(id="CartPole-v1", num_envs=8, vector="process")) == verdict_key(CARTPOLE)
    before = verdict_key(CARTPOLE)
    monkeypatch.setattr(snapshot_cache, "_version", lambda name: "9.9")
    assert verdict_key(CARTPOLE) != before


def test_a_changed_source_asks_for_a_new_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for length in (2, 3):
        (tmp_path / "growing.py").write_text(FICKLE.format(length=length))
        keys.append(verdict_key(EnvConfig(id="growing.Fickle")))
    assert keys[0] != keys[1]


def test_a_verdict_reads_well() -> None:
    assert f"{EXACT}" == "exact (replay)"
    assert f"{SnapshotVerdict('statistical', 'row 3 differs', 'replay')}" == "statistical (replay): row 3 differs"


@BOX2D
def test_a_repaired_walker_shows_the_episodes_of_a_new_one() -> None:
    config = EnvConfig(id="BipedalWalker-v3")
    used = make_env(config)
    for seed in range(6):  # a world that is kept shows at some of these seeds
        with_new_world = make_env(config).env  # the walker as Gymnasium made it, never reset
        assert _play(used, seed) == _play(with_new_world, seed)


def _play(env: gym.Env[Any, Any], seed: int, steps: int = 80) -> list[bytes]:
    rng = make_generator(seed)
    seen = [env.reset(seed=seed)[0].tobytes()]
    for _ in range(steps):
        observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        seen.append(observation.tobytes() + np.float64(reward).tobytes())
    return seen


@pytest.mark.needs("crafter")
def test_crafter_walks_through_its_objects_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from crafter.engine import World

    class Thing:
        removed = False

        def __init__(self, x: int) -> None:
            self.pos = (x, 0)

    monkeypatch.setattr(World, "reset", World.reset)  # put back afterwards
    order_crafter_objects()
    patched = World.reset
    order_crafter_objects()
    assert World.reset is patched
    world = World((40, 40), ["grass"], (40, 40))
    things = [Thing(x) for x in range(40)]
    for thing in things:
        world.add(thing)
    world.move(things[3], (3, 1))
    world.remove(things[0])
    ((_, members),) = world.chunks.items()
    assert list(members) == things[1:]
    assert (things[0] in members, len(members)) == (False, 39)


@pytest.mark.needs("crafter")
def test_crafter_is_mended_for_every_env_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from crafter.engine import World

    monkeypatch.setattr(World, "reset", lambda world, seed=None: None)
    make_env(EnvConfig(id="CartPole-v1")).close()
    assert World.reset.is_ordered


@pytest.mark.needs("crafter")
def test_ordered_crafter_envs_with_one_seed_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    import crafter
    from crafter.engine import World

    monkeypatch.setattr(World, "reset", World.reset)
    order_crafter_objects()
    envs = [crafter.Env(area=(24, 24), seed=3) for _ in range(2)]
    for env in envs:
        env.reset()
    for action in make_generator("crafter").integers(0, 17, 300).tolist():
        (one, reward, done, _), (other, other_reward, *_) = (env.step(action) for env in envs)
        assert (one.tobytes(), reward) == (other.tobytes(), other_reward)
        if done:
            break


class Drift(gym.Env[Any, Any]):
    """An endless env that could offer its state."""

    observation_space = gym.spaces.Box(-math.inf, math.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        self.place = self.place * np.float32(1.01) + np.float32(action)
        return self.place.copy(), float(self.place[0]), False, False, {}


class DriftState:
    def save(self, env: Any) -> Row:
        return {"place": env.place.copy()}

    def load(self, env: Any, arrays: Row) -> None:
        env.place = arrays["place"].copy()


def _drift() -> gym.Env[Any, Any]:
    stacked = FrameStack(gym.wrappers.TimeLimit(Drift(), 20), FrameStack.Config(frames=3))
    return RewardClip(stacked, RewardClip.Config())


def _start(env: gym.Env[Any, Any], every: float = math.inf) -> tuple[Episode, Row]:
    specs = read_specs(env)
    episode = Episode(env, specs, (), 5, "collect", 0, 1, find_accelerator(env, every))
    return episode, allocate_rows(row_layout(specs, ()), 1)


@pytest.fixture
def _drift_state(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite("drift", "a test", modules=(Drift.__module__,), accelerator=lambda env: DriftState())
    monkeypatch.setattr(suites, "SUITES", [suite])


@pytest.mark.usefixtures("_drift_state")
@pytest.mark.parametrize("moment", [3, 4, 5, 8, 9, 19, 20, 21, 27])
@pytest.mark.parametrize("own_every", [4, math.inf])
def test_a_long_episode_is_restored_from_its_last_state(moment: int, own_every: float) -> None:
    (plain, rows), (saving, saving_rows), (fresh, fresh_rows) = (
        _start(_drift()),
        _start(_drift(), every=4),
        _start(_drift(), own_every),
    )
    actions = as_action_list(read_specs(_drift()).action, make_generator("drift").integers(0, 3, 60))
    plain.reset(rows, 0)
    saving.reset(saving_rows, 0)
    for action in actions[:moment]:
        plain.step(action, rows, 0)
        saving.step(action, saving_rows, 0)
    state = decode_state(encode_state({"0": saving.state()}))["0"]
    steps = moment if moment <= 20 else moment - 21
    assert ("snapshot" in state) == (steps > 4 and steps != 20)
    assert len(state["actions"]) == (0 if steps in (0, 20) else (steps - 1) % 4 + 1)
    fresh.load_state(state, fresh_rows, 0)
    if not plain.pending:
        _check_same(rows, fresh_rows)
    for action in actions[moment:]:
        for episode, own_rows in ((plain, rows), (saving, saving_rows), (fresh, fresh_rows)):
            episode.step(action, own_rows, 0)
        _check_same(rows, saving_rows)
        _check_same(rows, fresh_rows)


def _check_same(one: Row, other: Row) -> None:
    assert {key: array.tobytes() for key, array in one.items()} == {
        key: array.tobytes() for key, array in other.items()
    }


@pytest.mark.usefixtures("_drift_state")
def test_a_wrapper_with_unknown_memory_leaves_replay() -> None:
    class Counting(gym.Wrapper[Any, Any, Any, Any]):
        pass

    class LateLimit(gym.wrappers.TimeLimit):
        pass

    assert find_accelerator(_drift()) is not None
    assert find_accelerator(Counting(_drift())) is None
    assert find_accelerator(LateLimit(Drift(), 3)) is None
    assert find_accelerator(make_env(CARTPOLE)) is None


@pytest.mark.usefixtures("_drift_state")
def test_a_state_that_does_not_fit_is_explained() -> None:
    episode, rows = _start(_drift(), every=2)
    for _ in range(6):
        episode.step(1, rows, 0)
    state = episode.state()
    other, other_rows = _start(make_env(CARTPOLE))
    with pytest.raises(RunError, match="cannot load one"):
        other.load_state(state, other_rows, 0)
    bare, bare_rows = _start(Drift())
    with pytest.raises(RunError, match="cannot be loaded: KeyError"):
        bare.load_state(state, bare_rows, 0)


LONG = [("HalfCheetah-v5", "replay+state"), ("Hopper-v5", "replay+state"), ("Ant-v5", "replay")]


@MUJOCO
@pytest.mark.parametrize(("env_id", "method"), LONG)
def test_mujoco_states_are_used_only_where_they_are_exact(env_id: str, method: Any) -> None:
    assert probe_snapshot(EnvConfig(id=env_id, max_episode_steps=5000)) == SnapshotVerdict("exact", "", method)


@ATARI
def test_atari_states_are_exact() -> None:
    stacked = {"id": "ale_py:ALE/Pong-v5", "wrappers": ["grayscale", "resize", "frame_stack"]}
    verdict = probe_snapshot(EnvConfig.model_validate(stacked))
    assert verdict == SnapshotVerdict("exact", "", "replay+state")
    random_skip = make_env(EnvConfig(id="ale_py:ALE/Pong-v5", kwargs={"frameskip": (2, 5)}))
    assert find_accelerator(random_skip) is None


@MUJOCO
def test_vectors_save_states_of_long_episodes_once_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EnvConfig(id="HalfCheetah-v5", max_episode_steps=5000, vector="sync", num_envs=2)
    monkeypatch.setattr(snapshot_cache, "LONG_EPISODE", 10)
    replaying = make_vector(config, seed=1)
    save_verdict(config, SnapshotVerdict("exact", "", "replay+state"))
    saving = make_vector(config, seed=1)
    actions = saving.specs.action.sample(make_generator("vector"), 2 * 40).reshape(40, 2, -1)
    for vector in (replaying, saving):
        vector.reset()
    for action in actions[:25]:
        _check_same(replaying.step(action), saving.step(action))
    states = [vector.state() for vector in (replaying, saving)]
    assert ["snapshot" in state["1"] for state in states] == [False, True]
    assert [len(state["1"]["actions"]) for state in states] == [25, 5]
    workers = make_vector(config.model_copy(update={"vector": "process"}), seed=1)
    workers.load_state(states[1])
    for action in actions[25:]:
        _check_same(replaying.step(action), workers.step(action))
    workers.close()
