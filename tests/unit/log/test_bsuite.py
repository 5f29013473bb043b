"""The results file of BSuite: its name, its lines and what they sum."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from reverie.core.errors import ConfigError
from reverie.log.bsuite import BSuiteConfig, BSuiteSink, is_written
from reverie.log.loggers import RunInfo


def run_info(folder: Path, env_id: str = "bsuite/deep_sea/3") -> RunInfo:
    return RunInfo(folder, config={"env": {"id": env_id}})


def score(value: float, best: float) -> dict[str, float]:
    return {"env_steps": 7, "length": 5, "return": value, "log/total_regret": 1 - value, "log/best_episode": best}


def test_lines_sum_all_episodes_so_far(tmp_path: Path) -> None:
    sink = BSuiteSink(BSuiteConfig(folder=str(tmp_path / "out")), run_info(tmp_path))
    for episode in range(1, 13):
        sink.write("scores", score(0.5, best=10 - episode))
        sink.write("metrics", {"ignored": 1.0})
    sink.close()
    with (tmp_path / "out/bsuite_id_-_deep_sea-3.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["episode"]) for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    last = {key: float(value) for key, value in lines[-1].items()}
    assert last == {
        "steps": 60, "episode": 12, "total_return": 6, "total_regret": 6, "best_episode": 9, "episode_len": 5,
        "episode_return": 0.5,
    }  # fmt: skip


def test_a_resume_rebuilds_the_file(tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(score(1.0, 1)) + "\n" for _ in range(3)))
    sink = BSuiteSink(BSuiteConfig(), run_info(tmp_path))
    sink.write("scores", score(1.0, 1))
    sink.close()
    assert len((tmp_path / "bsuite_id_-_deep_sea-3.csv").read_text().splitlines()) == 1 + 4


def test_written_episodes_are_evenly_spaced_on_a_logarithmic_axis() -> None:
    assert [episode for episode in range(1, 300) if is_written(episode)] == [
        *range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10), 120, 140, 170, 200, 250,
    ]  # fmt: skip


def test_other_envs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for envs of BSuite, not for 'CartPole-v1'"):
        BSuiteSink(BSuiteConfig(), run_info(tmp_path, "CartPole-v1"))
