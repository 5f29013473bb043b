"""A crash storm: a run that is killed with ``kill -9`` repeatedly must end like an uninterrupted one.

The moments are random but seeded: some time after some saves, or during a save. Where exactly a process dies depends on
the machine; the result must not. Prints the hashes of both runs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reverie.core.rng import make_generator

SPEC = (
    "CartPole-v1:ppo", "phases.learn.collect.rows=64", "phases.learn.evaluate.every_steps=1000",
    "checkpoint.every_steps=64", "algorithm.epochs=4", "--steps", "15000", "--seed", "1",
)  # fmt: skip
KILLS = 50
LONGEST_DELAY = 0.03
POLL_SECONDS = 0.0005


@dataclass(frozen=True)
class Moment:
    """When to kill: after some saves and seconds, or during the next save."""

    saves: int
    delay: float
    is_saving: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Moment:
        return cls(int(rng.integers(3)), float(rng.uniform(0, LONGEST_DELAY)), bool(rng.random() < 0.5))


class Storm:
    """A run that is started, killed and resumed through the command line."""

    def __init__(self, runs_dir: Path, words: tuple[str, ...]) -> None:
        self.runs_dir = runs_dir
        self.words = words
        self.kills = 0

    @property
    def run(self) -> Path | None:
        """The run's folder, once it is complete enough to be resumed."""
        return next((path.parent for path in sorted(self.runs_dir.glob("*/manifest.json"))), None)

    def start(self) -> subprocess.Popen[str]:
        """A new process that starts or resumes the run."""
        what = ["train", *self.words] if self.run is None else ["resume", self.run.name]
        command = [sys.executable, "-m", "reverie", *what, "--runs-dir", str(self.runs_dir)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kill_at(self, moment: Moment) -> bool:
        """Let the run continue until the moment. False if it finished before."""
        before = self._saves()
        with self.start() as process:
            while process.poll() is None:
                if self._has_come(moment, before):
                    process.kill()
                    self.kills += 1
                    return True
                time.sleep(POLL_SECONDS)
            if process.returncode:
                raise RuntimeError(f"the run failed:\n{process.stderr.read() if process.stderr else ''}")
        return False

    def finish(self) -> Path:
        """Let the run finish. Returns its folder."""
        with self.start() as process:
            _, errors = process.communicate()
        if process.returncode or self.run is None:
            raise RuntimeError(f"the run failed:\n{errors}")
        return self.run

    def _has_come(self, moment: Moment, before: set[str]) -> bool:
        if self.run is None or len(self._saves() - before) < moment.saves:
            return False
        if moment.is_saving:
            return any(self.run.glob("checkpoints/.*.new"))
        time.sleep(moment.delay)
        return True

    def _saves(self) -> set[str]:
        return {path.name for path in self.runs_dir.glob("*/checkpoints/0*")}


def fingerprint(run: Path) -> dict[str, str]:
    """Hashes of everything that must be equal: metrics, scores, final policy, each part of the last checkpoint."""
    paths = [run / "metrics.jsonl", run / "scores.jsonl", *sorted((run / "policies" / "final").iterdir())]
    found = {path.name: hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in paths}
    newest = max(run.glob("checkpoints/0*"), key=lambda path: path.name)
    summary = json.loads((newest / "checkpoint.json").read_text())
    return {**found, **{f"checkpoint/{name}": digest for name, digest in summary["files"].items()}}


def combined(parts: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def compare(words: tuple[str, ...], kills: int) -> bool:
    """Whether a run that is killed ``kills`` times ends like an uninterrupted one."""
    rng = make_generator(0, "storm")
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as stormy:
        expected = combined(fingerprint(Storm(Path(calm), words).finish()))
        print(f"undisturbed:      {expected}", flush=True)
        storm = Storm(Path(stormy), words)
        while storm.kills < kills and storm.kill_at(Moment.draw(rng)):
            print(f"\rkilled {storm.kills} times", end="", flush=True)
        found = combined(fingerprint(storm.finish()))
        print(f"\rkilled {storm.kills} times:  {found}")
        return found == expected


def main() -> None:
    sys.exit(0 if compare(SPEC, KILLS) else "The hashes differ: resuming is not exact.")
