"""Progress lines: only for work that lasts, only where somebody looks."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest
from rich.console import Console as Screen

from reverie.log import progress as module
from reverie.log.progress import PlainLines, Task, in_words, progress, shown_in, task_line


class Listener:
    """A place that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.has_begun = threading.Event()

    def begin(self, task: Task) -> None:
        self.calls.append(("begin", task.text))
        self.has_begun.set()

    def end(self, task: Task) -> None:
        self.calls.append(("end", task.text))


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time after which a line appears."""
    return lambda seconds: monkeypatch.setattr(module, "DELAY_SECONDS", seconds)


def draw(task: Task, width: int = 80) -> str:
    screen = Screen(file=io.StringIO(), width=width)
    with screen.capture() as captured:
        screen.print(task_line(task))
    return captured.get()


def test_quick_work_shows_nothing(after: Callable[[float], None]) -> None:
    after(3600)
    place = Listener()
    with shown_in(place), progress("counting"):
        pass
    assert place.calls == []


def test_long_work_is_shown_until_it_ends(after: Callable[[float], None]) -> None:
    after(0)
    place = Listener()
    with shown_in(place), progress("counting", total=2) as task:
        assert place.has_begun.wait(10)
        task.advance()
    assert place.calls == [("begin", "counting"), ("end", "counting")]
    assert task.fraction == 0.5


def test_a_line_that_is_shown_ends_also_when_the_work_fails(after: Callable[[float], None]) -> None:
    after(0)
    place = Listener()

    def fail() -> None:
        with shown_in(place), progress("counting"):
            assert place.has_begun.wait(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert place.calls[-1] == ("end", "counting")


def test_quiet_shows_nothing(after: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    after(0)
    quiet = Listener()
    monkeypatch.setattr(module, "NoDisplay", lambda: quiet)
    place = Listener()
    with shown_in(place), progress("counting", quiet=True):
        assert quiet.has_begun.wait(10)
    assert place.calls == []


def test_a_log_gets_one_plain_line(
    after: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after(0)
    begin, has_begun = PlainLines.begin, threading.Event()
    monkeypatch.setattr(PlainLines, "begin", lambda self, task: (begin(self, task), has_begun.set()))
    with progress("counting", total=3) as task:
        assert has_begun.wait(10)
        task.advance(3)
    assert capsys.readouterr() == ("", "counting ...\n")


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_drawn_line_is_one_line(width: int) -> None:
    task = Task("encoding the video of a very long name that does not fit into any of the narrower ones", total=4)
    task.advance()
    lines = draw(task, width).splitlines()
    assert len(lines) == 1
    assert len(lines[0]) <= width
    assert "25%" in lines[0]


def test_without_a_total_there_is_no_bar() -> None:
    assert draw(Task("waiting")).split() == ["waiting", "for", "0", "s"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (65, "1:05"), (3599, "59:59"), (9690, "2:41:30"), (273_600, "3 d 4 h")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
