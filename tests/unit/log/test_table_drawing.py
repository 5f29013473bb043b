"""The drawing: fits every window, shows what matters first."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console as Screen

from reverie.core.counters import Budget
from reverie.log.metric_styles import Rules
from reverie.log.progress import Task
from reverie.log.table_data import TableData
from reverie.log.table_drawing import draw


def make_board(extra: int = 0) -> TableData:
    board = TableData(Rules(), Budget(total=1000))
    board.title = "CartPole-v1 · ppo · seed 1"
    for steps in range(0, 600, 20):
        board.write("metrics", {
            "env_steps": steps, "phase": "learn", "cycles": steps // 10, "updates": 12_345_678, "episodes": 7,
            "collect/return": float(steps), "update/loss": -1.0 / (steps + 1), "update/" + "long_" * 12: 1e30,
            "evaluate/return_mean": 2.0 * steps, "update/spoilt": math.nan,
            **{f"other_group_with_a_long_name/{number}": 1.0 for number in range(extra)},
        })  # fmt: skip
        board.write("machine", {"env_steps": steps, "speed/env_steps_per_second": 1234.5, "memory/now_megabytes": 99.0})
        board.tick()
    return board


def lines_of(
    board: TableData, width: int, height: int, tasks: tuple[Task, ...] = (), ascii_only: bool = False
) -> list[str]:
    screen = Screen(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with screen.capture() as captured:
        screen.print(draw(board, width, height, tasks, ascii_only), soft_wrap=False)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 143, 144, 200])
@pytest.mark.parametrize("height", [4, 8, 13, 14, 23, 60])
@pytest.mark.parametrize("extra", [0, 100])
def test_a_drawing_fits_its_window(width: int, height: int, extra: int) -> None:
    board = make_board(extra)
    board.alert("warning", "an alert that is much too long for one line " * 5)
    lines = lines_of(board, width, height, (Task("evaluating", total=10),))
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_80_columns_show_everything_of_a_small_run() -> None:
    text = "\n".join(lines_of(make_board(), 80, 23))
    for word in ("learn", "cycle 58", "58%", "580 of 1,000", "left", "return_mean", "1,160.0", "★", "▁", "█", "99 MB"):
        assert word in text
    assert "more" not in text


@pytest.mark.parametrize(("frames", "is_shown"), [(580, False), (2320, True)])
def test_frames_are_shown_only_if_actions_are_repeated(frames: int, is_shown: bool) -> None:
    board = make_board()
    board.write("metrics", {"env_steps": 580, "frames": frames})
    assert (f"{frames:,} frames" in "\n".join(lines_of(board, 80, 23))) == is_shown


def test_groups_are_named_once_and_in_order() -> None:
    text = "\n".join(lines_of(make_board(), 80, 23))
    places = [text.index(f"│ {group} ") for group in ("evaluate", "collect", "update", "speed", "memory")]
    assert places == sorted(places)
    assert text.count("│ update ") == 1


def test_a_low_window_shows_what_matters_and_counts_the_rest() -> None:
    lines = lines_of(make_board(extra=50), 80, 6)
    assert len(lines) == 6
    assert "return_mean" in lines[2]
    assert lines[-1] == "+ 54 more"


@pytest.mark.parametrize(("height", "is_spaced"), [(23, False), (40, True)])
def test_groups_are_set_apart_where_there_is_room(height: int, is_spaced: bool) -> None:
    lines = lines_of(make_board(extra=50), 80, height)
    assert any(not line.strip("│ ") for line in lines) is is_spaced
    assert "more" in lines[-1]


def test_a_wide_window_has_two_columns() -> None:
    (row,) = [line for line in lines_of(make_board(extra=20), 200, 23) if "return_mean" in line]
    assert row.count("★") + row.count("▄") > 1
    assert len(lines_of(make_board(extra=30), 200, 60)) < len(lines_of(make_board(extra=30), 100, 60))


def test_alerts_and_tasks_are_shown() -> None:
    board = make_board()
    board.alert("error", "entropy\nis gone", 40)
    task = Task("encoding video", total=4)
    task.advance(3)
    text = "\n".join(lines_of(board, 80, 30, (task,)))
    assert "✗ entropy is gone  at 40" in text
    assert "encoding video" in text
    assert "75%" in text


def test_a_run_that_has_not_begun() -> None:
    text = "\n".join(lines_of(TableData(Rules(), Budget(total=100)), 80, 23))
    assert "starting" in text
    assert "0%" in text


def test_an_open_budget_has_no_bar() -> None:
    board = make_board()
    board.budget = Budget()
    assert "580 env steps" in lines_of(board, 80, 23)[1]


def test_arrows_say_whether_it_gets_better() -> None:
    screen = Screen(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
    with screen.capture() as captured:
        screen.print(draw(make_board(), 100, 23))
    rows = {name: line for line in captured.get().splitlines() for name in ("return_mean", "loss") if f"{name}" in line}
    assert "\x1b[32m▲" in rows["return_mean"]
    assert "\x1b[31m▲" in rows["loss"] or "▲" not in rows["loss"]


def test_plain_letters_where_nothing_else_can_be_shown() -> None:
    text = "\n".join(lines_of(make_board(), 80, 10, ascii_only=True))
    assert "★" not in text
    assert "█" not in text
    assert "* 1,160.0" in text
