"""Saving only looks: a run with odd extra saves equals one without."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.log.sinks import JsonlSink
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.policies import PolicyShelf
from reverie.runs.verify import first_difference
from reverie.store.run_folder import RunFolder
from reverie.training.orchestrator import Orchestrator
from tests.resume.pieces import CHECKING, PPO, assert_equal_runs, train

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

CASES = {
    "ppo with normalisers": (*PPO, "normaliser.observation=rolling", "normaliser.reward=true"),
    "replay with write-back": (
        *CHECKING, "buffers.main={kind: replay, capacity: 64, min_rows: 24}", "algorithm.batch_size=2",
        "phases.learn.hooks=[{collect: {rows: 24}}, {update_windows: {updates: 2}}]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_odd_saves_change_nothing(case: str, tmp_path: Path) -> None:
    rare = train((*CASES[case], "checkpoint.every_steps=100000"), tmp_path / "rare", steps=400)
    odd = ("checkpoint.every_steps=37", "checkpoint.every_updates=5", "checkpoint.keep_last=1")
    often = train((*CASES[case], *odd, "checkpoint.keep_every_steps=150"), tmp_path / "often", steps=400)
    assert len(list(rare.glob("checkpoints/0*"))) == 1
    assert len(list(often.glob("checkpoints/0*"))) >= 3
    assert_equal_runs(often, rare)


@pytest.mark.parametrize("case", CASES)
def test_a_save_after_every_step_changes_nothing(case: str, tmp_path: Path) -> None:
    states = []
    for saves in (False, True):
        config = make_config(CASES[case][0], CASES[case][1:], seed=3, steps=300)
        folder = tmp_path / str(saves)
        folder.mkdir()
        logs = JsonlSink(folder)
        session = build(config, [logs])
        shelf = PolicyShelf(RunFolder(folder))
        checkpointer = Checkpointer(RunFolder(folder), config.checkpoint, session, shelf, logs)
        evaluator = build_evaluator(config)
        save = checkpointer.save if saves else None
        Orchestrator(session, evaluator, [shelf], lambda save=save: bool(save) and not save()).run()
        states.append(session.state())
        evaluator.close()
        session.close()
    assert list(first_difference(*states)) == []
    assert len(list((tmp_path / "True").glob("checkpoints/0*"))) > 0
    assert (tmp_path / "True/metrics.jsonl").read_bytes() == (tmp_path / "False/metrics.jsonl").read_bytes()
