"""The notebooks run from the first cell to the last. Their cells are plain Python, so no Jupyter is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

import reverie
from tests.unit.test_project import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SMALLER = {"steps = 20_000": "steps = 600"}


def code_cells(path: Path) -> list[str]:
    notebook: dict[str, Any] = json.loads(path.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks_without_outputs() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        assert notebook["nbformat"] == 4
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.usefixtures("real_reports")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path)):
        for text, smaller in SMALLER.items():
            cell = cell.replace(text, smaller)
        exec(compile(cell, f"{path.name}[{number}]", "exec"), names)
    plt.close("all")
    plt.switch_backend(before)
    assert names["steps"] == 600
    assert isinstance(names["longer"], reverie.Run)
    assert names["longer"].status["env_steps"] >= 1200
    assert list((tmp_path / "runs").glob("report-*.html"))
