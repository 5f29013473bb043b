"""A look that anyone may have written: shown as far as it makes sense, never believed further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reverie.runs.report.foresight import foresight_section, read_foresight

PNG = b"\x89PNG\r\n\x1a\n"


def write_look(run: Path, steps: str = "200", **changes: Any) -> Path:
    folder = run / "foresight" / steps
    folder.mkdir(parents=True)
    curve = {"mse": [0.1, 0.2], "repeat_last_mse": [0.3, 0.4]}
    metrics = {"calibration/reward_error": 0.25, "calibration/reward_bias": -0.5}
    told = {"open_loop": {"obs": curve}, "metrics": metrics, **changes}
    (folder / "foresight.json").write_text(json.dumps(told))
    (folder / "reconstruction-obs-camera.png").write_bytes(PNG)
    return folder


def test_the_newest_look_is_read(tmp_path: Path) -> None:
    write_look(tmp_path, "90")
    write_look(tmp_path, "200")
    (tmp_path / "foresight" / "final-999").mkdir()
    look = read_foresight(tmp_path, [])
    assert look is not None
    assert look.env_steps == 200
    assert look.curves[0].model == [0.1, 0.2]
    assert look.calibration == [("reward", 0.25, -0.5)]
    assert look.pictures[0][0] == "Truth above its reconstruction: camera"
    assert "200 env steps" in foresight_section(look)


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
    assert look.pictures == look.calibration == []
    assert "link" in problems[0]
    assert "<b><b></b>" not in foresight_section(look)


def test_nothing_is_shown_where_nothing_is(tmp_path: Path) -> None:
    assert read_foresight(tmp_path, []) is None
    (tmp_path / "foresight").write_text("a file")
    assert read_foresight(tmp_path, []) is None
    assert foresight_section(None) == ""
