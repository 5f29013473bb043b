"""Learning from stored data only, with the commands in the documentation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reverie import api
from reverie.cli.main import app
from reverie.core.errors import ConfigError, RunError
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, Update
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs
from reverie.runs.datasets import EpisodeRecorder
from tests.checking import CheckingAlgorithm, as_numpy, check_sequence
from tests.resume.pieces import CHECKING, assert_equal_runs, stopping_after, train


class HalfAware:
    """Balances the pole from its angle and speed, with mostly random actions."""

    def initial_carry(self, num_envs: int) -> Carry:
        return {}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        wise = now["obs"][:, 2] + 0.5 * now["obs"][:, 3] > 0
        return np.where(rng.random(len(wise)) < 0.7, rng.random(len(wise)) < 0.5, wise).astype(np.int64), carry, {}


class JudgingAlgorithm(CheckingAlgorithm):
    """Checks batches of stored data, and reads the held-out data. Stored data have none of its extras."""

    def update_windows(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        return self._report("update_windows", batch, check_sequence(as_numpy(batch)))

    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        assert hook == "update_windows"
        rows = as_numpy(batch)
        check_sequence(rows)
        return {"reward": float(rows["reward"].mean()), "rows": float(rows["reward"].size)}


def invoke(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_dqn_learns_from_data_of_a_poor_policy(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1")
    source = EpisodeRecorder(env, make_specs(env), "half aware", HalfAware()).record(150, 0, tmp_path / "data")  # type: ignore[arg-type]
    about = json.loads(invoke("data", "info", str(source), "--json"))
    assert about["return_mean"] < 100
    run = api.train(
        "CartPole-v1:dqn", "offline", f"buffers.main.source={source}", "phases.offline.duration_updates=2000",
        "algorithm.target_every=100", "buffers.main.holdout=0.1", "evaluate.final_episodes=0",
        "phases.offline.hooks=[{update: {updates: 100}}, {validate: {batches: 4, every_updates: 500}}, "
        "{evaluate: {episodes: 10, every_updates: 1000}}]",
        runs_dir=tmp_path / "runs",
    )  # fmt: skip
    assert (run.status["env_steps"], run.status["updates"]) == (0, 2000)
    assert "Finished after 2,000 updates" in (run.path / "run.log").read_text()
    assert "after 2,000 updates" in api.report(str(run.path)).with_suffix(".md").read_text()
    assert invoke("verify", str(run.path)).startswith("updates 1,900 to 2,000: reproduced")
    assert run.status["best_score"] > about["return_mean"] + 80
    losses = [line["validate/update/loss"] for line in run.metrics() if "validate/update/loss" in line]
    assert len(losses) == 4
    assert np.isfinite(losses).all()


WORDS = (
    *CHECKING[:1], "algorithm.kind=tests.e2e.test_offline.JudgingAlgorithm", *CHECKING[2:4],
    "buffers.main={kind: replay, capacity: 2000, holdout: 0.3}", "env.kwargs.varied=true", "algorithm.batch_size=2",
    "phases=[{name: learn, type: offline, duration_updates: 60, hooks: [{update_windows: {updates: 4}}, "
    "{validate: {batches: 3, every_updates: 12}}]}]", "checkpoint.every_updates=8", "evaluate.final_episodes=1",
)  # fmt: skip


def test_held_out_losses_are_recorded_and_a_resume_is_exact_without_the_data(tmp_path: Path) -> None:
    source = api.record_data("Reverie/Counting-v0", tmp_path / "data", 40, random=True)
    words = (*WORDS, f"buffers.main.source={source}")
    whole = train(words, tmp_path / "whole", None)
    with stopping_after(20):
        stopped = train(words, tmp_path / "stopped", None)
    shutil.rmtree(source)
    assert api.resume(str(stopped), trust=True).state == "finished"
    assert_equal_runs(stopped, whole)
    lines = [line for line in api.find(str(whole)).metrics() if "validate/update_windows/reward" in line]
    assert [line["updates"] for line in lines] == [12, 24, 36, 48, 60]
    assert {line["validate/update_windows/rows"] for line in lines} == {12}
    assert len({line["validate/update_windows/reward"] for line in lines}) > 1  # other batches each time


def test_export_of_a_run_and_back(tmp_path: Path) -> None:
    collecting = (*CHECKING, "buffers.main={kind: replay, capacity: 256, chunk_rows: 24}",
                  "phases.learn.hooks=[{collect: {rows: 24}}, {update_windows: {updates: 1}}]")  # fmt: skip
    run = train(collecting, tmp_path / "runs", steps=300)
    out = invoke("data", "export", str(run), "--out", str(tmp_path / "data"), "--trust", "--json")
    about = json.loads(out)
    assert about["episodes"] > 20
    assert about["rows"] <= 300
    whole = invoke("data", "export", str(tmp_path / "data"), "--out", str(tmp_path / "copy"))
    assert "offline buffers.main.source=" in whole
    assert (
        json.loads((tmp_path / "copy/dataset.json").read_text())["chunks"]
        == json.loads((tmp_path / "data/dataset.json").read_text())["chunks"]
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["offline"], "Name stored data"),
        (["offline", "buffers.main.source=nowhere"], "'nowhere' does not contain a dataset"),
        (["buffers.main.holdout=0.1"], "held out"),
        (["phases.learn.hooks=[{collect: {rows: 8}}, {update: {}}, {validate: {batches: 1}}]"], "holds nothing out"),
        (["phases.learn.hooks=[{collect: {rows: 8}}, {update: {}}, {validate: {episodes: 1}}]"], "takes batches"),
    ],
)
def test_invalid_offline_config_is_refused_before_a_run_is_created(words: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        api.make_config("CartPole-v1:dqn", words)


def test_too_few_episodes_to_hold_out_are_refused_before_a_run_is_created(tmp_path: Path) -> None:
    source = api.record_data("CartPole-v1", tmp_path / "data", 4, random=True)
    words = ["offline", f"buffers.main.source={source}", "buffers.main.holdout=0.05", "buffers.main.min_rows=1"]
    with pytest.raises(ConfigError, match="0 of 4 episodes are held out"):
        api.make_config("CartPole-v1:dqn", words)


def test_export_without_replay_advises_to_record(tmp_path: Path) -> None:
    words = ("CartPole-v1:ppo", "env.num_envs=2", "env.vector=sync", "phases.learn.collect.rows=64")
    run = train((*words, "algorithm.epochs=1", "evaluate.final_episodes=1"), tmp_path / "runs", steps=64)
    with pytest.raises(Exception, match="reverie data record"):
        api.export_data(str(run), tmp_path / "data")
    path = api.record_data(str(run), tmp_path / "played", 3, sample=False)
    assert api.describe_data(str(path))["episodes"] == 3
    (rows,) = path.glob("*.safetensors")
    rows.write_bytes(rows.read_bytes()[:-100])
    with pytest.raises(RunError, match="damaged"):
        api.describe_data(str(path))


DREAMING = (
    "Pendulum-v1:dreamer", "offline", "debug", "env.num_envs=2", "env.vector=sync", "buffers.main.capacity=2000",
    "buffers.main.holdout=0.25", "algorithm.learning_rate=1e-2", "algorithm.optimizer.warmup=0",
    "phases.offline.hooks=[{update: {updates: 15}}, {validate: {batches: 16, every_updates: 15}}]",
    "phases.offline.duration_updates=75", "evaluate.final_episodes=0", "evaluate.foresight.enabled=false",
    "preflight.probe=false", "log.every_steps=1",
)  # fmt: skip


@pytest.mark.needs("minari")
def test_dreamer_learns_the_same_from_minari_as_from_our_own_files(tmp_path: Path) -> None:
    """Uses the commands of docs/dreamer.md. Pendulum scales the agent's actions by 2."""
    ours, root = tmp_path / "ours", tmp_path / "minari"
    invoke("data", "record", "Pendulum-v1", "--random", "--episodes", "8", "--out", str(ours))
    exported = json.loads(invoke("data", "export", str(ours), "--out", str(root), "--format", "minari", "--json"))
    assert exported["episodes"] == 8
    assert Path(exported["source"]) == root / "pendulum-v1" / "ours-v0"
    lines = []
    for name, source in (("ours", ours), ("minari", exported["source"])):
        run = api.train(*DREAMING, f"buffers.main.source={source}", seed=1, runs_dir=tmp_path / name)
        assert run.status["env_steps"] == 0
        lines.append(run.metrics())
    name = "validate/update/loss_reconstruction"
    losses = [line[name] for line in lines[0] if name in line]
    assert len(losses) == 5
    assert np.mean(losses[-2:]) < 0.85 * losses[0]
    assert lines[0] == lines[1]
