"""Analyses of run folders: what happened, causes with evidence, and commands that can be typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from reverie.cli.main import app
from reverie.lab.analyze.analysis import Analysis, analyze
from reverie.lab.analyze.text import as_text
from reverie.report.run_data import gather
from tests.run_folders import write_lines, write_run
from tests.unit.test_project import parse_command

RISING = [float(score) for score in range(0, 60, 3)]
FLAT = [1.0, 2.0, 1.0, 2.0] * 5


def analyse(runs: Path) -> list[Analysis]:
    found = analyze([gather(path, with_videos=False) for path in sorted(runs.iterdir())])
    for analysis in found:
        check_commands(analysis)
    return found


def one(runs: Path, scores: list[float], alerts: list[dict[str, Any]] | None = None, **settings: Any) -> Analysis:
    run = write_run(runs, "a-s1", scores=scores, settings=settings)
    write_lines(run / "alerts.jsonl", alerts or [])
    (analysis,) = analyse(runs)
    return analysis


def check_commands(analysis: Analysis) -> None:
    """Every suggestion is a command that the command line accepts."""
    command = typer.main.get_command(app)
    for text in [analysis.next, *(cause.next for cause in analysis.causes)]:
        words = shlex.split(text)
        assert words[0] == "reverie", text
        parse_command(command, words[1:])


def test_a_solved_task_needs_no_causes(tmp_path: Path) -> None:
    analysis = one(tmp_path, [*RISING, *[57.0] * 10])
    assert analysis.kind == "learnt"
    assert analysis.happened == "It learnt the task: the goal is reached."
    assert analysis.causes == []
    assert analysis.next == "reverie train Toy-v0:ppo --seed 1,2,3,4,5"
    assert analysis.doubts == ["1 seed may be chance; 5 or more are usual."]


def test_a_rising_curve_needs_a_longer_budget(tmp_path: Path) -> None:
    analysis = one(tmp_path, [score / 3 for score in RISING])
    assert analysis.kind == "still improving"
    assert analysis.causes[0].text == "The budget is too short."
    assert "--steps 4000" in analysis.next


def test_alerts_are_evidence(tmp_path: Path) -> None:
    alert = {"env_steps": 300, "updates": 2, "level": "warning", "rule": "kl",
             "message": "update/kl: an update changes the policy by a KL of 0.5 (above 0.1). Lower "
                        "algorithm.learning_rate or algorithm.epochs, or set algorithm.target_kl=0.02."}  # fmt: skip
    analysis = one(tmp_path, FLAT, [alert], learning_rate="lin_1e-3", gamma=0.99)
    assert analysis.kind == "nothing learnt"
    cause = next(cause for cause in analysis.causes if "Alert" in cause.evidence)
    assert cause.text == "Updates change the policy too much at once."
    assert cause.evidence == (
        "Alert: update/kl: an update changes the policy by a KL of 0.5 (above 0.1) (first at env step 300)."
    )
    assert cause.next == (
        "reverie train Toy-v0:ppo algorithm.gamma=0.99 --seed 1,2,3 algorithm.learning_rate=lin_0.0005"
    )
    assert len(analysis.causes) == 3


def test_a_changed_setting_is_named(tmp_path: Path) -> None:
    analysis = one(tmp_path, FLAT, gamma=0.5)
    (cause,) = [cause for cause in analysis.causes if cause.text == "Settings differ from the preset."]
    assert cause.evidence == "algorithm.gamma=0.5 instead of 0.99."
    assert cause.next == "reverie train Toy-v0:ppo --seed 1,2,3"


def test_rewards_that_never_differ_come_first(tmp_path: Path) -> None:
    run = write_run(tmp_path, "a-s1", scores=[-200.0] * 20)
    write_lines(run / "scores.jsonl", [{"env_steps": 200 * i, "return": -200.0, "length": 200} for i in range(40)])
    (analysis,) = analyse(tmp_path)
    assert analysis.causes[0].evidence == "All 40 training episodes had the return −200.0."


def test_seeds_that_disagree_are_unstable(tmp_path: Path) -> None:
    for seed, scores in enumerate(([*RISING, *[57.0] * 10], [*FLAT, *FLAT[:10]], [*RISING, *[57.0] * 10]), start=1):
        write_run(tmp_path, f"a-s{seed}", seed=seed, scores=scores)
    (analysis,) = analyse(tmp_path)
    assert analysis.kind == "unstable seeds"
    assert analysis.happened == "Seeds differ: 2 learnt, 1 nothing learnt."
    assert any("Final scores of 3 seeds: 2.000 to 57.00" in line for line in analysis.evidence)


def test_too_little_data_and_unfinished_runs_are_admitted(tmp_path: Path) -> None:
    write_run(tmp_path, "a-s1", scores=(1.0, 2.0), state="running")
    write_lines(tmp_path / "a-s1" / "scores.jsonl", [])
    (analysis,) = analyse(tmp_path)
    assert analysis.kind == "unknown"
    assert "1 run of 1 is still running." in analysis.doubts
    assert "The curve has only 2 points." in analysis.doubts


def test_a_damaged_run_is_no_crash(tmp_path: Path) -> None:
    run = tmp_path / "broken"
    run.mkdir()
    (run / "metrics.jsonl").write_text("{]\n")
    (analysis,) = analyse(tmp_path)
    assert (analysis.env, analysis.kind) == ("unknown env", "unknown")
    assert analysis.next.startswith("reverie runs show broken")


def test_the_text_fits_one_screen(tmp_path: Path) -> None:
    text = as_text(one(tmp_path, FLAT, gamma=0.5))
    lines = text.splitlines()
    assert len(lines) <= 30
    assert all(len(line) <= 80 for line in lines if "reverie " not in line)
    assert "What happened: It did not learn" in text
    assert "Possible: Settings differ from the preset." in text


def test_the_command_prints_text_or_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    write_run(tmp_path / "runs", "a-s1", scores=FLAT)
    words = ["analyze", "a-s1", "--runs-dir", str(tmp_path / "runs")]
    assert "What happened" in CliRunner().invoke(app, words).output
    (found,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert found["kind"] == "nothing learnt"
    assert {"text", "evidence", "next", "likelihood"} == set(found["causes"][0])
