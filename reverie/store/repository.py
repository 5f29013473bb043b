"""The version of the user's code: the commit of the repository around a folder, and the uncommitted changes.

The folder may be a stranger's, and the configuration of a repository can name programs that git runs: filters, external
diffs, file watchers, hooks, remote helpers. So only ``rev-parse`` and ``config`` read it, which run none of them. The
diff is computed with a temporary git folder without configuration, which uses the objects and index of the repository.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HARMLESS = r"^core\.(filemode|symlinks|ignorecase|autocrlf|eol|precomposeunicode)$"
"""Settings without which unchanged files could appear changed. None of them names a program."""
_WITHOUT_PROGRAMS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_READ_ONLY = ("-c", "diff.autoRefreshIndex=false")
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
_SHA256 = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"


@dataclass(frozen=True)
class CodeVersion:
    """A commit and the changes since."""

    commit: str = ""
    diff: str | None = ""
    """None if git fails."""

    @classmethod
    def of(cls, folder: Path) -> CodeVersion:
        """The version of the repository that contains the folder. Empty outside of a repository."""
        top = next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)
        output = _git(folder, "rev-parse", "HEAD", "--git-path", "objects", "--git-path", "index") if top else None
        if not top or not output:
            return cls()
        commit, objects, index = output.splitlines()
        try:
            return cls(commit, _diff(top, commit, folder / objects, folder / index))
        except OSError:  # no space for temporary files
            return cls(commit, None)

    def to_json(self) -> dict[str, Any]:
        if not self.commit:
            return {}
        return {"commit": self.commit} | ({} if self.diff is None else {"is_clean": not self.diff})


def _diff(top: Path, commit: str, objects: Path, index: Path) -> str | None:
    with tempfile.TemporaryDirectory(prefix="reverie-git-") as made:
        own = Path(made)
        (own / "refs").mkdir()
        (own / "HEAD").write_text(f"{commit}\n")
        (own / "config").write_text(_SHA256 if len(commit) == 64 else "")
        environment = {
            "GIT_DIR": made, "GIT_WORK_TREE": str(top), "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_INDEX_FILE": str(index), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
        }  # fmt: skip
        command = (*_READ_ONLY, *_harmless_settings(top), "diff", *_PLAIN_DIFF, commit, "--")
        return _git(top, *command, environment=environment)


def _harmless_settings(top: Path) -> list[str]:
    output = _git(top, "config", "--get-regexp", _HARMLESS) or ""
    return [word for line in output.splitlines() for word in ("-c", line.replace(" ", "=", 1))]


def _git(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> str | None:
    """The output of a git command in a folder. None if it fails."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    limits = {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
    }
    try:
        done = subprocess.run(
            ["git", *_WITHOUT_PROGRAMS, *arguments],
            cwd=folder, env={**inherited, **limits, **(environment or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
