"""Which runs are cleaned and which are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.lab.clean import Plan, Rules, clean, plan_cleaning, restore_runs
from reverie.lab.find import find_runs
from reverie.runs.policies import policy_folder
from reverie.store.lock import lock_run
from tests.run_folders import write_run

DAY = 86_400.0
RECORDS = ("status.json", "metrics.jsonl", "manifest.json")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Four runs of A with scores 1 to 4, aged 1 to 4 days, and a failed one of B, aged 50 days."""
    for number in (1, 2, 3, 4):
        add_run(tmp_path, f"a-{number}", "A-v0", float(number), number * DAY)
    add_run(tmp_path, "b", "B-v0", 0.5, 50 * DAY, state="failed")
    return tmp_path


def add_run(runs: Path, name: str, env: str, score: float, age: float, **status: str) -> None:
    run = write_run(runs, name, env, scores=(score,), **status)
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "data").write_bytes(b"x" * 100)
    (run / "policies").mkdir()
    (run / "policies" / "data").write_bytes(b"y" * 10)
    for record in RECORDS:
        os.utime(run / record, (time.time() - age,) * 2)


def planned(runs: Path, rules: Rules, *words: str) -> Plan:
    return plan_cleaning(find_runs(words, runs), rules)


def names(plan: Plan) -> list[str]:
    return sorted(candidate.run.name for candidate in plan.candidates)


def test_the_best_runs_of_each_env_are_kept(runs: Path) -> None:
    plan = planned(runs, Rules(keep_best=2))
    assert names(plan) == ["a-1", "a-2"]
    assert plan.kept == {"among the best 2 of their env": 3}
    assert plan.bytes == 220


def test_ages_decide(runs: Path) -> None:
    assert names(planned(runs, Rules(keep_recent=2.5 * DAY))) == ["a-3", "a-4", "b"]
    assert names(planned(runs, Rules(older_than=10 * DAY))) == ["b"]
    assert names(planned(runs, Rules(keep_best=1, keep_recent=1.5 * DAY))) == ["a-2", "a-3"]


def test_failed_runs_and_filters(runs: Path) -> None:
    assert names(planned(runs, Rules(failed=True))) == ["b"]
    assert names(planned(runs, Rules(), "env=A*", "best<2")) == ["a-1"]


def test_a_run_in_use_is_kept(runs: Path) -> None:
    with lock_run(runs / "a-1"):
        plan = planned(runs, Rules(keep_best=2))
    assert names(plan) == ["a-2"]
    assert plan.kept["in use"] == 1


def test_a_run_that_is_started_after_the_plan_is_kept(runs: Path) -> None:
    plan = planned(runs, Rules(keep_best=2))
    with lock_run(runs / "a-1"):
        done = clean(plan, for_good=False)
    assert done.runs == ["a-2"]
    assert len(done.problems) == 1
    assert done.bytes == 110
    assert (runs / "a-1" / "checkpoints" / "data").exists()


def test_cleaned_runs_keep_their_records_and_come_back(runs: Path) -> None:
    done = clean(planned(runs, Rules(failed=True)), for_good=False)
    assert (done.runs, done.bytes) == (["b"], 110)
    (cleaned,) = find_runs(["b"], runs)
    assert (cleaned.best_score, cleaned.status, cleaned.problems) == (0.5, "failed", ())
    with pytest.raises(RunError) as caught:
        policy_folder(runs / "b")
    assert "reverie runs restore b" in caught.value.fix
    assert names(planned(runs, Rules(failed=True))) == []
    assert restore_runs(["b"], runs) == ["b"]
    assert (runs / "b" / "policies" / "data").read_bytes() == b"y" * 10


def test_policies_can_be_kept(runs: Path) -> None:
    clean(planned(runs, Rules(failed=True, keep_policies=True)), for_good=True)
    assert not (runs / "b" / "checkpoints").exists()
    assert (runs / "b" / "policies" / "data").exists()
    with pytest.raises(RunError, match="is empty"):
        restore_runs([], runs)


def test_unknown_names_are_explained(runs: Path) -> None:
    clean(planned(runs, Rules(failed=True)), for_good=False)
    with pytest.raises(RunError, match="holds nothing of 'c'"):
        restore_runs(["c"], runs)
