"""The scripts in ``examples/`` run from the first line to the last, with smaller budgets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import reverie
from tests.unit.test_project import ROOT

SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
SMALLER = {"STEPS": "600", "UPDATES": "6", "EPISODES": "60", "SEEDS": "(1, 2)"}
LONGER = {"world_model": "1100", "own_algorithm": "900", "curriculum": "8192"}
"""Steps of scripts that need more to reach their end: a full replay, an episode of every env, a rollout per phase."""
PRINTS = {
    "compare": r"not decided.*\\begin\{tabular\}", "curriculum": r"weak_gravity.*real ", "offline": "pupil: [0-9]",
    "own_algorithm": "final score: [0-9]", "own_env": "balls caught: [01]", "own_network": "final score: [0-9]",
    "train": "return of one episode: [0-9]", "world_model": "reward",
}  # fmt: skip
MOST_LINES = 90


def shortened(script: str) -> str:
    """The source with small budgets."""
    source = SCRIPTS[script].read_text()
    amounts = {**SMALLER, "STEPS": LONGER.get(script, SMALLER["STEPS"])}
    for name, amount in amounts.items():
        source = re.sub(rf"^{name} = .*$", f"{name} = {amount}", source, flags=re.MULTILINE)
    return source


def run_script(script: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a script as ``python script.py`` does: its classes belong to ``__main__``."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(shortened(script), str(SCRIPTS[script]), "exec"), vars(module))
    return vars(module)


def test_there_are_eight_short_scripts_that_the_docs_list() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert set(SCRIPTS) == set(PRINTS)
    for script, path in SCRIPTS.items():
        assert f"(../examples/{path.name})" in page
        assert len(path.read_text().splitlines()) <= MOST_LINES
        assert "STEPS = 600\n" in shortened(script) or script in LONGER


@pytest.mark.parametrize("script", PRINTS)
def test_a_script_runs(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_script(script, monkeypatch)
    printed = capsys.readouterr().out
    assert re.search(PRINTS[script], printed, re.DOTALL), printed
    assert {run.status for run in reverie.find_runs()} == {"finished"}
