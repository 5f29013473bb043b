"""TensorBoard shows what metrics.jsonl holds, once, also after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import api
from reverie.log.sinks import read_jsonl

WORDS = ("phases.learn.collect.rows=64", "checkpoint.every_steps=200", "log.every_steps=100",
         "log.tensorboard=true", "evaluate.final_episodes=2")  # fmt: skip


@pytest.mark.needs("tensorboard")
def test_no_doubled_stretch_after_a_resume(runs_dir: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = api.train("CartPole-v1:ppo", *WORDS, seed=1, steps=600, runs_dir=runs_dir)
    api.resume(run.name, steps=900, runs_dir=runs_dir)
    (events,) = (run.path / "tensorboard").glob("*tfevents*")
    curves = EventAccumulator(str(events)).Reload()
    expected = [(line["env_steps"], line["update/loss"]) for line in read_jsonl(run.path / "metrics.jsonl")
                if "update/loss" in line]  # fmt: skip
    shown = [(point.step, point.value) for point in curves.Scalars("update/loss")]
    assert [step for step, _ in shown] == [step for step, _ in expected]
    assert [value for _, value in shown] == pytest.approx([value for _, value in expected], rel=1e-6)
    assert len(curves.Scalars("episode/return")) == len(run.scores())
    assert curves.Scalars("evaluate/return_mean")
