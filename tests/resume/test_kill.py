"""Runs that die: ``kill -9`` at random moments and in the middle of saving, SIGTERM and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.crash_storm import Moment, Storm
from reverie import api
from reverie.core.rng import make_generator
from tests.resume.pieces import CHECKING, PPO, assert_equal_runs, train

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

WORKERS = (
    "Pendulum-v1:ppo", "env.num_envs=2", "env.vector=process", "env.workers=2", "phases.learn.collect.rows=64",
    "phases.learn.evaluate={episodes: 2, every_steps: 2000}", "evaluate.final_episodes=1",
    "checkpoint.every_steps=100", "algorithm.epochs=2",
)  # fmt: skip
KILLED = {"PPO in one process": (PPO, 2000, 2), "PPO with worker processes": (WORKERS, 1000, 1)}
"""Words, env steps, and how often the run is killed."""


@pytest.mark.parametrize("case", KILLED)
def test_kill_9_at_random_moments_changes_nothing(case: str, tmp_path: Path) -> None:
    words, steps, kills = KILLED[case]
    storm = Storm(tmp_path / "stormy", (*words, "--steps", str(steps), "--seed", "1"))
    rng = make_generator(case)
    for _ in range(kills):
        storm.kill_at(Moment.draw(rng))
    assert storm.kills > 0
    assert_equal_runs(storm.finish(), train(words, tmp_path / "calm", steps))


def test_dying_in_the_middle_of_saving_changes_nothing(tmp_path: Path) -> None:
    """A short crash storm: each process dies at a random one of its writes, renames and syncs."""
    words = (*CHECKING, "buffers.main={kind: replay, capacity: 256, min_rows: 24}", "algorithm.batch_size=2",
             "phases.learn.hooks=[{collect: {rows: 24}}, {update_windows: {updates: 2}}, "
             "{evaluate: {episodes: 2, every_steps: 60}}]")  # fmt: skip
    calm = train(words, tmp_path / "calm", steps=400)
    rng, deaths = make_generator("storm in the middle of saving"), 0
    while die_at_disk_operation(int(rng.integers(5, 120)), words, tmp_path / "stormy", steps=400):
        deaths += 1
    assert deaths >= 5
    assert_equal_runs(api.find("@last", tmp_path / "stormy").path, calm)


def die_at_disk_operation(number: int, words: tuple[str, ...], runs_dir: Path, steps: int | None) -> bool:
    """Begin or continue the run in a child that kills itself there; False if it came to its end before."""
    child = os.fork()
    if child == 0:
        with dying_at(number), contextlib.suppress(BaseException):
            if any(runs_dir.glob("*/manifest.json")):
                api.resume("@last", runs_dir=runs_dir, trust=True)
            else:
                train(words, runs_dir, steps)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the run failed with status {status}"
    return status != 0


@contextlib.contextmanager
def dying_at(number: int) -> Iterator[None]:
    """Count what touches the disk, and die by ``kill -9`` before the one with this number."""
    left = number
    originals = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "mkdir")}

    def deadly(name: str) -> Any:
        def operation(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return originals[name](*arguments, **options)

        return operation

    for name in originals:
        setattr(os, name, deadly(name))
    yield


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGTERM, PPO), (signal.SIGINT, WORKERS)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_finishes_the_hook_and_saves(number: signal.Signals, words: tuple[str, ...], tmp_path: Path) -> None:
    storm = Storm(tmp_path / "stopped", (*words, "--steps", "1500", "--seed", "1"))
    with storm.start() as process:
        while process.poll() is None and not list(tmp_path.glob("stopped/*/checkpoints/0*")):
            time.sleep(0.005)
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == 128 + number, errors
    run = storm.run
    assert run is not None
    assert f"reverie resume {run.name}" in errors
    assert "Stopped and saved at env step" in errors
    assert api.find(str(run)).status["state"] == "stopped"
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, train(words, tmp_path / "calm", 1500))


def test_a_run_whose_terminal_is_closed_saves_and_stops(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = (*PPO, "--steps", "100000", "--seed", "1", "--runs-dir", str(tmp_path))
    command = [sys.executable, "-c", ON_A_TERMINAL, "train", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        watch_until_saved(ours, tmp_path)
        os.close(ours)
    assert process.returncode == 128 + signal.SIGHUP
    run = api.find("@last", tmp_path)
    assert run.state == "stopped"
    assert "Stopped and saved at env step" in (run.path / "run.log").read_text()


ON_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # closing this terminal sends SIGHUP, as to what a shell runs
sys.argv[0] = "reverie"
from reverie.__main__ import main
main()
"""


def watch_until_saved(terminal: int, runs_dir: Path) -> None:
    """Read what is shown until the first checkpoint is there."""
    while not list(runs_dir.glob("*/checkpoints/latest.json")):
        if select.select([terminal], [], [], 0.01)[0]:
            os.read(terminal, 1 << 16)
