"""The live table: drawn not too often, never in the way of lines that are said, and gone without a trace of harm."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as RichConsole

from reverie.core.counters import Budget
from reverie.log import console as console_module
from reverie.log import live_table as live_module
from reverie.log import progress as progress_module
from reverie.log.console import Console
from reverie.log.live_table import LEAST_SECONDS, Screen
from reverie.log.progress import Task, is_terminal

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal(Screen):
    """A terminal of 80 columns and 24 lines that keeps what it is sent."""

    def __init__(self) -> None:
        RichConsole.__init__(
            self, file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None,
            highlight=False, soft_wrap=True, _environ={},
        )  # fmt: skip

    @property
    def text(self) -> str:
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


@pytest.fixture
def make_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Console]]:
    monkeypatch.setattr(console_module, "is_terminal", lambda: True)
    monkeypatch.setattr(console_module, "Screen", Terminal)
    monkeypatch.setattr(live_module, "IDLE_SECONDS", 3600)
    made: list[Console] = []

    def make() -> Console:
        made.append(Console(tmp_path, Budget(total=100)))
        return made[-1]

    yield make
    for console in made:
        console.close()


@pytest.fixture
def console(make_console: Callable[[], Console]) -> Console:
    made = make_console()
    made.start("CartPole-v1 · ppo")
    return made


def terminal(console: Console) -> Terminal:
    assert isinstance(console.screen, Terminal)
    return console.screen


def write(console: Console, steps: int) -> None:
    console.write("metrics", {"env_steps": steps, "updates": 1, "collect/return": 1.5, "phase": "learn"})
    console.write("machine", {"env_steps": steps, "speed/env_steps_per_second": 10.0})


def test_the_last_state_stays_and_the_cursor_comes_back(console: Console) -> None:
    write(console, 50)
    console.close()
    console.close()
    text = terminal(console).text
    assert text.index(HIDE) < text.rindex(SHOW)
    last = text[text.rindex("reverie CartPole") :]
    assert "50 of 100" in last
    assert "return" in last


def test_no_line_is_longer_than_the_terminal(console: Console) -> None:
    for steps in range(0, 100, 10):
        write(console, steps)
    console.close()
    shown = [line for part in terminal(console).text.split("\r") for line in part.split("\n")]
    assert max(len(line) for line in shown if "\x1b" not in line) == 80


def test_rows_go_to_the_log_alone(console: Console, tmp_path: Path) -> None:
    write(console, 50)
    console.close()
    assert "steps/s" in (tmp_path / "run.log").read_text()
    assert "steps/s" not in terminal(console).text


def test_lines_are_said_whole_above_the_table_and_below_it(console: Console, tmp_path: Path) -> None:
    long = "a line [bold] of " + "many words " * 20
    console.say(long)
    console.stop()
    console.say("below")
    text = terminal(console).text
    assert long + "\n" in text
    assert text.endswith("below\n")
    assert (tmp_path / "run.log").read_text() == f"{long}\nbelow\n"


def test_alerts_are_in_the_table_and_in_the_log(console: Console, tmp_path: Path) -> None:
    console.write("alerts", {"env_steps": 7, "level": "warning", "rule": "entropy", "message": "entropy is gone"})
    console.alert("error", "by hand")
    console.close()
    assert (tmp_path / "run.log").read_text() == "warning at env step 7: entropy is gone\nerror: by hand\n"
    last = terminal(console).text.split("reverie CartPole")[-1]
    assert "! entropy is gone  at 7" in last
    assert "✗ by hand" in last


def test_alerts_are_lines_where_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = Console(tmp_path, Budget(total=100))
    plain.start("title")
    plain.write("alerts", {"env_steps": 7000, "level": "warning", "rule": "entropy", "message": "entropy is gone"})
    plain.close()
    assert capsys.readouterr().err == "warning at env step 7,000: entropy is gone\n"


def test_drawing_is_bounded(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    live = console.live
    assert live is not None
    now = [1000.0]
    drawn: list[float] = []

    def draw_slowly() -> None:
        drawn.append(now[0])
        now[0] += slow

    monkeypatch.setattr(live_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(live, "_draw", draw_slowly)
    slow = 0.001
    for _ in range(1000):
        live.refresh()
        now[0] += 0.01
    assert 18 <= len(drawn) <= 10 / LEAST_SECONDS + 1
    slow = 0.1  # a drawing that takes long is repeated more seldom: at most a hundredth of the time
    drawn.clear()
    for _ in range(1000):
        live.refresh()
        now[0] += 0.1
    assert len(drawn) * slow <= 0.02 * 100 + slow


def test_a_terminal_that_goes_away_does_not_stop_the_run(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(terminal(console).file, "write", fail)
    console.say("still there")
    write(console, 50)
    assert console.live is not None
    console.live._due = 0.0
    write(console, 60)
    console.close()
    assert "still there\n" in (tmp_path / "run.log").read_text()


def test_a_reader_that_goes_away_does_not_stop_the_run(make_console: Callable[[], Console]) -> None:
    console = make_console()

    def fail(text: str) -> int:
        raise BrokenPipeError

    terminal(console).file.write = fail  # type: ignore[method-assign]
    console.say("nobody hears this")
    assert terminal(console).quiet


def test_what_was_recorded_before_is_in_the_table(make_console: Callable[[], Console], tmp_path: Path) -> None:
    record = {"env_steps": 30, "collect/return": 77.5, "phase": "learn"}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "alerts.jsonl").write_text('{"level": 3}\n')
    (tmp_path / "machine.jsonl").write_text("nonsense\n")
    console = make_console()
    console.start("title")
    write(console, 40)
    assert console.board is not None
    assert console.board.metrics["collect/return"].best == 77.5


def test_tasks_come_and_go(console: Console) -> None:
    task = Task("evaluating", total=2)
    console.begin(task)
    assert console.live is not None
    console.live._due = 0.0
    console.live.refresh()
    assert "evaluating" in terminal(console).text
    console.end(task)
    console.end(task)
    assert console.live.tasks == []


def test_a_log_names_a_task_once(tmp_path: Path) -> None:
    plain = Console(tmp_path, Budget(total=100), quiet=True)
    for _ in range(3):
        plain.begin(Task("evaluating"))
        plain.end(Task("evaluating"))
    plain.close()
    assert (tmp_path / "run.log").read_text() == "evaluating ...\n"


@pytest.mark.parametrize(
    ("environment", "is_tty", "expected"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm", "CI": "true"}, True, False),
    ],
)
def test_who_gets_a_table(
    environment: dict[str, str], is_tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_tty

    for name in ("CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress_module.sys, "stderr", Stream())
    assert is_terminal() is expected


def test_quiet_has_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "is_terminal", lambda: True)
    quiet: Any = Console(tmp_path, Budget(total=100), quiet=True)
    quiet.start("title")
    assert quiet.live is None
    quiet.close()
