"""Slow commands report what they are doing, except with ``--json``."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from reverie import api
from reverie.cli.main import app
from reverie.log import progress
from reverie.log.progress import Task, shown_in

WORDS = (
    "CartPole-v1:dqn", "phases.prefill.duration_steps=50", "phases.prefill.collect.rows=50", "buffers.main.min_rows=20",
    "phases.learn.hooks=[{collect: {rows: 20}}, {update: {updates: 1}}]", "algorithm.network.units=[8]",
    "evaluate.final_episodes=1", "checkpoint.every_steps=100", "video.enabled=false",
)  # fmt: skip


class AtOnce:
    """A timer without delay: even the shortest work is shown."""

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.start = function

    def cancel(self) -> None: ...


@pytest.fixture(autouse=True)
def _without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "threading", SimpleNamespace(Lock=threading.Lock, Timer=AtOnce))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train(*WORDS, steps=200, runs_dir=tmp_path_factory.mktemp("runs")).path


def invoke(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_train_reports_the_probe_and_resume_reports_reading(tmp_path: Path) -> None:
    train = ("train", *WORDS, "--runs-dir", tmp_path)
    assert invoke(*train, "--steps", 100).output.count("measuring the speed of the run ...") == 1
    resume = ("resume", "@last", "--runs-dir", tmp_path)
    output = invoke(*resume, "--steps", 300).output
    assert "reading the checkpoint ..." in output
    assert "measuring the speed" not in output
    assert " ...\n" not in invoke(*resume, "--steps", 400, "--quiet").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "RUN"), "writing the report"),
        (("verify", "RUN", "--segments", "first"), "training env steps 0 to [0-9]+ again"),
        (("data", "export", "RUN", "--out", "OUT"), "exporting the replay of RUN"),
        (("data", "record", "CartPole-v1", "--random", "--episodes", 2, "--out", "OUT"), "recording CartPole-v1"),
        (("data", "record", "RUN", "--episodes", 2, "--out", "OUT"), "recording CartPole-v1"),
        (("record", "RUN", "--out", "OUT.gif"), "recording CartPole-v1"),
        (("envs", "check", "CartPole-v1"), "checking CartPole-v1"),
    ],
)
def test_command_reports_its_work_unless_json_is_asked_for(
    run: Path, tmp_path: Path, words: tuple[object, ...], message: str
) -> None:
    def fill_in(out: Path) -> list[str]:
        return [str(word).replace("RUN", str(run)).replace("OUT", str(out)) for word in words]

    shown = invoke(*fill_in(tmp_path / "shown"))
    assert len(re.findall(rf"^{message.replace('RUN', run.name)} \.\.\.$", shown.stderr, re.MULTILINE)) == 1
    assert " ...\n" not in shown.stdout
    silent = invoke(*fill_in(tmp_path / "silent"), "--json")
    assert silent.stderr == ""
    json.loads(silent.stdout)


def test_reading_stored_data_is_reported(tmp_path: Path) -> None:
    source = api.record_data("CartPole-v1", tmp_path / "data", 2, random=True)
    output = invoke(
        "train", "CartPole-v1:dqn", "offline", f"buffers.main.source={source}", "phases.offline.duration_updates=2",
        "phases.offline.hooks=[{update: {updates: 1}}]", "evaluate.final_episodes=0", "buffers.main.min_rows=1",
        "--runs-dir", tmp_path / "runs",
    ).output  # fmt: skip
    assert f"reading {source} ..." in " ".join(output.split())


class Recorder:
    """Keeps all tasks that begin."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def begin(self, task: Task) -> None:
        self.tasks.append(task)

    def end(self, task: Task) -> None: ...


def test_progress_bars_reach_their_total(run: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    with shown_in(recorder):
        source = api.record_data("CartPole-v1", tmp_path / "data", 3, random=True, quiet=False)
        api.export_data(str(source), tmp_path / "copy", quiet=False)
        api.verify(str(run), "all", quiet=False)
    assert [task.total for task in recorder.tasks][:2] == [3, 3]
    assert len(recorder.tasks) == 4  # the run has two checkpoints
    assert [task.fraction for task in recorder.tasks] == [1.0] * 4
