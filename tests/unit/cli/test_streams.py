"""Terminals and pipes that go away while a command runs."""

from __future__ import annotations

import os
import sys

import pytest

from reverie.cli import main
from reverie.cli.train import print_result


def test_a_reader_that_has_gone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither printing the result fails, nor what Python does with it at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "argv", ["reverie", "--no-such-option"])
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print_result({"run": "run-1", "state": "finished"}, as_json=False)
        with pytest.raises(BrokenPipeError):
            stream.flush()
        with pytest.raises(SystemExit) as end:
            main.run()
        stream.flush()
    assert end.value.code == 2


@pytest.mark.parametrize("is_there", [True, False])
def test_a_command_may_run_without_streams(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as stream:
        pass
    monkeypatch.setattr(sys, "stdout", stream if is_there else None)
    main._detach_closed_streams()
