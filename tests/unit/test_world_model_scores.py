"""The table of world models: runs of any checkout become records, records become rows, few seeds are not a claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import scores, world_models
from bench.world_models import Record
from tests.unit.config.test_presets import SPECS

SWINGUP = "dmc/cartpole_swingup, states"


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_models, "RECORDS", tmp_path / "records.jsonl")


def write_run(root: Path, seed: int = 101, state: str = "finished", **changes: Any) -> Path:
    run = root / "checkout" / "runs" / f"swingup-{seed}"
    run.mkdir(parents=True)
    git = changes.get("git", {"commit": "0123456789", "is_clean": True})
    spec = changes.get("spec", "dmc/cartpole_swingup:dreamer")
    (run / "manifest.json").write_text(json.dumps({"spec": spec, "seed": seed, "git": git}))
    (run / "status.json").write_text(json.dumps({"state": state}))
    kwargs = "{image: true}" if changes.get("images") else "{}"
    (run / "config.yaml").write_text(
        f"env: {{id: swingup, kwargs: {kwargs}, wrappers: [{{kind: action_repeat, repeats: 8}}]}}"
    )
    steps = changes.get("steps", 7500)
    (run / "metrics.jsonl").write_text(json.dumps({"env_steps": steps}) + "\n")
    seconds = (1800, 3600, 900, 1800)  # resumed after the second line
    (run / "machine.jsonl").write_text("".join(json.dumps({"usage/cpu_seconds": s}) + "\n" for s in seconds))
    return run


def test_every_task_names_a_shipped_variant_or_an_env_without_tuned_values() -> None:
    untuned = {"dmc/walker_stand:dreamer", "dmc/ball_in_cup_catch:dreamer"}
    assert {task.spec for task in world_models.TASKS.values()} <= set(SPECS) | untuned


def test_a_run_of_another_checkout_is_evaluated_once_and_named_by_its_commit(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    write_run(tmp_path, 102, state="running")
    asked: list[tuple[Path, int]] = []

    def evaluate(run: Path, seed: int) -> float:
        asked.append((run, seed))
        return 850.0

    expected = [Record(SWINGUP, 101, 850.0, 7500, 60_000, 1.5, "0123456")]
    assert world_models.record_runs(tmp_path, evaluate) == expected
    assert world_models.record_runs(tmp_path, evaluate) == expected == world_models.read_records()
    assert asked == [(run, 101)]


@pytest.mark.parametrize("changes", [
    {"spec": "CartPole-v1:ppo"}, {"images": True}, {"steps": 5000}, {"git": None}, {"git": {"commit": None}},
])  # fmt: skip
def test_other_runs_belong_to_no_task(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert world_models.describe(write_run(tmp_path, **changes)) is None


def test_changes_that_were_not_committed_are_told(tmp_path: Path) -> None:
    found = world_models.describe(write_run(tmp_path, git={"commit": "0123456789", "is_clean": False}))
    assert found is not None
    assert found.commit == "0123456-dirty"


def test_images_and_more_frames_are_another_task(tmp_path: Path) -> None:
    found = world_models.describe(write_run(tmp_path, images=True, steps=12_500))
    assert found is not None
    assert (found.task, found.frames) == ("dmc/cartpole_swingup, pixels", 100_000)


def record(seed: int, is_tuned_on: bool = False) -> Record:
    return Record(SWINGUP, seed, 800.0 + seed, 7500, 60_000, 0.5, "abc1234", is_tuned_on)


def test_only_fresh_seeds_make_a_row_and_fewer_are_not_yet_shown() -> None:
    few = world_models.make_section([record(1, is_tuned_on=True), record(2), record(3)])
    assert few.index("Not yet shown") < few.index("| 1*, 2, 3 |")
    enough = world_models.make_section([record(1, is_tuned_on=True), record(4), record(2), record(3)])
    row = f"| {SWINGUP} | 2, 3, 4 | 7,500 | 60,000 | 802.0, 803.0, 804.0 | 803.0 | 800 | 513 at 100k (499-544) | 0.50 |"
    assert enough.index(row) < enough.index("Not yet shown")
    assert "No run yet: CartPole-v1, " in enough


def test_the_same_seed_twice_counts_once() -> None:
    section = world_models.make_section([record(2), record(2), record(3)])
    assert section.index("Not yet shown") < section.index("| 2, 2, 3 |")


def test_the_page_has_the_section_before_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "PAGE", tmp_path / "scores.md")
    monkeypatch.setattr(scores, "evaluate", lambda run, seed: 812.0)
    monkeypatch.setattr("sys.argv", ["scores", "--from", str(tmp_path)])
    write_run(tmp_path)
    scores.PAGE.write_text(scores.make_page({}, "\nOurs.\n"))
    scores.main()
    page = scores.PAGE.read_text()
    assert page.index("| 812.0 | 812.0 |") < page.index("## Notes")
    scores.main()
    assert scores.PAGE.read_text() == page
