"""Suites: what the declarations say, and that a new one needs nothing but its declaration."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reverie.config.catalogue import list_envs
from reverie.core.errors import ConfigError
from reverie.core.specs import read_specs
from reverie.core.types import Array, Row
from reverie.envs import snapshot_cache, suites
from reverie.envs.accelerators import find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode
from reverie.envs.keyboard import choose_keys
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.envs.pictures import read_names
from reverie.envs.repairs import BeforeReset
from reverie.envs.snapshot_cache import verdict_key
from reverie.envs.suite import KeyMap, Registration, Suite
from reverie.envs.suite_table import renew, suite_table
from reverie.envs.suites import SUITES, find_suite, register_suites
from reverie.envs.vector import allocate_rows, row_layout

NOT_SHOWN = ("bandits", "gymnax", "playground")
"""Suites without frames, and those without a picture yet."""


class Walk(gym.Env[Array, int]):
    """A random walk whose repaired part is a counter that survives resets."""

    def __init__(self, width: int = 3, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.position = np.zeros(width, np.float32)
        self.leak = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.np_random.standard_normal(self.position.shape).astype(np.float32) + self.leak
        return self.position.copy(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.leak += 1
        self.position = self.position * np.float32(1.1) + np.float32(action)
        return self.position.copy(), 1.0, False, False, {}


class WalkState:
    def save(self, env: Walk) -> Row:
        return {"position": env.position.copy()}

    def load(self, env: Walk, arrays: Row) -> None:
        env.position = arrays["position"].copy()


def _register(env_id: str) -> None:
    width = int(env_id.removeprefix("Toy/Walk"))
    gym.register(env_id, Walk, max_episode_steps=30, kwargs={"width": width})


def _stop_leak(walk: Walk) -> None:
    walk.leak = 0


TOY = Suite(
    name="toy",
    title="toy envs",
    prefixes=("Toy/",),
    modules=(__name__,),
    envs={"Toy/Walk": Registration(f"{__name__}:Walk", 50, {"width": 2})},
    register=_register,
    packages={"numpy": "numpy"},
    repair=lambda env: BeforeReset(env, _stop_leak),
    accelerator=lambda env: WalkState(),
    keys={"Toy/": KeyMap({"a": 0, "b": 1})},
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Walk.__module__])
    SUITES.append(TOY)
    yield TOY
    SUITES.remove(TOY)
    for env_id in [env_id for env_id in gym.registry if env_id.startswith("Toy/")]:
        del gym.registry[env_id]


@pytest.mark.usefixtures("toy")
def test_a_new_suite_needs_only_its_declaration() -> None:
    assert {"Toy/Walk"} == {entry.name for entry in list_envs("toy/walk")}
    (entry,) = list_envs("toy/walk")
    assert (entry.suite, entry.max_episode_steps) == ("toy", 50)
    specs = make_specs(EnvConfig(id="Toy/Walk"))
    assert (specs.observations["obs"].shape, specs.max_episode_steps) == ((2,), 50)
    on_demand = make_specs(EnvConfig(id="Toy/Walk7"))
    assert (on_demand.observations["obs"].shape, on_demand.max_episode_steps) == ((7,), 30)
    env = make_env(EnvConfig(id="Toy/Walk"))
    assert choose_keys(env, "Toy/Walk").actions == {"a": 0, "b": 1}
    vector = make_vector(EnvConfig(id="Toy/Walk", vector="sync"), seed=1, num_envs=2)
    vector.reset()
    assert vector.step(np.array([0, 1]))["reward"].tolist() == [1, 1]


@pytest.mark.usefixtures("toy")
def test_a_new_suites_repair_is_applied() -> None:
    env = make_env(EnvConfig(id="Toy/Walk"))
    first, _ = env.reset(seed=3)
    for _ in range(5):
        env.step(1)
    np.testing.assert_array_equal(first, env.reset(seed=3)[0])


@pytest.mark.usefixtures("toy")
def test_a_new_suites_simulator_state_restores_an_episode() -> None:
    def start(every: float) -> tuple[Episode, Row]:
        env = gym.wrappers.TimeLimit(Walk(), 50)
        specs = read_specs(env)
        episode = Episode(env, specs, (), 5, "collect", 0, 1, find_accelerator(env, every))
        return episode, allocate_rows(row_layout(specs, ()), 1)

    (saved, rows), (restored, restored_rows) = start(every=4), start(every=4)
    for action in [0, 1, 1, 0, 1, 1, 0, 1]:
        saved.step(action, rows, 0)
    state = saved.state()
    assert len(state["actions"]) < 7
    assert set(state["snapshot"]) == {"0/elapsed", "1/position"}
    restored.load_state(state, restored_rows, 0)
    for action in [1, 0, 1]:
        saved.step(action, rows, 0)
        restored.step(action, restored_rows, 0)
        assert rows["obs"].tobytes() == restored_rows["obs"].tobytes()


@pytest.mark.usefixtures("toy")
def test_the_packages_of_a_new_suite_decide_about_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    before = verdict_key(EnvConfig(id="CartPole-v1"))
    monkeypatch.setattr(snapshot_cache, "_version", lambda name: "9.9" if name == "numpy" else "1.0")
    changed = verdict_key(EnvConfig(id="CartPole-v1"))
    monkeypatch.setattr(snapshot_cache, "_version", lambda name: "1.0")
    assert len({before, changed, verdict_key(EnvConfig(id="CartPole-v1"))}) == 3


def test_a_suite_that_is_not_installed_says_what_to_type() -> None:
    def fail(env_id: str) -> None:
        raise ImportError("no module named 'nothing'")

    missing = Suite("missing", "missing envs", ("Missing/",), register=fail, packages={"nothing": "no-thing"})
    SUITES.append(missing)
    try:
        with pytest.raises(ConfigError, match="belongs to missing envs, which is not installed") as caught:
            make_env(EnvConfig(id="Missing/One"))
    finally:
        SUITES.remove(missing)
    assert caught.value.fix == "pip install no-thing"
    assert not missing.is_installed


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("ALE/Pong-v5", "atari"),
        ("Bandit/Gaussian-v0", "bandits"),
        ("LunarLander-v3", "box2d"),
        ("CartPole-v1", "classic_control"),
        ("Crafter/Reward", "crafter"),
        ("dmc/walker_walk", "dm_control"),
        ("Hopper-v5", "mujoco"),
        ("Reverie/Motion-v0", "reverie"),
        ("Taxi-v4", "toy_text"),
    ],
)
def test_envs_find_their_suite(env_id: str, name: str) -> None:
    suite = find_suite(env_id)
    assert suite is not None
    assert suite.name == name


def test_every_file_is_one_suite_of_the_list_with_its_name() -> None:
    folder = Path(suites.__file__).parent
    sources = [*folder.glob("[!_]*.py"), *folder.glob("[!_]*/__init__.py")]
    declared = [path for path in sources if "\nSUITE = Suite(" in path.read_text(encoding="utf-8")]
    names = [path.parent.name if path.name == "__init__.py" else path.stem for path in declared]
    assert [suite.name for suite in SUITES] == sorted(names)


def test_declared_envs_exist() -> None:
    register_suites()
    for env_id, entry in ((env_id, entry) for suite in SUITES for env_id, entry in suite.envs.items()):
        module, _, name = entry.entry_point.partition(":")
        assert hasattr(__import__(module, fromlist=[name]), name)
        assert gym.registry[env_id].max_episode_steps == entry.max_episode_steps


def test_every_suite_has_an_example_of_its_own() -> None:
    register_suites()
    for suite in SUITES:
        assert suite.example in gym.registry or suite.owns(suite.example), suite.name
        found = find_suite(suite.example)
        assert found is not None
        assert found.name == suite.name


def test_the_table_in_the_docs_is_that_of_the_declarations() -> None:
    page = (Path(__file__).parents[4] / "docs" / "envs.md").read_text(encoding="utf-8")
    fix = "python -m reverie.envs.suite_table docs/envs.md"
    assert page == renew(page, SUITES), f"renew the table: {fix}"
    assert page.count("| pip install") + page.count("`pip install") >= sum(bool(suite.extra) for suite in SUITES)


def test_the_contact_sheet_shows_every_suite_that_can_be_installed_and_rendered() -> None:
    shown = read_names(Path(__file__).parents[4] / "docs" / "images" / "suites.png")
    fix = "reverie envs pictures docs/images/suites.png --python .venv-envs-pygame/bin/python, in .venv-envs"
    assert shown == [suite.example for suite in SUITES if not suite.setup and suite.name not in NOT_SHOWN], fix


def test_a_table_row_has_all_that_is_declared() -> None:
    suite = Suite("small", "small envs", example="Small-v0", packages={"small": "small-envs"}, licence="GPL-2.0")
    last = suite_table([suite]).splitlines()[-1]
    assert last == "| Small envs | `Small-v0` | - | exact | `pip install small-envs`; GPL-2.0 |"
