"""The cost of a report: time and peak memory for run folders with 100 MB of JSONL, and with 10,000 metrics."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

MEGABYTES = 100
CONFIG = "schema_version: 1\nseed: 1\nenv: {id: Bench-v0}\nalgorithm: {kind: ppo}\nhorizon_steps: 1000000\n"
MEASURED = """
import resource, sys, time
from pathlib import Path
started = time.perf_counter()
from reverie.report.write import report_run
page = report_run(Path(sys.argv[1]))
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
size = page.stat().st_size / 1e6
print(f"{seconds:.1f} s ({time.process_time():.1f} s of CPU), peak memory {peak:.0f} MB, page {size:.2f} MB")
"""


def main() -> None:
    for name, fill in (("metrics", _fill_metrics), ("scores", _fill_scores), ("10,000 metric names", _fill_names)):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder)
            (run / "config.yaml").write_text(CONFIG)
            (run / "status.json").write_text(
                json.dumps({"state": "finished", "final_score": 1.0, "env_steps": 1_000_000})
            )
            fill(run)
            size = sum(path.stat().st_size for path in run.glob("*.jsonl")) / 1e6
            done = subprocess.run(
                [sys.executable, "-c", MEASURED, str(run)], capture_output=True, text=True, check=True
            )
            print(f"{name} ({size:.0f} MB of JSONL): {done.stdout.strip()}")


def _fill_metrics(run: Path) -> None:
    """Lines such as PPO writes, and every hundredth an evaluation."""
    rng = random.Random(0)
    names = [f"update/{word}" for word in ("loss", "policy_loss", "value_loss", "entropy", "grad_norm", "kl", "clip")]
    with (run / "metrics.jsonl").open("w") as file:
        step = 0
        while file.tell() < MEGABYTES * 1_000_000:
            step += 100
            keys = ["evaluate/return_mean", "evaluate/return_min"] if step % 10_000 == 0 else names
            values = {key: rng.gauss(0, 1) for key in keys}
            file.write(json.dumps({"env_steps": step, "updates": step, "phase": "learn", **values}) + "\n")


def _fill_scores(run: Path) -> None:
    rng = random.Random(0)
    with (run / "scores.jsonl").open("w") as file:
        step = 0
        while file.tell() < MEGABYTES * 1_000_000:
            step += 20
            episode = {"env_steps": step, "episode": step // 20, "env": 0, "return": rng.gauss(0, 1), "length": 20}
            file.write(json.dumps(episode) + "\n")


def _fill_names(run: Path) -> None:
    rng = random.Random(0)
    names = [f"update/group_{index // 100}/metric_{index}" for index in range(10_000)]
    with (run / "metrics.jsonl").open("w") as file:
        step = 0
        while file.tell() < MEGABYTES * 1_000_000:
            step += 100
            file.write(json.dumps({"env_steps": step, **{name: rng.random() for name in names}}) + "\n")


if __name__ == "__main__":
    main()
