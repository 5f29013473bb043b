"""Every way to start a run or load a policy applies its checks: the table in docs/config.md, cell by cell."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

from reverie import api
from reverie.cli.main import app
from reverie.config.files import read_tree
from reverie.config.pipeline import prepare_new
from reverie.config.tree import put, split_path
from reverie.config.yaml_text import dump_yaml, parse_value
from reverie.core.errors import ReverieError
from reverie.envs.snapshot_cache import SnapshotVerdict
from reverie.policy import Policy
from reverie.runs.policies import policy_folder
from reverie.store.run_folder import RunFolder

SPEC = f"{__name__}.Poles:dqn"
WORDS = (
    "env.kwargs.width=4", "env.max_episode_steps=20", "env.num_envs=1", "env.vector=sync", "buffers.main.capacity=200",
    "buffers.main.min_rows=16", "algorithm.network.units=[4]", "algorithm.batch_size=8", "evaluate.num_envs=1",
    "evaluate.final_episodes=1", "phases=[{name: learn, hooks: [{collect: {rows: 32}}, {update: {updates: 1}}], "
    "duration_steps: 96}]", "checkpoint.every_steps=32", "preflight.enabled=false", "log.report=false",
)  # fmt: skip


class Poles(gym.Env[Any, Any]):
    """Counts its instances. It has no time limit and ends no episode."""

    made = 0

    def __init__(self, width: int = 4, reward: float = 1.0, continuous: bool = False) -> None:
        type(self).made += 1
        self.observation_space = gym.spaces.Box(-1, 1, (width,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32) if continuous else gym.spaces.Discrete(2)
        self.reward = reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {}

    def step(self, action: Any) -> Any:
        return np.zeros(self.observation_space.shape, np.float32), self.reward, False, False, {}


CHECKS = {
    "value": ("algorithm.gamma=2", r"algorithm\.gamma"),
    "parts": ("phases.learn.collect.episodes=3", "cannot both hold"),
    "env": ("env.kwargs.reward=.nan", "The reward at step 1 is nan"),
    "device": ("backend.device=nowhere", "is not the name of a device"),
    "episodes": ("env.max_episode_steps=null", "no time limit"),
    "source": ("buffers.main.source=nowhere", "nowhere"),
    "agent": ("env.kwargs.continuous=true", "dqn needs discrete actions"),
    "phase value": ("phases.learn.overrides={algorithm.gamma: 2}", "overrides"),
    "phase env": ("phases.learn.overrides={env.kwargs: {width: 5}}", "no longer fit the agent"),
}
FrontDoor = Callable[[Path, str], Any]
"""Starts something with one more setting. ``run`` may be changed."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train(SPEC, *WORDS, runs_dir=tmp_path_factory.mktemp("runs")).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run that can be resumed and may be changed."""
    copy = tmp_path / "runs" / trained.name
    shutil.copytree(trained, copy)
    RunFolder(copy).write_status(state="stopped")
    return copy


def type_in(*words: str) -> None:
    """Run a command and raise its error."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


def edit_config(run: Path, word: str) -> None:
    """Change the run's config.yaml as if it had been created like that."""
    key, _, text = word.partition("=")
    tree = read_tree(run / "config.yaml")
    key = key.replace("phases.learn.collect", "phases.0.hooks.0.collect").replace("phases.learn", "phases.0")
    put(tree, split_path(key), parse_value(text))
    (run / "config.yaml").write_text(dump_yaml(tree))


def edit_policies(run: Path, word: str) -> None:
    """Change the settings that the run's policies were saved with."""
    key, _, text = word.partition("=")
    for which in ("best", "final"):
        policy, about = Policy.load(policy_folder(run, which))
        put(about, split_path(key), parse_value(text))
        policy.save(policy_folder(run, which), about)


def edited(call: Callable[[Path], Any], edit: FrontDoor = edit_config) -> FrontDoor:
    def door(run: Path, word: str) -> None:
        edit(run, word)
        call(run)

    return door


NEW: dict[str, FrontDoor] = {
    "make_config": lambda run, word: api.make_config(SPEC, [*WORDS, word]),
    "train": lambda run, word: api.train(SPEC, *WORDS, word, runs_dir=run.parent / "new"),
    "dry run": lambda run, word: type_in("train", SPEC, *WORDS, word, "--dry-run"),
    "several seeds": lambda run, word: type_in("train", SPEC, *WORDS, word, "--seed", "1,2"),
    "config show": lambda run, word: type_in("config", "show", SPEC, *WORDS, word),
}
SAVED: dict[str, FrontDoor] = {
    "resume with changes": lambda run, word: api.resume(run, word, trust=True),
    "resume": edited(lambda run: api.resume(run, trust=True)),
    "verify": edited(lambda run: api.verify(run, segments="first", trust=True)),
}
POLICIES: dict[str, FrontDoor] = {
    "eval": edited(lambda run: api.evaluate(run, 1, trust=True), edit_policies),
    "record": edited(lambda run: api.record(run, trust=True), edit_policies),
    "load": edited(lambda run: api.load(run, trust=True), edit_policies),
    "data record": edited(lambda run: api.record_data(run, run / "data", 1, trust=True), edit_policies),
    "foresee": edited(lambda run: api.foresee(run, trust=True), edit_policies),
}


@pytest.mark.parametrize("door", NEW)
@pytest.mark.parametrize("check", CHECKS)
def test_new_run_with_a_problem_is_refused(door: str, check: str, run: Path) -> None:
    word, message = CHECKS[check]
    with pytest.raises(ReverieError, match=message):
        NEW[door](run, word)
    assert list((run.parent / "new").glob("*")) == []


@pytest.mark.parametrize("door", SAVED)
@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"source"}))
def test_existing_run_with_a_problem_is_refused(door: str, check: str, run: Path) -> None:
    word, message = CHECKS[check]
    with pytest.raises(ReverieError, match=message):
        SAVED[door](run, word)


def test_stored_data_is_needed_until_the_checkpoint_has_it(run: Path) -> None:
    edit_config(run, "buffers.main.source=nowhere")
    with pytest.raises(ReverieError, match="nowhere"):
        api.verify(run, segments="first", trust=True)
    assert api.resume(run, trust=True).state == "finished"


@pytest.mark.parametrize("door", POLICIES)
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("env.num_envs=0", "env.num_envs = 0: must be at least 1"),
        ("evaluate.num_envs=0", "evaluate.num_envs = 0: must be at least 1"),
        ("backend.threads=0", "backend.threads = 0: must be at least 1"),
        ("env.kwargs.width=5", "no longer has the observations and actions"),
        ("env.kwargs.reward=.nan", "The reward at step 1 is nan"),
        ("env.kwargs.height=5", "cannot be made"),
    ],
)
def test_saved_policy_with_a_problem_is_refused(door: str, word: str, message: str, run: Path) -> None:
    with pytest.raises(ReverieError, match=message):
        POLICIES[door](run, word)


@pytest.mark.parametrize(
    ("word", "message"), [CHECKS[name] for name in ("value", "parts", "env", "phase value")], ids=str
)
def test_policy_and_replay_of_a_checkpoint_with_a_problem_are_refused(word: str, message: str, run: Path) -> None:
    edit_config(run, word)
    with pytest.raises(ReverieError, match=message):
        api.evaluate(run, 1, which="92", trust=True)
    with pytest.raises(ReverieError, match=message):
        api.export_data(run, run / "data", trust=True)


def test_start_makes_one_env_each_to_probe_train_and_evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = SnapshotVerdict("exact", "", "replay")  # otherwise tried once per env, in several processes
    monkeypatch.setattr("reverie.runs.assemble.cached_verdict", lambda config: verdict)
    Poles.made = 0
    prepared = prepare_new(SPEC, WORDS)
    assert (Poles.made, prepared.specs.max_episode_steps, prepared.env.can_render) == (1, 20, False)
    run = api.train(SPEC, *WORDS, "evaluate.final_episodes=0", runs_dir=tmp_path)
    assert Poles.made == 1 + 2
    api.resume(run, steps=128)
    assert Poles.made == 3 + 2
    api.train(SPEC, *WORDS, runs_dir=tmp_path)
    assert Poles.made == 5 + 3
