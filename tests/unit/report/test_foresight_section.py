"""A look that anyone may have written: shown as far as it makes sense, never believed further."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from reverie.report.foresight_data import Calibration, read_foresight
from reverie.report.foresight_section import error_rows, foresight_section
from reverie.report.markdown import run_text
from reverie.report.run_data import gather
from tests.run_folders import write_run

PNG = b"\x89PNG\r\n\x1a\n"


def write_look(run: Path, steps: str = "200", **changes: Any) -> Path:
    folder = run / "foresight" / steps
    folder.mkdir(parents=True)
    curve = {"mse": [0.1, 0.2], "repeat_last_mse": [0.3, 0.4]}
    metrics = {"calibration/reward_error": 0.25, "calibration/reward_bias": -0.5}
    bins = {"reward": {"predicted": [0.0, 1.0], "actual": [0.5, -2.0], "rows": [9, 9]}}
    told = {"open_loop": {"obs": curve}, "calibration": bins, "metrics": metrics, **changes}
    (folder / "foresight.json").write_text(json.dumps(told))
    (folder / "reconstruction-obs-camera.png").write_bytes(PNG)
    return folder


def test_the_newest_look_is_read(tmp_path: Path) -> None:
    write_look(tmp_path, "90")
    write_look(tmp_path, "200")
    (tmp_path / "foresight" / "final-999").mkdir()
    look = read_foresight(tmp_path, [])
    assert look is not None
    assert look.x == 200
    assert look.curves[0].model == [0.1, 0.2]
    assert look.calibrations == [Calibration("reward", 0.25, -0.5, [0.0, 1.0], [0.5, -2.0])]
    assert look.pictures[0][0] == "Truth above its reconstruction: camera"
    assert "200 env steps" in foresight_section(look)


def test_errors_and_bins_are_charts(tmp_path: Path) -> None:
    write_look(tmp_path)
    html = foresight_section(read_foresight(tmp_path, []))
    assert html.count("<svg") == 2
    assert "obs: error of 0.2000 after 2 steps, 0.4000 by repeating." in html
    assert "reward: mean calibration error 0.2500" in html


def test_bins_below_zero_are_within_the_chart(tmp_path: Path) -> None:
    write_look(tmp_path, calibration={"reward": {"predicted": [-9.0, -8.0], "actual": [-9.0, -8.0]}}, open_loop={})
    html = foresight_section(read_foresight(tmp_path, []))
    assert {"−9", "−8"} <= set(re.findall(r">(−\d)</text>", html))
    assert ">0</text>" not in html


def test_the_same_numbers_as_text(tmp_path: Path) -> None:
    write_look(write_run(tmp_path))
    text = run_text(gather(tmp_path / "Toy-v0-ppo-s1-1"))
    assert "## World model\n\nMeasured on new episodes, at 200 env steps.\n" in text
    assert "| obs | 2 | 0.1000 | 0.2000 | 0.4000 | 0.5000 |" in text
    assert "| reward | 0.2500 | −0.5000 |" in text
    assert "World model" not in run_text(gather(write_run(tmp_path, "other")))


def test_a_look_without_sound_bins_keeps_its_numbers(tmp_path: Path) -> None:
    for steps, bins in enumerate((7, {"reward": 3}, {"reward": {"predicted": [1.0], "actual": []}})):
        write_look(tmp_path, str(steps), calibration=bins, open_loop={"still": {"mse": [1], "repeat_last_mse": [0]}})
        look = read_foresight(tmp_path, [])
        assert look is not None
        assert look.calibrations == [Calibration("reward", 0.25, -0.5, [], [])]
        assert foresight_section(look).count("<svg") == 1
        assert error_rows(look) == [["still", "1", "1.000", "1.000", "0", "–"]]


def test_strange_content_is_left_out(tmp_path: Path) -> None:
    strange = {"<b>": {"mse": [1], "repeat_last_mse": [2]}, "short": {"mse": [1], "repeat_last_mse": []},
               "text": {"mse": ["1"], "repeat_last_mse": [1]}, "none": 3}  # fmt: skip
    folder = write_look(tmp_path, open_loop=strange, metrics=7)
    (folder / "reconstruction-obs-camera.png").write_bytes(b"<script>")
    (folder / "open-loop-obs.mp4").symlink_to("/etc/hostname")
    problems: list[str] = []
    look = read_foresight(tmp_path, problems)
    assert look is not None
    assert [curves.key for curves in look.curves] == ["<b>"]
    assert look.pictures == look.calibrations == []
    assert "link" in problems[0]
    assert "<b><b></b>" not in foresight_section(look)


def test_nothing_is_shown_where_nothing_is(tmp_path: Path) -> None:
    assert read_foresight(tmp_path, []) is None
    (tmp_path / "foresight").write_text("a file")
    assert read_foresight(tmp_path, []) is None
    assert foresight_section(None) == ""
