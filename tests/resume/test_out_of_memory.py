"""Where memory runs out a run goes on by itself, with its batches in more parts; where that cannot help it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie.algos.dqn import DQN
from reverie.algos.dreamer import Dreamer
from reverie.algos.qlearning import QLearning
from reverie.algos.reinforce import Reinforce
from reverie.algos.sac import SAC
from reverie.backend import DEFAULT
from reverie.config.files import read_config
from reverie.core.errors import OutOfMemoryError
from reverie.runs.history import read_history

COMMON = (
    "evaluate.final_episodes=1", "backend.engine=torch", "checkpoint.every_steps=32", "log.report=false",
    "video.enabled=false",
)  # fmt: skip
REPLAY = (
    "phases.prefill.duration_steps=64", "phases.prefill.collect.rows=64", "buffers.main.min_rows=32",
    "phases.learn.collect.rows=16",
)  # fmt: skip
EPISODES = ("env.num_envs=4", "phases.learn.collect.episodes=4", "algorithm.network.units=[8]")
DREAMS = ("phases.learn.update.train_ratio=4", "evaluate.foresight.enabled=false", "preflight.probe=false")
RUNS: dict[str, tuple[Any, tuple[str, ...], int]] = {
    "CartPole-v1:dqn": (DQN, (*REPLAY, "phases.learn.update.updates=2", "algorithm.network.units=[8]"), 160),
    "Pendulum-v1:sac": (SAC, (*REPLAY, "algorithm.units=[8]", "algorithm.batch_size=64"), 160),
    "CartPole-v1:reinforce": (Reinforce, EPISODES, 600),
    "CartPole-v1:dreamer": (Dreamer, ("debug", *REPLAY, *DREAMS), 160),
}


def limit_memory(monkeypatch: pytest.MonkeyPatch, kind: Any, parts: int) -> None:
    """Updates after the first few fail as torch's do, unless batches are cut into so many parts."""
    update = kind.update

    def narrow(self: Any, batch: Any, clock: Any, rng: Any) -> Any:
        if clock.updates >= 4 and getattr(self, "backend", DEFAULT).microbatch_size(64) > 64 // parts:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return update(self, batch, clock, rng)

    monkeypatch.setattr(kind, "update", narrow)


@pytest.mark.parametrize("spec", RUNS)
def test_run_continues_with_more_microbatches(spec: str, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, words, steps = RUNS[spec]
    limit_memory(monkeypatch, kind, 4)
    run = reverie.train(spec, *COMMON, *words, steps=steps, runs_dir=runs_dir)
    assert run.state == "finished"
    assert read_config(run.path / "config.yaml").backend.microbatches == 4
    changed = [change["key"] for entry in read_history(run.path) for change in entry.changes]
    assert changed == ["backend.microbatches"] * 2
    assert "not enough memory" in (run.path / "run.log").read_text()
    longer = reverie.resume(run.name, steps=2 * steps, runs_dir=runs_dir)
    assert longer.state == "finished"  # which would fail in fewer parts


def test_what_cannot_be_cut_is_told(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, QLearning, 128)
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        reverie.train(
            "FrozenLake-v1:qlearning", "log.report=false", "video.enabled=false", steps=100, runs_dir=runs_dir
        )


def test_parts_that_are_still_too_large_are_told(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, DQN, 128)
    spec = "CartPole-v1:dqn"
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        reverie.train(spec, *COMMON, *RUNS[spec][1], steps=200, runs_dir=runs_dir)
    assert read_config(next(runs_dir.glob("*/config.yaml"))).backend.microbatches == 64
