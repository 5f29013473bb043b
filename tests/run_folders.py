"""Run folders written by hand, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_run(
    runs: Path,
    name: str = "Toy-v0-ppo-s1-1",
    env: str = "Toy-v0",
    seed: int = 1,
    scores: Iterable[float] = (10.0, 30.0, 20.0),
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """A finished run with one evaluation per score, a hundred steps apart; the last score is the final one."""
    run = runs / name
    run.mkdir(parents=True)
    scores = list(scores)
    algorithm = {"kind": "ppo", "gamma": 0.99, **(settings or {})}
    config = {
        "schema_version": 1, "seed": seed, "env": {"id": env, "spec": {"solved_at": 25.0}}, "algorithm": algorithm,
        "backend": {"device": "cpu", "threads": 1}, "horizon_steps": 100 * len(scores),
    }  # fmt: skip
    (run / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    typed = {f"algorithm.{key}": "command line" for key in settings or {}}
    sources = {"algorithm.kind": "algo/ppo.yaml", "algorithm.gamma": "default", **typed}
    (run / "sources.json").write_text(json.dumps({"sources": sources, "preset": dict.fromkeys(typed, 0.99)}))
    status = {"state": "finished", "env_steps": 100 * len(scores), "best_score": max(scores), "final_score": scores[-1]}
    (run / "status.json").write_text(json.dumps({**status, **more}))
    manifest = {"spec": f"{env}:ppo", "seed": seed, "created": 1.7e9, "versions": {"python": "3.11"},
                "machine": {"processor": "a chip", "cores": 2}, "git": {"commit": "abc123"},
                "command": ["/somewhere/reverie", "train", f"{env}:ppo"]}  # fmt: skip
    (run / "manifest.json").write_text(json.dumps(manifest))
    write_lines(run / "metrics.jsonl", [line for place, score in enumerate(scores) for line in _metrics(place, score)])
    write_lines(run / "scores.jsonl", [{"env_steps": 10 * i, "return": float(i), "length": i} for i in range(30)])
    write_lines(run / "machine.jsonl", [
        {"env_steps": 100 * i, "time": 1.7e9 + i, "speed/env_steps_per_second": 100.0 + i, "usage/cpu_seconds": 2.0 * i,
         "memory/peak_megabytes": 300.0, "speed/collect_seconds": 1.0 * i, "speed/update_seconds": 3.0 * i}
        for i in range(1, 4)])  # fmt: skip
    return run


def _metrics(place: int, score: float) -> list[dict[str, Any]]:
    here = {"env_steps": 100 * (place + 1), "updates": place, "cycles": place, "episodes": place, "phase": "learn"}
    evaluation = {"episodes": 5.0, "return_mean": score, "return_std": 1.0, "return_min": score - 2,
                  "return_max": score + 2, "return_low": score - 1, "return_high": score + 1,
                  "length_mean": 9.0}  # fmt: skip
    return [
        {**here, "collect/return": score, "update/loss": 1.0 / (place + 1), "update/kl": 0.01},
        {**here, **{f"evaluate/{key}": value for key, value in evaluation.items()}},
    ]
