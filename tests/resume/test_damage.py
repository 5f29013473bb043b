"""Whatever happens to the files of a run: one clear message, and nothing sound is lost."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie import api
from reverie.core.errors import ReverieError, RunError
from reverie.runs.policies import PolicyShelf
from reverie.store.checkpoint import CheckpointFolder
from reverie.store.lock import lock_run
from reverie.training.session import Session
from tests.resume import damage
from tests.resume.pieces import CHECKING, PPO, assert_equal_runs, train

DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a truncated part": (lambda c: damage.cut(c / "algorithm.safetensors"), "algorithm.safetensors is damaged"),
    "a flipped byte": (lambda c: damage.flip_byte(c / "collector.json"), "collector.json is damaged"),
    "a missing file": (lambda c: (c / "vector.json").unlink(), "vector.json is missing"),
    "a missing summary": (lambda c: (c / "checkpoint.json").unlink(), "checkpoint.json cannot be read"),
    "a cut summary": (lambda c: damage.cut(c / "checkpoint.json"), "checkpoint.json cannot be read"),
    "an altered summary": (
        lambda c: damage.change_json(c / "checkpoint.json", lambda s: s["logs"].update(metrics=3)),
        "checkpoint.json is damaged",
    ),
    "a summary of nonsense": (lambda c: (c / "checkpoint.json").write_text('{"format": 1}'), "is damaged"),
    "another format": (
        lambda c: damage.change_json(c / "checkpoint.json", lambda s: s.update(format=99)),
        "checkpoint format 99",
    ),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damage.make_stopped_run(tmp_path_factory.mktemp("stopped"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(damage.STOPPED, tmp_path_factory.mktemp("whole"), damage.STEPS)


def resume_error(run: Path, *overrides: str) -> ReverieError:
    with pytest.raises(ReverieError) as caught:
        api.resume(str(run), *overrides)
    assert len(str(caught.value).splitlines()) < 20, "the message does not fit a screen"
    return caught.value


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(kind: str, stopped: Path, whole: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    before = damage.newest(run, -2).name
    spoil, complaint = DAMAGES[kind]
    spoil(damage.newest(run))
    assert api.resume(str(run)).state == "finished"
    log = (run / "run.log").read_text()
    assert "Skipped a damaged checkpoint" in log
    assert complaint in log
    assert f'"checkpoint": "{before}"' in (run / "resumes.jsonl").read_text()
    assert_equal_runs(run, whole)


def test_two_damaged_checkpoints_are_passed_over(stopped: Path, whole: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    damage.cut(damage.newest(run) / "algorithm.json")
    damage.cut(damage.newest(run, -2) / "vector.json")
    assert api.resume(str(run)).state == "finished"
    assert (run / "run.log").read_text().count("Skipped") == 2
    assert_equal_runs(run, whole)


def test_a_damaged_older_checkpoint_does_not_disturb(stopped: Path, whole: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    (damage.newest(run, 0) / "policies.json").unlink()
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, whole)


def test_no_sound_checkpoint_is_an_error_that_names_them_all(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    for checkpoint in run.glob("checkpoints/0*"):
        (checkpoint / "streams.json").unlink()
    metrics = (run / "metrics.jsonl").read_bytes()
    error = resume_error(run)
    assert "All checkpoints of" in error.message
    assert error.message.count("streams.json is missing") == 3
    assert (run / "metrics.jsonl").read_bytes() == metrics, "nothing may be cut before it is known where to go on"


def test_no_checkpoint_at_all_starts_from_the_beginning(stopped: Path, whole: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    damage.undo_saving(run)
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, whole)


def test_other_shapes_do_not_fit(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    error = resume_error(run, "**.units=[8]")
    assert "does not fit this run with changed settings (algorithm.network.units): " in error.message
    assert re.search(r"actor_trunk\S+ is \(8, 4\) here, but \(\d+, 4\) in what is loaded", error.message)
    assert "state_dict" not in error.message
    assert "cannot change on resume" in error.fix
    assert "--init-from" in error.fix


def test_another_number_of_envs_does_not_fit(stopped: Path, tmp_path: Path) -> None:
    error = resume_error(damage.copy_run(stopped, tmp_path), "env.num_envs=2")
    assert "4 envs" in error.message


def test_hooks_may_be_removed_at_a_resume(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    before = sum("evaluate/return_mean" in line for line in api.Run(run, "stopped").metrics())
    assert api.resume(str(run), "phases.learn.hooks=[{collect: {rows: 64}}, update]").state == "finished"
    after = sum("evaluate/return_mean" in line for line in api.Run(run, "finished").metrics())
    assert after == before + 1  # the final one


def test_a_checkpoint_of_another_algorithm_does_not_fit(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    other = train(CHECKING, tmp_path / "other", steps=100)
    shutil.copytree(damage.newest(other), run / "checkpoints" / "000000099999-000000000001")
    assert "does not fit this run" in resume_error(run).message


def test_a_refused_resume_can_be_repaired(stopped: Path, whole: Path, tmp_path: Path) -> None:
    """A setting that did not fit was not written down for good."""
    run = damage.copy_run(stopped, tmp_path)
    resume_error(run, "algorithm.network.units=[8]")
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, whole)


def test_a_full_disk_while_saving(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if len(list(tmp_path.glob("*/checkpoints/0*"))) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match="the disk is full") as caught:
        train(damage.STOPPED, tmp_path, damage.STEPS)
    assert len(str(caught.value).splitlines()) < 5
    run = api.find("@last", tmp_path).path
    assert f"reverie resume {run.name}" in caught.value.fix
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    newest, complaints = CheckpointFolder(run).newest_sound()
    assert newest is not None
    assert complaints == []
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, whole)


def test_a_full_disk_while_writing_metrics(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match="the disk is full"):
        api.resume(str(run), trust=True)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    with pytest.raises(RunError, match="Cannot write into") as caught:
        train(PPO, tmp_path / "runs", steps=100)
    assert "--runs-dir" in caught.value.fix


def test_checkpoints_that_cannot_be_written(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    damage.undo_saving(run)
    (run / "checkpoints").write_text("a file where the folder should be")
    error = resume_error(run)
    assert "could not be written" in error.message
    assert api.find(str(run)).status["state"] == "failed"


def spoiling(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]) -> None:
    """Something happens to the run's folder after its first evaluation."""
    save = PolicyShelf.save

    def save_and_spoil(shelf: PolicyShelf, session: Session, name: str, summary: dict[str, float] | None) -> None:
        save(shelf, session, name, summary)
        spoil(shelf.folder.path)

    monkeypatch.setattr(PolicyShelf, "save", save_and_spoil)


def test_a_run_folder_that_is_deleted_in_mid_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiling(monkeypatch, shutil.rmtree)
    with pytest.raises(RunError, match="no longer exists"):
        train(PPO, tmp_path, steps=600)


def test_the_real_error_is_told_when_the_disk_is_full_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(run: Path) -> None:
        monkeypatch.setattr("reverie.store.run_folder.write_bytes", full)
        raise ZeroDivisionError("a mistake in the env")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spoiling(monkeypatch, spoil)
    with pytest.raises(ZeroDivisionError):
        train(PPO, tmp_path, steps=600)


def test_a_problem_is_said_once(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    damage.undo_saving(run)
    (run / "checkpoints").write_text("a file where the folder should be")
    command = [sys.executable, "-m", "reverie", "resume", str(run)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("could not be written") == 1
    assert done.stderr.count("reverie resume") == 1
    assert "Errno" not in done.stderr + (run / "run.log").read_text()
    assert "Failed: " in (run / "run.log").read_text()


def test_a_limit_on_the_size_of_files_leaves_no_stack_trace(tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in PPO)
    shell = f"ulimit -f 0; {sys.executable} -m reverie train {words} --steps 100 --runs-dir {tmp_path / 'runs'}"
    # Coverage could not write its file either, and would say so.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Cannot write into" in done.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_log_that_was_cut_is_mentioned(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    (run / "scores.jsonl").write_text("")
    assert api.resume(str(run)).state == "finished"
    assert "scores.jsonl is shorter than when the run was saved" in (run / "run.log").read_text()


def test_two_processes_cannot_train_one_run(stopped: Path, tmp_path: Path) -> None:
    run = damage.copy_run(stopped, tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*.jsonl")}
    with lock_run(run):
        command = [sys.executable, "-m", "reverie", "resume", str(run)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"is being trained by another process (pid {os.getpid()})" in done.stderr
        assert "Traceback" not in done.stderr
        resume_error(run)
    assert {path: path.read_bytes() for path in run.rglob("*.jsonl")} == before
    assert api.resume(str(run)).state == "finished"
