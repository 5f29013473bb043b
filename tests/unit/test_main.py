"""The entry point of the ``reverie`` command."""

from __future__ import annotations

import pytest

from reverie import __main__ as entry


def test_ctrl_c_outside_of_a_run_ends_without_a_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reverie.cli.main.run", interrupted)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Stopped.\n"
