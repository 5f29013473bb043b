"""What is said about two groups, and what weakens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reverie.report.efficiency import efficiency
from reverie.report.fairness import warnings
from reverie.report.groups import Comparison, compare
from reverie.report.run_data import gather
from reverie.report.score_tables import normalised_rows, shared_scale
from reverie.report.verdicts import verdicts
from tests.run_folders import write_run

GOOD, BAD = [90.0, 91.0, 92.0, 93.0, 94.0, 95.0], [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


def compared(folder: Path, left: list[float], right: list[float], **more: Any) -> Comparison:
    """A group with gamma 0.99 and one with gamma 0.5, a run per final score."""
    for name, finals, settings in (("a", left, None), ("b", right, {"gamma": 0.5})):
        for seed, final in enumerate(finals):
            write_run(folder, f"{name}{seed}", "A-v0", seed, (0.0, final / 2, final), settings, **more)
    return compare([gather(path) for path in sorted(folder.iterdir())])


def test_a_clear_difference_is_decided(tmp_path: Path) -> None:
    (verdict,) = verdicts(compared(tmp_path, GOOD, BAD), "A-v0")
    assert verdict.is_decided
    assert verdict.sentence() == (
        "ppo is better than ppo gamma=0.5: more than 99.9 % of bootstrap resamples over seeds (6 seeds each), "
        "rank test p = 0.002."
    )
    assert json.loads(json.dumps(verdict.to_json()))["more"] == [0, 0]


def test_few_seeds_decide_nothing_and_say_how_many_should(tmp_path: Path) -> None:
    (verdict,) = verdicts(compared(tmp_path, GOOD[:3], BAD[:3]), "A-v0")
    assert not verdict.is_decided
    assert "not decided" in verdict.sentence()
    assert "Fewer than 4 seeds each never decide." in verdict.sentence()
    assert verdict.sentence().endswith("About 3 more seeds each should decide it.")


def test_single_runs_claim_nothing(tmp_path: Path) -> None:
    (verdict,) = verdicts(compared(tmp_path, GOOD[:1], BAD[:2]), "A-v0")
    assert "A single run claims nothing (1 and 2 seeds)." in verdict.sentence()
    assert verdict.sentence().endswith("About 4 more of ppo and 3 more of ppo gamma=0.5 should decide it.")


def test_equal_scores_have_no_difference_in_sight(tmp_path: Path) -> None:
    (verdict,) = verdicts(compared(tmp_path, [5.0] * 5, [5.0] * 5), "A-v0")
    assert (verdict.p, verdict.share, verdict.is_decided) == (1.0, 0.5, False)
    assert verdict.sentence().endswith("No difference is in sight.")


def test_several_pairs_share_the_error(tmp_path: Path) -> None:
    """Five against five separated have p = 0.008, which three pairs allow (0.05 / 3) and seven groups do not."""
    for group in range(7):
        for seed in range(5):
            write_run(tmp_path, f"{group}-{seed}", seed=seed, scores=(100.0 * group + seed,), settings={"lr": group})
    runs = [gather(path) for path in sorted(tmp_path.iterdir())]
    assert all(verdict.is_decided for verdict in verdicts(compare(runs[:15]), "Toy-v0"))
    assert not any(verdict.is_decided for verdict in verdicts(compare(runs), "Toy-v0"))


def test_repeated_looks_are_stricter(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [90.0, 91.0, 92.0, 93.0], [10.0, 11.0, 12.0, 13.0])
    assert verdicts(comparison, "A-v0")[0].is_decided
    comparison.most_seeds = 10
    assert not verdicts(comparison, "A-v0")[0].is_decided


def test_what_is_unfair_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, GOOD[:2], BAD[:2])
    assert warnings(comparison, "A-v0") == []
    write_run(tmp_path, "longer", "A-v0", 1, (1.0,) * 3, {"gamma": 0.5}, env_steps=900)
    write_run(tmp_path, "young", "A-v0", 7, state="running", final_score=None)
    manifest = tmp_path / "young" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("abc123", "def456"))
    found = " ".join(warnings(compare([gather(path) for path in sorted(tmp_path.iterdir())]), "A-v0"))
    assert "Unequal budgets: " in found
    assert "300 to 900 env steps" in found
    assert "1 run without a final score" in found
    assert "has seed 1 2 times" in found
    assert "2 commits" in found


def test_sample_efficiency_by_hand(tmp_path: Path) -> None:
    """Evaluations come at 100, 200 and 300 env steps with 0, half and all of the final score. Solved is 25."""
    comparison = compared(tmp_path, [20.0, 40.0, 80.0], BAD[:2])
    found = efficiency(comparison, "A-v0")
    assert found is not None
    assert found.title == "Env steps to a return of 25.0 (solved)"
    assert found.rows == [["ppo", "2 of 3", "300", "200 to 300"], ["ppo gamma=0.5", "0 of 2", "never", "–"]]
    comparison.threshold = 5.0
    found = efficiency(comparison, "A-v0")
    assert found is not None
    assert [row[1:3] for row in found.rows] == [["3 of 3", "200"], ["2 of 2", "200"]]


def test_runs_evaluated_at_different_steps_count_too(tmp_path: Path) -> None:
    """They share no range of steps, so there is no mean curve."""
    for seed, scores in ((1, (30.0,)), (2, (1.0, 30.0))):
        run = write_run(tmp_path, f"a{seed}", "A-v0", seed, scores)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        (run / "metrics.jsonl").write_text(lines[-1] + "\n")
        config = json.loads((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(json.dumps({**config, "horizon_steps": 200}))
    comparison = compare([gather(path) for path in sorted(tmp_path.iterdir())])
    found = efficiency(comparison, "A-v0")
    assert found is not None
    assert comparison.groups[0].curve() is None
    assert found.rows == [["ppo", "2 of 2", "150", "100 to 200"]]


@pytest.mark.parametrize(("by", "unit", "median"), [("updates", "updates", "1"), ("wall", "minutes", "0.01667")])
def test_curves_are_aligned_by_updates_or_time(tmp_path: Path, by: str, unit: str, median: str) -> None:
    """The second evaluation is at 200 env steps: update 1, and a second after the first record of the machine."""
    write_run(tmp_path, "a", "A-v0", 1, (0.0, 50.0, 80.0))
    found = efficiency(compare([gather(tmp_path / "a")], by), "A-v0")
    assert found is not None
    assert unit in found.title.lower()
    assert found.rows[0][2] == median


def test_scores_are_normalised_by_the_references_of_the_env(tmp_path: Path) -> None:
    for seed, final in enumerate((20.0, 60.0)):
        run = write_run(tmp_path, f"a{seed}", "A-v0", seed, (final,))
        config = json.loads((run / "config.yaml").read_text())
        config["env"]["spec"] = {"random": 20.0, "reference": 120.0}
        (run / "config.yaml").write_text(json.dumps(config))
    comparison = compare([gather(path) for path in sorted(tmp_path.iterdir())])
    assert [row[:2] for row in normalised_rows(comparison.groups)] == [["ppo", "0.20"]]
    assert "random play" in shared_scale(comparison)
    assert normalised_rows(compared(tmp_path / "x", GOOD, BAD).groups) == []
