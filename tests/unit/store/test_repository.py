"""The version of the user's code is found without running what a repository's configuration names."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from reverie.store.repository import CodeVersion

WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *WHO, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "code.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture
def hostile(project: Path, tmp_path: Path) -> Path:
    """The same with every setting by which ``git diff`` runs a program; each leaves a mark."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'mark'}\ncat\n")
    program.chmod(0o755)
    hooks = project / ".git" / "evil-hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
        (hooks / hook).write_bytes(program.read_bytes())
        (hooks / hook).chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.sshCommand", "pager.diff", "pager.rev-parse",
                "filter.evil.clean", "filter.evil.smudge", "diff.evil.command", "diff.evil.textconv"):  # fmt: skip
        git(project, "config", key, str(program))
    git(project, "config", "core.hooksPath", str(hooks))
    git(project, "config", "core.fileMode", "false")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    (project / ".gitattributes").write_text("* filter=evil diff=evil\n")
    return project


def test_no_program_of_a_repository_is_run(hostile: Path, tmp_path: Path) -> None:
    (hostile / "code.py").write_text("x = 2\n")
    version = CodeVersion.of(hostile)
    assert not (tmp_path / "mark").exists()
    assert version.diff is not None
    assert "-x = 1" in version.diff
    assert "+x = 2" in version.diff
    assert version.to_json() == {"commit": git(hostile, "rev-parse", "HEAD"), "is_clean": False}


def test_the_programs_would_leave_their_mark(hostile: Path, tmp_path: Path) -> None:
    (hostile / "code.py").write_text("x = 2\n")
    git(hostile, "diff", "HEAD")
    assert (tmp_path / "mark").exists()


def test_the_index_of_a_repository_stays_as_it_is(hostile: Path) -> None:
    os.utime(hostile / "code.py", (time.time() - 100, time.time() - 100))
    before = (hostile / ".git" / "index").read_bytes()
    assert CodeVersion.of(hostile).diff == ""
    assert (hostile / ".git" / "index").read_bytes() == before


def test_modes_are_not_compared_where_the_repository_says_so(hostile: Path) -> None:
    (hostile / "code.py").chmod(0o755)
    assert CodeVersion.of(hostile).diff == ""


def test_a_worktree_that_the_configuration_moves_is_not_read(project: Path, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("secret\n")
    git(project, "config", "core.worktree", str(tmp_path))
    assert CodeVersion.of(project).diff == ""


def test_a_linked_worktree_has_its_own_commit(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "linked"))
    (tmp_path / "linked" / "code.py").write_text("x = 3\n")
    version = CodeVersion.of(tmp_path / "linked")
    assert "+x = 3" in (version.diff or "")
    assert CodeVersion.of(project).diff == ""


def test_a_folder_inside_of_a_repository_belongs_to_it(project: Path) -> None:
    (project / "runs").mkdir()
    (project / "code.py").write_text("x = 4\n")
    version = CodeVersion.of(project / "runs")
    assert version.commit == git(project, "rev-parse", "HEAD")
    assert "+x = 4" in (version.diff or "")


def test_longer_hashes_are_understood(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format=sha256")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    version = CodeVersion.of(tmp_path)
    assert len(version.commit) == 64
    assert version.diff == ""


def test_without_a_commit_there_is_no_version(tmp_path: Path) -> None:
    assert CodeVersion.of(tmp_path).to_json() == {}
    git(tmp_path, "init", "--quiet")
    assert CodeVersion.of(tmp_path).to_json() == {}


def test_a_damaged_index_leaves_open_what_is_committed(project: Path) -> None:
    (project / ".git" / "index").write_bytes(b"damaged")
    assert CodeVersion.of(project).to_json() == {"commit": git(project, "rev-parse", "HEAD")}


def test_without_room_for_temporary_files_only_the_commit_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**options: str) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("reverie.store.repository.tempfile.TemporaryDirectory", fail)
    assert CodeVersion.of(project) == CodeVersion(git(project, "rev-parse", "HEAD"), None)
