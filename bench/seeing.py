"""What looking costs: CartPole PPO with the live table, preflight, monitor, videos and report, against all of it off.

Two figures, medians of several turns in CPU seconds: what is added between the first and the last line of metrics,
which grows with the run, and what is added before and after it (the probe, two videos, the report), which does not.
"""

from __future__ import annotations

import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from bench.speed import ROOT, one_thread

TURNS = 3
TRAIN = [sys.executable, "-m", "reverie", "train", "CartPole-v1:ppo"]
OFF = ["--quiet", "preflight.enabled=false", "monitor.enabled=false", "video.enabled=false", "log.report=false"]


def run(words: list[str]) -> tuple[float, float]:
    """CPU seconds of the training itself, and of everything around it; on a terminal of 80 columns."""
    master, slave = pty.openpty()
    reader = threading.Thread(target=_drain, args=(master,), daemon=True)
    reader.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**one_thread(), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        environment.pop("CI", None)
        subprocess.run([*TRAIN, *words, "--runs-dir", folder], check=True, env=environment, cwd=ROOT,
                       stdin=slave, stdout=slave, stderr=slave)  # fmt: skip
        (path,) = Path(folder).glob("*/machine.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    os.close(slave)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    training = lines[-1]["usage/cpu_seconds"] - lines[0]["usage/cpu_seconds"]
    return training, whole - training


def _drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:  # the other end is closed
        os.close(master)


def main() -> None:
    pairs = [(run([]), run(OFF)) for _ in range(TURNS)]
    on, off = (list(zip(*side, strict=True)) for side in zip(*pairs, strict=True))
    training, training_off, around, around_off = (statistics.median(part) for part in (on[0], off[0], on[1], off[1]))
    result = {
        "task": "CartPole-v1:ppo, 100,000 env steps", "training_s": round(training_off, 2),
        "training_with_all_s": round(training, 2), "added_while_training": round(training / training_off - 1, 4),
        "added_before_and_after_s": round(around - around_off, 2),
    }  # fmt: skip
    print(json.dumps(result), flush=True)
