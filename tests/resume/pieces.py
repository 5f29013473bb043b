"""Runs that are stopped between two steps and resumed in a fresh session, again and again, without a new process."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bench.crash_storm import fingerprint
from reverie import api
from reverie.training.interrupt import StopRequest
from reverie.training.scheduler import Scheduler

PPO = (
    "CartPole-v1:ppo", "env.num_envs=4", "env.vector=sync", "phases.learn.collect.rows=64", "algorithm.epochs=2",
    "phases.learn.evaluate={episodes: 2, every_steps: 300}", "evaluate.final_episodes=2",
    "checkpoint.every_steps=200", "algorithm.network.units=[16]", "video.enabled=false", "log.report=false",
)  # fmt: skip
"""A run of PPO that is over in a moment."""
CHECKING = (
    "Reverie/Counting-v0:ppo", "algorithm.kind=tests.checking.CheckingAlgorithm", "env.num_envs=4", "env.vector=sync",
    "phases.learn.collect.rows=24", "phases.learn.evaluate={episodes: 2, every_steps: 60}",
    "evaluate.final_episodes=2", "checkpoint.every_steps=40", "env.kwargs.varied=true",
    "video.enabled=false", "log.report=false",
)  # fmt: skip
"""A run of the agent that checks every row it sees."""


FINISH = Scheduler.finish


class StopAfter(StopRequest):
    """Asks for a stop after a number of steps of the scheduler."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def finish(self, scheduler: Scheduler, *arguments: Any) -> None:
        """Count a step: evaluations ask for a stop many times within one, so being asked is no measure."""
        FINISH(scheduler, *arguments)
        self.left -= 1

    def __call__(self) -> bool:
        if self.left <= 0:
            self.signal = signal.SIGTERM
        return super().__call__()


@contextmanager
def stopping_after(steps: int) -> Iterator[None]:
    """Runs inside this block stop as if SIGTERM had come after so many steps."""

    @contextmanager
    def request() -> Iterator[StopRequest]:
        stop = StopAfter(steps)
        with mock.patch.object(Scheduler, "finish", lambda *arguments: stop.finish(*arguments)):
            yield stop

    with mock.patch("reverie.runs.execute.catch_signals", request):
        yield


def train(words: Sequence[str], runs_dir: Path, steps: int | None = None, seed: int = 1) -> Path:
    """A run that nobody disturbs."""
    return api.train(*words, steps=steps, seed=seed, runs_dir=runs_dir).path


def train_in_pieces(words: Sequence[str], runs_dir: Path, stops: Sequence[int], steps: int | None = None) -> Path:
    """The same run, stopped after each of these numbers of steps and resumed in a fresh session."""
    with stopping_after(stops[0]):
        run = api.train(*words, steps=steps, seed=1, runs_dir=runs_dir)
    for stop in stops[1:]:
        if run.state != "finished":
            with stopping_after(stop):
                run = api.resume(str(run.path), trust=True)
    if run.state != "finished":
        run = api.resume(str(run.path), trust=True)
    assert run.state == "finished"
    return run.path


def assert_equal_runs(found: Path, expected: Path) -> None:
    """Weights, optimiser, every other part, metrics and scores are the same bytes."""
    theirs, ours = fingerprint(expected), fingerprint(found)
    differing = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    assert not differing, f"{', '.join(differing)} differ"
    assert (found / "metrics.jsonl").stat().st_size > 0, "nothing was recorded, so nothing was shown"
