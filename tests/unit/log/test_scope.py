"""Columns for Scope, read back by the package ``scope`` where it is installed, and by a reader of our own."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reverie.log.loggers import RunInfo
from reverie.log.scope import ScopeConfig, ScopeSink
from tests.run_folders import write_lines

IMAGE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def make_sink(folder: Path, position: int = 0) -> ScopeSink:
    return ScopeSink(ScopeConfig(enabled=True), RunInfo(folder, env_steps=position))


def read_numbers(run: Path, name: str) -> list[tuple[int, float]]:
    return list(struct.iter_unpack(">qd", (run / "scope" / f"{name}.float").read_bytes()))


def read_media(run: Path, name: str) -> list[tuple[int, bytes]]:
    folder = run / "scope" / name
    records = struct.iter_unpack("q8s", (folder / "index").read_bytes())
    return [(step, (folder / f"{step:020}-{ident.hex()}{folder.suffix}").read_bytes()) for step, ident in records]


def test_numbers_have_one_column_per_metric(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write("scores", {"env_steps": 3, "return": 7.0, "length": 3})
    sink.write("metrics", {"env_steps": 10, "phase": "learn", "update/loss": 0.5, "update/KL Max": 1})
    sink.write("machine", {"env_steps": 10, "time": 1.7e9, "speed/env_steps_per_second": 100.0})
    sink.write("metrics", {"env_steps": 20, "phase": "learn", "update/loss": float("nan")})
    sink.write("histogram", {"env_steps": 20, "name": "weights/x", "values": np.zeros(3)})
    sink.close()
    assert sorted(path.name for path in (tmp_path / "scope").iterdir()) == [
        "episode-length.float", "episode-return.float", "speed-env_steps_per_second.float", "update-kl_max.float",
        "update-loss.float",
    ]  # fmt: skip
    assert read_numbers(tmp_path, "update-kl_max") == [(10, 1.0)]
    (first, second) = read_numbers(tmp_path, "update-loss")
    assert first == (10, 0.5)
    assert second[0] == 20
    assert np.isnan(second[1])
    assert (tmp_path / "scope" / "episode-return.float").read_bytes() == bytes(7) + b"\3" + struct.pack(">d", 7.0)


def test_names_have_one_slash_and_stay_apart(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write("metrics", {"env_steps": 1, "a/b/c": 1.0, "a/b_c": 2.0, "plain": 3.0, "a/": 4.0})
    assert [read_numbers(tmp_path, name)[0][1] for name in ("a-b_c", "a-b_c_2", "plain", "a-_")] == [1.0, 2.0, 3.0, 4.0]


def test_media_are_files_with_an_index(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write("alerts", {"env_steps": 5, "rule": "kl", "message": "too high"})
    sink.write("figure", {"env_steps": 6, "name": "evaluate/curve", "image": IMAGE})
    sink.write("figure", {"env_steps": 7, "name": "evaluate/curve", "image": IMAGE})
    assert read_media(tmp_path, "monitor-alerts.txt") == [(5, b"kl: too high")]
    steps, images = zip(*read_media(tmp_path, "evaluate-curve.png"), strict=True)
    assert steps == (6, 7)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(images[0]))), IMAGE)


@pytest.mark.needs("video")
def test_videos_are_h264(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    frames = np.zeros((5, 17, 33, 3), np.uint8)
    sink.write("video", {"env_steps": 5, "name": "evaluate/video", "frames": frames, "fps": 30.0})
    ((step, data),) = read_media(tmp_path, "evaluate-video.mp4")
    assert step == 5
    assert data[4:8] == b"ftyp"


def test_a_resume_starts_from_the_records_of_the_run(tmp_path: Path) -> None:
    """What came after the checkpoint, and records that a crash left incomplete, are gone."""
    sink = make_sink(tmp_path)
    lines = [{"env_steps": step, "loss": float(step)} for step in (10, 20, 30)]
    for line in lines:
        sink.write("metrics", line)
        sink.write("figure", {"env_steps": line["env_steps"], "name": "curve", "image": IMAGE})
        sink.write("figure", {"env_steps": 30, "name": "late", "image": IMAGE})
    column, index = tmp_path / "scope" / "loss.float", tmp_path / "scope" / "curve.png" / "index"
    column.write_bytes(column.read_bytes()[:-3])
    index.write_bytes(index.read_bytes() + b"torn")
    write_lines(tmp_path / "metrics.jsonl", lines[:2])

    resumed = make_sink(tmp_path, position=20)
    assert read_numbers(tmp_path, "loss") == [(10, 10.0), (20, 20.0)]
    assert [step for step, _ in read_media(tmp_path, "curve.png")] == [10, 20]
    assert len(list((tmp_path / "scope" / "curve.png").iterdir())) == 3
    assert not (tmp_path / "scope" / "late.png").exists()
    resumed.write("metrics", {"env_steps": 25, "loss": 25.0})
    resumed.write("figure", {"env_steps": 25, "name": "curve", "image": IMAGE})
    assert read_numbers(tmp_path, "loss")[-1] == (25, 25.0)
    assert [step for step, _ in read_media(tmp_path, "curve.png")] == [10, 20, 25]


def test_runs_of_stored_data_count_updates(tmp_path: Path) -> None:
    sink = ScopeSink(ScopeConfig(enabled=True), RunInfo(tmp_path, counter="updates"))
    sink.write("metrics", {"env_steps": 0, "updates": 7, "update/loss": 1.0})
    assert read_numbers(tmp_path, "update-loss") == [(7, 1.0)]


@pytest.mark.needs("scope")
def test_scope_reads_it(tmp_path: Path) -> None:
    import scope

    sink = make_sink(tmp_path)
    sink.write("metrics", {"env_steps": 10, "update/loss": 0.5})
    sink.write("metrics", {"env_steps": 20, "update/loss": 0.25})
    sink.write("alerts", {"env_steps": 20, "rule": "kl", "message": "too high"})
    sink.write("figure", {"env_steps": 20, "name": "evaluate/curve", "image": IMAGE})
    reader: Any = scope.Reader(tmp_path)
    assert set(reader.keys()) == {"update/loss", "monitor/alerts", "evaluate/curve"}
    steps, values = reader["update/loss"]
    assert (list(steps), list(values)) == ([10, 20], [0.5, 0.25])
    _, (text,) = reader["monitor/alerts"]
    assert reader.load("monitor/alerts", text) == "kl: too high"
    _, (image,) = reader["evaluate/curve"]
    np.testing.assert_array_equal(reader.load("evaluate/curve", image), IMAGE)


def test_it_is_switched_on_by_a_setting(tmp_path: Path) -> None:
    import reverie

    run = reverie.train(
        "CartPole-v1:ppo", "log.scope.enabled=true", "env.vector=sync", "phases.learn.collect.rows=64",
        "algorithm.epochs=1", "evaluate.final_episodes=1", steps=128, runs_dir=tmp_path,
    )  # fmt: skip
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    losses = [(line["env_steps"], line["update/loss"]) for line in lines if "update/loss" in line]
    assert losses
    assert read_numbers(run.path, "update-loss") == losses
