"""``python -m bench index``: how long lists of ten thousand runs take, and a comparison of a hundred.

Writes synthetic run folders, builds the index, adds one run, and lists with a filter: a whole process. Then it compares
a hundred runs with a thousand evaluations each, also a whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reverie.lab.run_index import indexed_runs

ENVS = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "LunarLander-v3")
STATES = ("finished", "finished", "finished", "stopped", "failed", "running")
CONFIG = Path(__file__).parent / "index_config.yaml"
"""The config.yaml of a real run, except for seed, env and learning rate."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REVERIE_CACHE"] = str(Path(folder) / "cache")
        runs_dir = Path(folder) / "runs"
        for number in range(options.runs):
            write_synthetic_run(runs_dir, number)
        time.sleep(0.5)
        _measure("first build", lambda: indexed_runs(runs_dir))
        _measure("nothing changed", lambda: indexed_runs(runs_dir))
        write_synthetic_run(runs_dir, options.runs)
        _measure("one new run", lambda: indexed_runs(runs_dir))
        words = ["runs", "list", "algorithm=ppo", "best>450", "--runs-dir", str(runs_dir)]
        for _ in range(3):
            _measure("reverie " + " ".join(words[:4]), lambda: _run(words))
        compared = Path(folder) / "compared"
        for number in range(100):
            write_evaluations(write_synthetic_run(compared, number))
        _measure("reverie compare, 100 runs", lambda: _run(["compare", "*", "--runs-dir", str(compared), "--quiet"]))


def write_synthetic_run(runs_dir: Path, number: int) -> Path:
    """A run folder as Reverie writes it, without its policies."""
    env, state, seed = ENVS[number % 4], STATES[number % 6], number % 5
    run = runs_dir / f"{env}-ppo-s{seed}-{number}"
    run.mkdir(parents=True)
    config = CONFIG.read_text().format(seed=seed, env=env, learning_rate=1e-5 * (1 + number // 20))
    (run / "config.yaml").write_text(config)
    steps, score = 50_000 + number, float(number * 7919 % 500)
    status = {"state": state, "env_steps": steps, "updates": 320, "best_score": score + 1, "final_score": score}
    (run / "status.json").write_text(json.dumps(status, indent=2))
    manifest = {
        "spec": f"{env}:ppo", "seed": seed, "command": ["reverie", "train", f"{env}:ppo"], "created": 1.7e9 + number,
        "versions": {"reverie": "0.1.0"}, "machine": {"processor": "a chip", "cores": 2}, "git": {"commit": "0" * 40},
    }  # fmt: skip
    (run / "manifest.json").write_text(json.dumps(manifest, indent=2))
    lines = [{"env_steps": step, "updates": step // 100, "loss": 0.5} for step in range(0, steps, 5000)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def write_evaluations(run: Path) -> None:
    """A thousand evaluations and as many other records."""
    lines = []
    for step in range(50, 50_050, 50):
        where = {"env_steps": step, "updates": step // 100, "cycles": step // 50, "phase": "learn"}
        lines.append({**where, **{f"update/metric_{number}": 0.1 * number for number in range(12)}})
        score = {"mean": step / 100, "std": 1.0, "min": 0.0, "max": 500.0, "low": step / 120, "high": step / 90}
        lines.append({**where, **{f"evaluate/return_{name}": value for name, value in score.items()}})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "reverie", *words], check=True, stdout=subprocess.DEVNULL)


def _measure(name: str, work: Callable[[], object]) -> None:
    began, cpu = time.perf_counter(), _cpu_seconds()
    work()
    print(f"{name}: {time.perf_counter() - began:.2f} s, {_cpu_seconds() - cpu:.2f} s of CPU")


def _cpu_seconds() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (0, resource.RUSAGE_CHILDREN)))
