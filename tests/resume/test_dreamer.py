"""Dreamer's runs: replay with latents on disk survives ``kill -9``; offline, exploring first, judging only."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reverie import api
from reverie.config.files import read_config
from reverie.core.rng import make_generator
from reverie.data import columns
from reverie.runs.verify import verify_run
from reverie.store.checkpoint import CheckpointFolder
from reverie.store.run_folder import RunFolder
from tests.resume.pieces import assert_equal_runs, train, train_in_pieces
from tests.resume.test_kill import die_at_disk_operation

TINY = (
    "Reverie/Counting-v0:dreamer", "debug", "env.num_envs=2", "env.vector=sync", "env.kwargs.varied=true",
    "env.kwargs.observation=dict", "**.multipliers=[2,2]", "evaluate.num_envs=2", "evaluate.final_episodes=1",
    "evaluate.foresight={context: 1, steps: 2, dreams: 2}", "preflight.probe=false", "log.every_steps=1",
    "checkpoint.every_steps=12",
)  # fmt: skip
ONLINE = (
    *TINY, "phases.prefill.duration_steps=30", "phases.prefill.collect.rows=30", "phases.learn.duration_steps=36",
    "phases.learn.collect.rows=6", "phases.learn.update.train_ratio=8",
    "phases.learn.evaluate={episodes: 1, every_steps: 24}",
    "buffers.main.capacity=64", "buffers.main.chunk_rows=8",
)  # fmt: skip


@pytest.fixture
def _every_column_counts_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "WIDE_BYTES", 1)


@pytest.mark.usefixtures("_every_column_counts_as_wide")
def test_replay_on_disk_with_latents_survives_kill_9(tmp_path: Path) -> None:
    calm = train((*ONLINE, "buffers.main.storage=memory"), tmp_path / "calm")
    on_disk = (*ONLINE, "buffers.main.storage=disk")
    rng, deaths = make_generator("storm over dreams"), 0
    while die_at_disk_operation(int(rng.integers(15, 90)), on_disk, tmp_path / "stormy", steps=None):
        deaths += 1
    assert deaths >= 3
    stormy = api.find("@last", tmp_path / "stormy").path
    assert_equal_runs(stormy, calm)
    assert list((stormy / "checkpoints").rglob("sealed/*"))
    notes = CheckpointFolder(stormy).all()[-1].read("buffer_main")["annotations"]
    latents = [chunk.arrays["note/deter"] for chunk in notes["chunks"]]
    assert {latent.dtype for latent in latents} == {np.dtype(np.float16)}
    assert all(np.abs(latent).max() > 0 for latent in latents)
    assert (verify_run(RunFolder(stormy)).__next__()).is_reproduced


def test_offline_from_stored_episodes(tmp_path: Path) -> None:
    data = api.record_data("CartPole-v1", tmp_path / "data", episodes=20, random=True)
    words = (
        "CartPole-v1:dreamer", "debug", "offline", "env.num_envs=2", "env.vector=sync", f"buffers.main.source={data}",
        "buffers.main.capacity=2000", "buffers.main.holdout=0.25", "algorithm.learning_rate=3e-2",
        "phases.offline.hooks=[{update: {updates: 10}}, {validate: {batches: 4, every_updates: 10}}, "
        "{evaluate: {episodes: 1, every_updates: 20}}]", "phases.offline.duration_updates=40",
        "evaluate.final_episodes=1",
        "checkpoint.every_updates=10", "log.every_steps=0", "evaluate.num_envs=1", "evaluate.foresight.dreams=2",
    )  # fmt: skip
    calm = train(words, tmp_path / "calm")
    lines = api.find(str(calm)).metrics()
    held_out = [line["validate/update/loss_reconstruction"] for line in lines if "validate/update/loss_reward" in line]
    assert len(held_out) == 4
    assert held_out[-1] < 0.7 * held_out[0]
    assert sum("evaluate/open_loop/obs/relative_mse" in line for line in lines) == 3
    assert lines[-1]["env_steps"] == 0
    assert_equal_runs(train_in_pieces(words, tmp_path / "pieces", [5]), calm)


def test_a_run_in_bfloat16_is_exact(tmp_path: Path) -> None:
    words = (*ONLINE, "backend.precision=bfloat16")
    calm = train(words, tmp_path / "calm")
    assert read_config(calm / "config.yaml").backend.precision == "bfloat16"
    assert_equal_runs(train_in_pieces(words, tmp_path / "pieces", [4, 3]), calm)
    plain = train(ONLINE, tmp_path / "plain")
    assert read_config(plain / "config.yaml").backend.precision == "float32"
    assert (plain / "metrics.jsonl").read_text() != (calm / "metrics.jsonl").read_text()
    kept = CheckpointFolder(calm).all()[-1].read("algorithm")["model"]
    assert {value.dtype for value in kept.values()} == {np.dtype(np.float32)}


def test_exploring_first_and_then_the_task(tmp_path: Path) -> None:
    run = train(
        (
            *TINY, "explore_first", "phases.prefill.duration_steps=30", "phases.prefill.collect.rows=30",
            "phases.explore.duration_steps=16", "phases.learn.duration_steps=16", "phases.explore.collect.rows=8",
            "phases.learn.collect.rows=8", "phases.explore.update_world_model.train_ratio=8",
            "phases.learn.update.train_ratio=8", "phases.learn.evaluate={episodes: 1, every_steps: 8}",
        ),
        tmp_path,
    )  # fmt: skip
    lines = api.find(str(run)).metrics()
    explored = [line for line in lines if line["phase"] == "explore"]
    assert any("update_world_model/loss_reconstruction" in line for line in explored)
    assert not any(key.startswith("update/") for line in explored for key in line)
    assert any("update/loss_policy" in line for line in lines if line["phase"] == "learn")


ONCE = ("phases.evaluate.evaluate.episodes=3", "evaluate.final_episodes=0")


def test_evaluation_alone_judges_the_weights_of_another_run(tmp_path: Path) -> None:
    trained = train(ONLINE, tmp_path)
    judged = api.train(*TINY, "evaluate_only", *ONCE, seed=1, runs_dir=tmp_path,
                       init_from=str(trained))  # fmt: skip
    (line,) = judged.metrics()
    assert line["evaluate/episodes"] == 3
    assert line["updates"] == line["env_steps"] == 0
    assert "evaluate/held_out/loss_reconstruction" in line
    blank = api.train(*TINY, "evaluate_only", *ONCE, seed=1, runs_dir=tmp_path)
    assert blank.metrics()[0]["evaluate/held_out/loss_reward"] != line["evaluate/held_out/loss_reward"]
    assert read_config(judged.path / "config.yaml").phases[0].type == "eval_only"
    assert json.loads((judged.path / "status.json").read_text())["state"] == "finished"
