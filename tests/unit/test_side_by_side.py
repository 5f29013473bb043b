"""Curves next to another implementation's: windows of the budget, and a figure that holds both names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import side_by_side


def write_episodes(path: Path, episodes: list[tuple[int, float]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"env_steps": n, "return": r}) + "\n" for n, r in episodes))
    return path


def test_a_window_holds_the_mean_of_the_episodes_that_ended_in_it() -> None:
    curve = side_by_side.mean_by_window(np.array([10, 20, 150, 300, 301]), np.array([1.0, 3.0, 7.0, 4.0, 6.0]), 300)
    assert curve[1] == 1
    assert curve[2] == 3
    assert curve[15] == 7
    assert curve[29] == 5  # rows past the budget count to its end
    assert np.isnan(curve[0])


def test_both_sides_are_drawn_and_summarised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = write_episodes(tmp_path / "run" / "scores.jsonl", [(step, 10.0) for step in range(5, 300, 10)])
    peers = [write_episodes(tmp_path / f"{n}.jsonl", [(step, n) for step in range(5, 300, 10)]) for n in (4.0, 8.0)]
    out = tmp_path / "figure.svg"
    words = ["x", "Toy", "--ours", str(ours.parent), "--peer", *map(str, peers), "--peer-name", "official code",
             "--budget", "300", "--out", str(out)]  # fmt: skip
    monkeypatch.setattr(sys, "argv", words)
    side_by_side.main()
    assert capsys.readouterr().out.splitlines() == [
        "Reverie: 10.0 (10.0 to 10.0) in the last tenth; seeds: 1",
        "official code: 6.0 (4.0 to 8.0) in the last tenth; seeds: 2",
    ]
    assert "official code" in out.read_text()
