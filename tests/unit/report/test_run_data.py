"""What a run folder tells: right numbers from the files, and words for what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie.report import log_summaries
from reverie.report.log_summaries import Evaluations, Machine, Metrics, importance
from reverie.report.run_data import gather
from reverie.report.run_facts import MOST_DRAWN, other_metrics, score_lines, shown_metrics
from tests.run_folders import write_lines, write_run


def test_scores_come_from_the_files(tmp_path: Path) -> None:
    run = gather(write_run(tmp_path, scores=(10.0, 30.0, 20.0)))
    assert (run.final_score, run.best_score, run.has_final) == (20.0, 30.0, True)
    assert run.evaluations.best is not None
    assert run.evaluations.best.x == 200
    assert (run.env, run.algorithm, run.seed, run.state, run.done) == ("Toy-v0", "ppo", "1", "finished", 300)
    assert run.solved_at == 25.0
    assert run.problems == []
    assert score_lines(run) == [
        ("20.0", "final score, mean of 5 episodes, 95 % interval 19.0 to 21.0"),
        ("30.0", "best, at 200 env steps"),
        ("14.5", "last 30 training episodes"),
    ]


def test_the_score_of_a_suite_is_over_all_training_episodes(tmp_path: Path) -> None:
    path = write_run(tmp_path, env="Crafter/Reward")
    keys = [f"log/achievement_{number}" for number in range(22)]
    episodes = [dict.fromkeys(keys, 1.0), dict.fromkeys(keys, 0.0), {**dict.fromkeys(keys, 0.0), keys[0]: 7.0}]
    write_lines(path / "scores.jsonl", [{"env_steps": 10, "return": 1.0, **logs} for logs in episodes])
    score, label = score_lines(gather(path))[-1]
    expected = (1 + 200 / 3) ** (1 / 22) * (1 + 100 / 3) ** (21 / 22) - 1
    assert (float(score), label) == (pytest.approx(expected, abs=0.1), "crafter score, over all 3 training episodes")
    write_lines(path / "scores.jsonl", [{"env_steps": 10, "return": 1.0, keys[0]: 1.0}])
    assert "crafter score" not in str(score_lines(gather(path)))


def test_frames_are_told_if_they_are_more_than_env_steps(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    assert gather(path).amount == "300 env steps"
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 300, "frames": 1200, "updates": 9, "phase": "learn"}\n')
    assert gather(path).amount == "300 env steps (1,200 frames)"


def test_of_equal_scores_the_latest_is_the_best_as_its_policy_is_kept(tmp_path: Path) -> None:
    run = gather(write_run(tmp_path, scores=(10.0, 30.0, 30.0, 20.0)))
    assert score_lines(run)[1] == ("30.0", "best, at 300 env steps")


def test_time_by_part_over_two_processes() -> None:
    machine = Machine()
    for now, cpu, collect, update in (
        (10.0, 1.0, 1.0, 3.0),
        (12.0, 3.0, 2.0, 6.0),
        (90.0, 0.5, 0.5, 1.0),
        (93.0, 2.0, 1.0, 2.0),
    ):
        machine.add({"env_steps": 1, "time": now, "usage/cpu_seconds": cpu, "speed/collect_seconds": collect,
                     "speed/update_seconds": update})  # fmt: skip
    assert machine.parts() == {"collect": 3.0, "update": 8.0}
    assert machine.cpu_seconds == 5.0
    assert machine.wall_seconds == 2.0 + 3.0  # the pause between the processes does not count


def test_differences_from_the_preset_and_by_resumes(tmp_path: Path) -> None:
    path = write_run(tmp_path, settings={"gamma": 0.9})
    change = {"key": "algorithm.clip", "old": 0.2, "new": 0.1, "keeps_exactness": False}
    write_lines(path / "resumes.jsonl", [{"number": 1, "checkpoint": None, "changes": [change]}])
    differences = gather(path).settings.differences
    assert [(d.key, d.before, d.value, d.source) for d in differences] == [
        ("algorithm.gamma", 0.99, 0.9, "command line"),
        ("algorithm.clip", 0.2, 0.1, "resume 1"),
    ]


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    for name in ("metrics.jsonl", "scores.jsonl", "machine.jsonl"):
        (path / name).write_text("")
    (path / "status.json").write_text('{"state": "running"}')
    run = gather(path)
    assert run.final_score is None
    assert any("not been evaluated" in problem for problem in run.problems)
    assert any("'running'" in problem for problem in run.problems)


def test_an_empty_folder_and_one_full_of_nonsense(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert any("config.yaml is missing" in problem for problem in gather(tmp_path / "empty").problems)
    path = write_run(tmp_path, "nonsense")
    for file in path.iterdir():
        file.write_bytes(b"\x00\xff{]!\n" * 5)
    run = gather(path)
    assert run.final_score is None
    assert len(run.problems) > 5
    for name in ("status.json", "manifest.json", "sources.json"):
        (path / name).write_text(json.dumps({"state": [], "env_steps": "x", "versions": 3, "machine": [], "git": 1,
                                             "sources": [], "preset": 7, "created": {}, "command": 5}))  # fmt: skip
    (path / "config.yaml").write_text("env: 3\nalgorithm: []\nhorizon_steps: many\n")
    assert gather(path).state == "unknown state"


def test_values_that_are_not_finite_are_said(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    write_lines(
        path / "metrics.jsonl", [{"env_steps": 1, "update/loss": float("nan")}, {"env_steps": 2, "update/loss": 1.0}]
    )
    run = gather(path)
    assert any("because they are NaN or infinite: 1." in problem for problem in run.problems)


def test_a_run_without_env_steps_is_drawn_over_updates(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    write_lines(path / "metrics.jsonl", [{"env_steps": 0, "updates": n, "update/loss": 1.0} for n in (0, 50, 100)])
    run = gather(path)
    assert run.axis == "updates"
    assert run.metrics.curves["update/loss"].curve().x.tolist() == [0.0, 50.0, 100.0]


def test_many_metrics_stay_bounded() -> None:
    metrics = Metrics()
    line = {f"update/metric_{n}": float(n) for n in range(10_000)}
    for step in range(3):
        metrics.add({"env_steps": step, **line, "update/loss": 1.0, "note": "words"}, float(step))
    assert len(metrics.curves) <= log_summaries.MOST_CURVES
    assert len(metrics.curves) + len(metrics.values) <= log_summaries.MOST_NAMES
    assert len(metrics.curves) + len(metrics.values) + metrics.unlisted == 10_001
    assert metrics.values["update/metric_150"].last == 150.0


def test_important_metrics_are_drawn_and_the_others_listed(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    names = [f"update/x{n}" for n in range(30)]
    line = {**dict.fromkeys([*names, "update/kl"], 1.0), "collect/return": 2.0}
    write_lines(path / "metrics.jsonl", [{"env_steps": step, **line} for step in range(3)])
    run = gather(path)
    drawn = [name for name, _ in shown_metrics(run)]
    assert drawn[0] == "update/kl"
    assert len(drawn) == MOST_DRAWN
    others = [name for name, _ in other_metrics(run)]
    assert sorted([*drawn, *others]) == sorted([*names, "update/kl"])
    assert importance("update/loss") < importance("update/value_loss") < importance("update/anything")


def test_very_many_evaluations_keep_the_best_exactly() -> None:
    evaluations = Evaluations()
    for step in range(5000):
        evaluations.add({"env_steps": step, "evaluate/return_mean": 100.0 if step == 1234 else 1.0}, float(step))
    assert len(evaluations.rows) <= log_summaries.MOST_EVALUATIONS
    assert evaluations.count == 5000
    assert evaluations.best is not None
    assert (evaluations.best.mean, evaluations.best.x) == (100.0, 1234)
    assert max(row.maximum for row in evaluations.rows) == 100.0
    assert evaluations.last is not None
    assert evaluations.last.x == 4999


@pytest.mark.parametrize(("content", "expected"), [(b"....ftypisom", 1), (b"<html></html>", 0)])
def test_only_films_are_taken_for_films(tmp_path: Path, content: bytes, expected: int) -> None:
    path = write_run(tmp_path)
    (path / "videos").mkdir()
    (path / "videos" / "best.mp4").write_bytes(content)
    assert len(gather(path).videos) == expected
