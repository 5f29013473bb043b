"""What there is to show, whatever number of metrics there is."""

from __future__ import annotations

import math

import pytest

from reverie.core.counters import Budget
from reverie.log import table_data as module
from reverie.log.metric_styles import Rules
from reverie.log.table_data import MOST_TRACKED, TableData


def names(board: TableData, count: int = 1000) -> list[str]:
    return [metric.name for metric in board.chosen(count)]


def test_metrics_are_grouped_and_ordered() -> None:
    board = TableData(Rules())
    board.write(
        "machine", {"env_steps": 1, "time": 2.0, "memory/peak_megabytes": 3.0, "speed/env_steps_per_second": 4.0}
    )
    board.write(
        "metrics", {"env_steps": 1, "phase": "learn", "update/kl": 1.0, "update/loss": 1.0, "collect/return": 1.0}
    )
    assert names(board) == [
        "collect/return", "update/loss", "update/kl", "speed/env_steps_per_second", "memory/peak_megabytes",
    ]  # fmt: skip
    assert [(m.group, m.label) for m in board.chosen(1)] == [("collect", "return")]
    assert board.position["phase"] == "learn"


def test_the_most_important_come_first_into_a_small_window() -> None:
    board = TableData(Rules())
    board.write("metrics", {"env_steps": 1, "update/x": 1.0, "update/loss": 1.0, "evaluate/return_mean": 1.0})
    assert names(board, 2) == ["evaluate/return_mean", "update/loss"]
    assert board.hidden(2) == 1


def test_best_so_far_follows_the_direction() -> None:
    board = TableData(Rules())
    for value in (3.0, 1.0, math.nan, 2.0):
        board.write("metrics", {"env_steps": 1, "collect/return": value, "update/loss": value, "update/kl": value})
    assert board.metrics["collect/return"].best == 3.0
    assert board.metrics["update/loss"].best == 1.0
    assert board.metrics["update/loss"].value == 2.0


def test_other_kinds_of_records_are_not_metrics() -> None:
    board = TableData(Rules())
    board.write("scores", {"env_steps": 1, "return": 2.0, "log/success": 1.0})
    board.write("video", {"env_steps": 1, "name": "evaluate/video"})
    assert board.metrics == {}


def test_ten_thousand_names_are_not_all_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    rules = Rules()
    style = rules.style
    monkeypatch.setattr(rules, "style", lambda name: calls.append(name) or style(name))
    board = TableData(rules)
    record = {"env_steps": 1, **{f"other/{number}": 1.0 for number in range(10_000)}}
    for _ in range(3):
        board.write("metrics", record)
    board.write("metrics", {"env_steps": 2, "evaluate/return_mean": 5.0})
    assert len(board.metrics) == MOST_TRACKED
    assert names(board, 1) == ["evaluate/return_mean"]
    assert board.hidden(1) == 10_000
    assert len(calls) == 10_001  # rules are looked up once per name, however often it comes


def test_endless_names_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SEEN", 10)
    board = TableData(Rules())
    for number in range(MOST_TRACKED + 50):
        board.write("metrics", {"env_steps": number, f"other/{number}": 1.0})
    assert board.hidden(0) == MOST_TRACKED + 10


def test_unwanted_metrics_are_neither_shown_nor_counted() -> None:
    board = TableData(Rules(show=["collect/*"]))
    board.write("metrics", {"env_steps": 1, "collect/return": 1.0, "update/loss": 1.0})
    assert names(board) == ["collect/return"]
    assert board.hidden(1) == 0


def test_only_the_last_alerts_stay() -> None:
    board = TableData(Rules())
    for number in range(5):
        board.alert("warning", f"number {number}", number)
    assert [alert.text for alert in board.alerts] == ["number 2", "number 3", "number 4"]


def test_how_far_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    board = TableData(Rules(), Budget(total=1000))
    assert board.fraction == 0.0
    assert board.seconds_left is None
    monkeypatch.setattr(module.time, "perf_counter", lambda: 20.0)
    for now, steps in ((10.0, 100), (20.0, 300)):
        board.position["env_steps"] = steps
        board.tick(now)
    assert board.fraction == 0.3
    assert board.seconds_left == 35.0
    assert TableData(Rules()).fraction is None
