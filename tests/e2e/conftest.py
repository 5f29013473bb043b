"""Runs the command line as typed, inside the test's process unless a test needs another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reverie import api
from reverie.cli import main
from reverie.core import registry

SMALL = ("CartPole-v1:ppo", "env.vector=sync", "phases.learn.collect.rows=64", "algorithm.epochs=2")
SMALL += ("evaluate.final_episodes=3", "phases.learn.evaluate.every_steps=300")
"""A run that takes a second with ``--steps 600``."""
BARE = (*SMALL, "video.enabled=false", "log.report=false")
"""The same for separate processes, where the fixtures that disable videos and reports have no effect."""


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep cached facts about envs apart from the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVERIE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in an empty folder: ``reverie("train", "CartPole-v1:ppo")``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_user_folder", "")

    def run_command(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["reverie", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main.run()
        code = end.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run_command


def run_in_process(*words: str, folder: Path) -> Outcome:
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "reverie", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """A small finished run, which tests must not change."""
    return api.train(*SMALL, seed=1, steps=600, runs_dir=tmp_path_factory.mktemp("runs"))
