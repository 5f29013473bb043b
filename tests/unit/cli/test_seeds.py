"""Several seeds: processes that print, that are asked to stop, and whose parent dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reverie.cli.seeds import SeedRuns
from reverie.cli.train import Order, _command
from reverie.core.signals import STOP_SIGNALS

pytestmark = pytest.mark.measure_processes

CHILD = """
import sys
from pathlib import Path
from time import sleep
from reverie.cli.channel import Parent
from reverie.training.interrupt import catch_signals

task, folder, words = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
seed, channel = (words[words.index(option) + 1] for option in ("--seed", "--channel"))
with catch_signals() as request:
    parent = Parent(int(channel))
    if task == "print":
        for _ in range(40):
            sys.stdout.buffer.write(b"5000 letters" * 400 + bytes([255]) + b'\\n{"state": "printed"}')
    else:
        (folder / f"started-{seed}").touch()
        while not request():
            sleep(0.005)
        (folder / f"saved-{seed}").touch()
parent.send({"run": f"run-{seed}", "path": f"runs/run-{seed}", "state": "stopped" if request() else "finished"})
"""
PARENT = """
import json, sys
from reverie.cli.seeds import SeedRuns
from reverie.cli.train import Order, _command

results, code = SeedRuns(json.loads(sys.argv[1]), jobs=2, is_silent=False).train([1, 2, 3])
print(json.dumps(results), flush=True)
sys.exit(code)
"""


def command(task: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", CHILD, task, str(folder)]


@contextmanager
def started_parent(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with two seeds under way and one that waits."""
    words = [sys.executable, "-c", PARENT, json.dumps(command("wait", folder))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        try:
            wait_for(folder / "started-1", folder / "started-2")
            yield parent
        finally:
            parent.kill()  # Popen waits for it


def wait_for(*paths: Path) -> None:
    end = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"{paths} did not appear"
        time.sleep(0.005)


@pytest.mark.parametrize("is_silent", [True, False])
def test_what_an_env_prints_neither_blocks_a_seed_nor_spoils_its_result(
    tmp_path: Path, is_silent: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    results, code = SeedRuns(command("print", tmp_path), 2, is_silent).train([1, 2])
    assert code == 0
    assert [(result["seed"], result["run"], result["state"]) for result in results] == [
        (seed, f"run-{seed}", "finished") for seed in (1, 2)
    ]
    printed = capsys.readouterr()
    assert "letters" not in printed.out
    assert ("seed 2 | {" in printed.err) is not is_silent


def test_a_seed_that_sends_nothing_has_failed() -> None:
    script = [sys.executable, "-c", "import os; os.write(2, b'no words'); os._exit(3)"]
    assert SeedRuns(script, 1, is_silent=False).train([7]) == ([{"seed": 7, "state": "failed"}], 0)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_every_signal_stops_all_seeds_and_waits_for_them(number: signal.Signals, tmp_path: Path) -> None:
    with started_parent(tmp_path) as parent:
        parent.send_signal(number)
        printed, told = parent.communicate(timeout=60)
    assert parent.returncode == 128 + number
    states = [result["state"] for result in json.loads(printed.splitlines()[-1])]
    assert states == ["stopped", "stopped", "not started"]
    assert f"{number.name}: waiting for 2 runs to save and stop" in told
    assert "reverie resume run-1" in told
    assert {path.name for path in tmp_path.glob("saved-*")} == {"saved-1", "saved-2"}


def test_seeds_save_and_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with started_parent(tmp_path) as parent:
        parent.kill()
        wait_for(tmp_path / "saved-1", tmp_path / "saved-2")
    assert not (tmp_path / "started-3").exists()


def test_a_seed_does_not_import_from_the_current_folder(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "reverie.py").write_text(f"open({str(mark)!r}, 'w')")
    order = Order("CartPole-v1:ppo", [], None, tmp_path, False, False, None, None, "*")
    interpreter = _command(order)[:4]
    done = subprocess.run([*interpreter, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
