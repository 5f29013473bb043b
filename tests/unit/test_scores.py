"""The table of scores: rows are kept, renewed and judged."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bench import scores
from reverie.config.presets import find_env_preset, variant_names

UCB = "Bandit/Bernoulli-v0:ucb"


def result(seed: int, score: float, spec: str = "Taxi-v4:qlearning") -> scores.Result:
    return scores.Result(spec, seed, "tree", "abc1234", score, 1000 * seed, 60.0)


def test_every_task_is_a_shipped_variant() -> None:
    for env, _, variant in (spec.rpartition(":") for spec in scores.TASKS):
        assert find_env_preset(env) is not None
        assert variant in variant_names(env)


def test_a_row_says_all_that_was_measured() -> None:
    row = scores.make_row("Taxi-v4:qlearning", [result(1, 7.0), result(2, 8.0)])
    assert row == "| Taxi-v4:qlearning | 1-2 | 2,000 | 2,000 | 7.00, 8.00 | 7.50 | 7.5 | 1.0 | abc1234 |"


def test_a_page_keeps_other_rows_and_notes_and_names_what_is_missed() -> None:
    first = scores.make_page({"Taxi-v4:qlearning": scores.make_row("Taxi-v4:qlearning", [result(1, 7.4)])}, "\nOurs.\n")
    rows, notes = scores.read_page(first)
    assert notes == "\nOurs.\n"
    page = scores.make_page({**rows, UCB: scores.make_row(UCB, [result(1, 0.96, UCB)])}, notes)
    assert "| Taxi-v4:qlearning | 1-1 |" in page
    assert "| Bandit/Bernoulli-v0:ucb env.max_episode_steps=10" in page
    assert "Below what must be reached: Taxi-v4:qlearning.\n" in page
    assert f"With fewer seeds than wanted: Taxi-v4:qlearning, {UCB}.\n" in page
    assert page.endswith("## Notes\n\nOurs.\n")
    assert scores.read_page(page)[0].keys() == {"Taxi-v4:qlearning", UCB}


def test_the_mean_of_all_seeds_decides_whether_a_goal_is_missed() -> None:
    def page(*returns: float) -> str:
        results = [result(seed, score) for seed, score in enumerate(returns, 1)]
        return scores.make_page({"Taxi-v4:qlearning": scores.make_row("Taxi-v4:qlearning", results)}, "")

    assert "Below what must be reached: none.\n" in page(7.0, 8.0, 8.0)
    assert "Below what must be reached: Taxi-v4:qlearning.\n" in page(7.0, 7.0, 8.0)


def test_only_the_same_package_without_changes_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "RESULTS", tmp_path / "results.jsonl")
    assert scores.remembered("Taxi-v4:qlearning", 1, "tree") is None
    lines = [result(1, 7.0), dataclasses.replace(result(1, 7.9), package="tree-dirty")]
    scores.RESULTS.write_text("".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines))
    assert scores.remembered("Taxi-v4:qlearning", 1, "tree") == result(1, 7.0)
    assert scores.remembered("Taxi-v4:qlearning", 2, "tree") is None
    assert scores.remembered("Taxi-v4:qlearning", 1, "tree-dirty") is None


@pytest.mark.parametrize(("curve", "is_logarithmic"), [(np.log, True), (np.sqrt, False)])
def test_the_fit_of_the_regret(tmp_path: Path, curve: np.ufunc, is_logarithmic: bool) -> None:
    """Regret counts anew in every episode; the fit puts the pieces together."""
    pulls = np.arange(10, 10_001, 10)
    regret = np.diff(curve(pulls), prepend=0.0)
    lines = [json.dumps({"length": 10, "log/regret": piece}) for piece in regret]
    (tmp_path / "scores.jsonl").write_text("\n".join(lines))
    fit = scores.regret_fit({"path": str(tmp_path)}, 1)
    assert fit == pytest.approx(1.0) if is_logarithmic else fit < 0.95
