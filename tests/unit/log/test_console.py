"""What is printed while a run trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.core.counters import Budget
from reverie.log.console import Console
from reverie.log.metric_styles import MetricRule, Rules


def metrics(env_steps: int, **values: float) -> dict[str, float]:
    return {"env_steps": env_steps, "updates": env_steps // 10, **values}


def machine(env_steps: int) -> dict[str, float]:
    return {"env_steps": env_steps, "speed/env_steps_per_second": 1234.5}


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path, Budget(total=2000), quiet=True)
    yield made
    made.close()


def lines(folder: Path) -> list[str]:
    return (folder / "run.log").read_text().splitlines()


def test_a_row_after_every_twentieth_of_the_run(console: Console, tmp_path: Path) -> None:
    for steps in range(10, 2001, 10):
        console.write("metrics", metrics(steps, **{"collect/return": 1.0, "update/loss": 0.5}))
        console.write("machine", machine(steps))
    console.stop()
    header, *rows = lines(tmp_path)
    assert header.split() == ["env", "steps", "updates", "return", "eval", "return", "length", "loss", "steps/s"]
    assert [row.split()[0] for row in rows] == [f"{steps:,}" for steps in range(100, 2001, 100)]
    assert rows[0].split() == ["100", "10", "1.00", "-", "-", "0.5000", "1,234"]


def test_repeated_actions_show_frames_next_to_env_steps(tmp_path: Path) -> None:
    console = Console(tmp_path, Budget(total=1_000_000), quiet=True, action_repeat=4)
    console.write("metrics", metrics(500_000, **{"frames": 2_000_000, "update/loss": 0.5}))
    console.write("machine", machine(500_000))
    console.close()
    header, row = lines(tmp_path)
    assert header.split() == ["env", "steps", "frames", "updates", "return", "eval", "return", "loss", "steps/s"]
    assert row.split()[:3] == ["500,000", "2,000,000", "50,000"]
    assert max(len(header), len(row)) <= 80


def test_a_run_without_env_steps_is_told_in_updates(tmp_path: Path) -> None:
    console = Console(tmp_path, Budget("updates", 200), quiet=True)
    for updates in range(0, 201, 5):
        console.write("metrics", {"env_steps": 0, "updates": updates, "update/loss": 0.5})
        console.write("machine", {"env_steps": 0, "updates": updates, "speed/updates_per_second": 77.0})
    console.stop()
    console.alert("warning", "look", 5000)
    console.close()
    header, *rows, alert = lines(tmp_path)
    assert header.split() == ["updates", "eval", "return", "loss", "updates/s"]
    assert [row.split() for row in rows] == [[str(done), "-", "0.5000", "77"] for done in range(10, 201, 10)]
    assert alert == "warning at update 5,000: look"


def test_an_evaluation_gets_a_row_at_once(console: Console, tmp_path: Path) -> None:
    console.write("metrics", metrics(30, **{"evaluate/return_mean": 475.25}))
    console.write("metrics", metrics(60, **{"update/loss": 0.5}))
    console.write("machine", machine(60))
    assert [row.split()[:4] for row in lines(tmp_path)[1:]] == [["30", "3", "-", "475.2"]]


def test_the_last_row_is_not_repeated_by_the_evaluation_behind_it(console: Console, tmp_path: Path) -> None:
    console.write("metrics", metrics(2010, **{"collect/return": 1.0}))
    console.write("machine", machine(2010))
    console.write("metrics", metrics(2010, **{"evaluate/return_mean": 475.25}))
    console.stop()
    header, *rows = lines(tmp_path)
    assert header.split()[0] == "env"
    assert [row.split()[:4] for row in rows] == [["2,010", "201", "1.00", "475.2"]]


def test_rows_past_the_budget_are_shown_without_an_evaluation(console: Console, tmp_path: Path) -> None:
    for steps in (2010, 2200):
        console.write("metrics", metrics(steps))
        console.write("machine", machine(steps))
    console.stop()
    assert [row.split()[0] for row in lines(tmp_path)[1:]] == ["2,010", "2,200"]


def test_an_algorithm_without_a_sum_shows_its_most_important_loss(console: Console, tmp_path: Path) -> None:
    parts = {"update/loss_policy": 0.1, "update/loss_reconstruction": 7.5, "update/loss_reward": 2.0}
    for steps, losses in ((100, {"collect/return": 1.0}), (200, parts), (300, parts), (400, {"update/loss": 3.0})):
        console.write("metrics", metrics(steps, **losses))
        console.write("machine", machine(steps))
    before, *told = lines(tmp_path)[1:]
    assert before.split()[5] == "-"
    assert told[0] == "loss: update/loss_reconstruction"
    assert [row.split()[5] for row in (told[1], told[2], told[4])] == ["7.5000", "7.5000", "3.0000"]
    assert told[3] == "loss: update/loss"
    assert len(told) == 5


def test_rules_choose_the_loss_of_plain_rows(tmp_path: Path) -> None:
    rules = Rules({"update/loss_reward": MetricRule(importance=95)})
    console = Console(tmp_path, Budget(total=2000), quiet=True, rules=rules)
    console.write("metrics", metrics(100, **{"update/loss_reconstruction": 7.5, "update/loss_reward": 2.0}))
    console.write("machine", machine(100))
    console.close()
    assert lines(tmp_path)[-1].split()[5] == "2.0000"


def test_rows_fit_80_columns_and_stand_below_their_titles(console: Console, tmp_path: Path) -> None:
    values = {"collect/return": -1e5, "evaluate/return_mean": 12345.6, "collect/length": 1e5, "update/loss": -99.12345}
    console.write("metrics", metrics(999_999_999, **values))
    console.write("machine", machine(999_999_999))
    header, row, *_ = lines(tmp_path)
    assert len(header) == len(row) <= 80
    assert header.index("return") + len("return") == row.index("-100000.0") + len("-100000.0")


def test_scores_are_not_printed(console: Console, tmp_path: Path) -> None:
    console.write("scores", {"env_steps": 1000, "return": 1.0})
    assert lines(tmp_path) == []


def test_quiet_writes_only_the_log(console: Console, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    console.say("Here [we] go")
    assert lines(tmp_path) == ["Here [we] go"]
    assert capfd.readouterr() == ("", "")


def test_the_screen_shows_what_the_log_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(tmp_path, Budget(total=100))
    console.say("runs/[bold]name: a line " + "x" * 100)
    console.write("metrics", metrics(50, **{"evaluate/return_mean": 1.0}))
    console.close()
    printed = capsys.readouterr()
    assert printed.err == (tmp_path / "run.log").read_text()
    assert printed.out == ""
    assert len(lines(tmp_path)) == 3


def test_the_first_crash_of_an_env_is_told_once(console: Console, tmp_path: Path) -> None:
    for steps, crashes in ((1, 0), (2, 1), (3, 1), (4, 2)):
        console.write("machine", {**machine(steps), "env/crashes": crashes})
        assert len(lines(tmp_path)) == (crashes > 0)
    assert "crashed" in lines(tmp_path)[0]
