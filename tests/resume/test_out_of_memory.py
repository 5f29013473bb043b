"""Where memory runs out a run goes on by itself, with its batches in more parts; where that cannot help it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie import backend
from reverie.algos.dqn import DQN
from reverie.algos.sac import SAC
from reverie.config.files import read_config
from reverie.core.errors import OutOfMemoryError
from reverie.runs.history import read_history

WORDS = (
    "phases.0.duration_steps=64", "phases.0.hooks.0.collect.rows=64", "buffers.main.min_rows=32",
    "phases.1.hooks.0.collect.rows=16", "phases.1.hooks.1.update.updates=2", "evaluate.final_episodes=1",
    "algorithm.network.units=[8]", "backend.engine=torch", "checkpoint.every_steps=32", "log.report=false",
)  # fmt: skip


def limit_memory(monkeypatch: pytest.MonkeyPatch, kind: Any, rows: int) -> None:
    """Updates after the first few fail as torch's do, unless they work on so few rows at a time."""
    update = kind.update

    def narrow(self: Any, batch: Any, clock: Any, rng: Any) -> Any:
        if clock.updates >= 6 and backend.part_size(self.config.batch_size) > rows:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return update(self, batch, clock, rng)

    monkeypatch.setattr(kind, "update", narrow)


def test_a_run_goes_on_in_smaller_parts(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, DQN, 16)
    run = reverie.train("CartPole-v1:dqn", *WORDS, steps=200, runs_dir=runs_dir)
    assert run.state == "finished"
    assert read_config(run.path / "config.yaml").backend.microbatches == 4  # batches of 64
    changed = [change["key"] for entry in read_history(run.path) for change in entry.changes]
    assert changed == ["backend.microbatches"] * 2
    assert "not enough memory" in (run.path / "run.log").read_text()


def test_what_cannot_be_cut_is_told(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, SAC, 0)
    words = ("phases.0.duration_steps=64", "algorithm.units=[8]", "algorithm.batch_size=8")
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        reverie.train("Pendulum-v1:sac", *words, steps=100, runs_dir=runs_dir)
