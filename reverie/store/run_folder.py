"""Run folders: creating, describing and finding runs on disk.

``runs/<env>-<variant>-s<seed>-<n>/`` contains config.yaml (rebuilds the run), manifest.json (command, versions,
machine), metrics.jsonl, scores.jsonl, machine.jsonl, run.log, status.json and the policies. config.hmac signs the
config.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError, nearest
from reverie.machine import processor
from reverie.store import documents
from reverie.store.files import write_bytes
from reverie.store.repository import CodeVersion
from reverie.store.signature import sign_config

DEFAULT_RUNS_DIR = Path("runs")
FORESIGHT, FORESIGHT_NUMBERS = "foresight", "foresight.json"
"""Folder of foresight results in a run, and the file with the numbers of each result."""
LONGEST_NAME = 150
"""Characters of the spec that are used in the run's name. File systems allow 255 in total."""
PACKAGES = ("reverie", "torch", "numpy", "gymnasium", "safetensors", "pydantic")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


STATUS: dict[str, Callable[[Any], bool]] = {
    "state": lambda value: isinstance(value, str),
    "env_steps": _is_count, "updates": _is_count, "best_score": _is_score, "final_score": _is_score,
}  # fmt: skip
"""Checks for the values of status.json, which readers compute with and print."""


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def env(self) -> str:
        """The env in the run's ``<env>:<variant>``."""
        return str(self.manifest().get("spec", "")).rpartition(":")[0]

    @property
    def words(self) -> str:
        """Command line arguments that name the run in the current folder."""
        path = self.path if self.name else self.path.resolve()  # the name of "." is empty
        return shlex.quote(path.name) + runs_dir_option(path.parent)

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    def manifest(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        manifest = read_json(path)
        for key in ("versions", "machine", "git"):
            if not isinstance(manifest.get(key, {}), dict):
                raise RunError(f"{path} is damaged: {key} is not a mapping.")
        return manifest

    def status(self) -> dict[str, Any]:
        """Progress of the run: state, env_steps, updates, best_score, final_score."""
        path = self.path / "status.json"
        fix = f"Delete it and write it again with: reverie resume {self.words}"
        status = {"state": "created", **read_json(path, fix)} if path.exists() else {"state": "created"}
        for key, is_valid in STATUS.items():
            if key in status and not is_valid(status[key]):
                raise RunError(f"{path} is damaged: {key} cannot be {str(status[key])[:50]!r}.", fix)
        return status

    def write_status(self, **values: Any) -> None:
        write_json(self.path / "status.json", {**self.status(), **values})


def create_run(runs_dir: Path, spec: str, seed: int, config_yaml: str, command: list[str], name: str = "") -> RunFolder:
    """Create a run folder with its config and manifest, named after ``name`` or ``spec``."""
    title = (name or spec).removeprefix("__main__.")
    path = _claim_name(runs_dir, f"{re.sub(r'[^A-Za-z0-9._]+', '-', title)[:LONGEST_NAME]}-s{seed}")
    code = CodeVersion.of(Path.cwd())
    manifest = {
        "spec": spec, "seed": seed, "command": command, "created": time.time(),
        "versions": versions(), "machine": machine(), "git": code.to_json(),
    }  # fmt: skip
    with removed_if_unwritable(path):
        (path / "config.yaml").write_text(config_yaml, encoding="utf-8")
        sign_config(path, config_yaml)
        if code.diff:  # without it, the commit would not identify the code
            (path / "uncommitted.diff").write_text(code.diff, encoding="utf-8")
        write_json(path / "manifest.json", manifest)
    return RunFolder(path)


@contextmanager
def removed_if_unwritable(path: Path) -> Iterator[None]:
    """Delete a new folder if filling it in this block fails: an incomplete run cannot be resumed."""
    try:
        yield
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise _cannot_write(path.parent, error) from error


def remove_unstarted(folder: RunFolder) -> None:
    """Delete a run whose components could not be built. Does nothing once the run has started."""
    if folder.status()["state"] == "created":
        shutil.rmtree(folder.path, ignore_errors=True)


def find_run(name: str, runs_dir: Path | None = None) -> Path:
    """The folder of a run, named by its path, its name, a unique prefix, ``@last``, ``@best`` or ``@best:<env>``."""
    runs_dir = runs_dir or DEFAULT_RUNS_DIR
    if documents.is_file(Path(name) / "config.yaml"):
        return Path(name)
    runs = list_runs(runs_dir)
    if not runs:
        raise no_runs(runs_dir)
    if name == "@last":
        return _highest(runs, lambda run: run.manifest().get("created"), "No run has a readable manifest.json.").path
    if name == "@best" or name.startswith("@best:"):
        return _find_best(runs, name.removeprefix("@best").removeprefix(":")).path
    matches = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0].path
    if matches:
        names = ", ".join(run.name for run in matches[:8])
        raise RunError(f"'{name}' matches several runs: {names}.", "Type more letters of the name.")
    raise RunError(f"There is no run '{name}' in '{runs_dir}'.", nearest(name, [run.name for run in runs]))


def no_runs(runs_dir: Path) -> RunError:
    fix = f"Start one: reverie train CartPole-v1:ppo{runs_dir_option(runs_dir)}"
    return RunError(f"There are no runs in '{runs_dir}'.", fix)


def _find_best(runs: list[RunFolder], env: str) -> RunFolder:
    """The run with the highest evaluation on an env. Returns on different envs cannot be compared."""
    by_env: dict[str, list[RunFolder]] = {}
    for run in runs:
        with suppress(RunError):
            if _is_number(run.status().get("best_score")):
                by_env.setdefault(run.env, []).append(run)
    if env and env not in by_env:
        raise RunError(f"No run on '{env}' has been evaluated.", nearest(env, by_env))
    if not env and len(by_env) > 1:
        fix = f"Write {' or '.join(f'@best:{name}' for name in sorted(by_env)[:8])}."
        raise RunError("@best is ambiguous: returns on several environments cannot be compared.", fix)
    missing = "No run has been evaluated yet."
    return _highest(by_env.get(env) or runs, lambda run: run.status().get("best_score"), missing)


def runs_dir_option(runs_dir: Path) -> str:
    """The option that a command needs to find runs in this folder: `` --runs-dir <folder>``, or empty."""
    is_default = runs_dir.resolve() == DEFAULT_RUNS_DIR.resolve()
    return "" if is_default else f" --runs-dir {shlex.quote(str(runs_dir))}"


def list_runs(runs_dir: Path) -> list[RunFolder]:
    """All runs in a folder, by name."""
    return [RunFolder(path.parent) for path in sorted(runs_dir.glob("*/manifest.json"))]


def read_json(path: Path, fix: str = "", limit: int = documents.LARGEST_DOCUMENT) -> dict[str, Any]:
    """The mapping in a JSON file. ``fix`` is the advice of the error if it cannot be read."""
    try:
        value = documents.read_json(path, limit)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.", fix) from error
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}", fix) from error
    if not isinstance(value, dict):
        raise RunError(f"{path} cannot be read: not a mapping.", fix)
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file so that a crash leaves either the old or the new one."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file so that a crash leaves either the old or the new one."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # a link there, in a stranger's run, would lead the text to another file
    write_bytes(temporary, text.encode())
    os.replace(temporary, path)


def refuse_links(run: Path) -> None:
    """Raise RunError for links in a run: a stranger's run could overwrite your files through them."""
    for folder, folders, files in os.walk(run, followlinks=False):
        for entry in (Path(folder, name) for name in (*folders, *files)):
            if entry.is_symlink():
                raise RunError(
                    f"'{entry}' is a link, and the run would write to its target.",
                    "Remove the link. If you created it, add --trust.",
                )


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that determine the exact results."""
    packages = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **packages, "blas": processor.blas_kernels()}


def machine() -> dict[str, Any]:
    """System, processor and number of cores."""
    return {
        "system": platform.platform(), "processor": processor.facts().get("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "executable": Path(sys.executable).name,
    }  # fmt: skip


def _claim_name(runs_dir: Path, stem: str) -> Path:
    """Create the first free folder ``stem-n``. Creating it claims the name, so parallel runs never share a folder."""
    number = 1
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        while True:
            path = runs_dir / f"{stem}-{number}"
            try:
                path.mkdir()
                return path
            except FileExistsError:
                number += 1
    except OSError as error:
        raise _cannot_write(runs_dir, error) from error


def _cannot_write(runs_dir: Path, error: OSError) -> RunError:
    return RunError(f"Cannot write into '{runs_dir}': {error.strerror}.", "Choose another folder with --runs-dir.")


def _is_number(value: Any) -> bool:
    """Whether a value is a number and not NaN."""
    return isinstance(value, int | float) and value == value


def _highest(runs: list[RunFolder], read: Callable[[RunFolder], Any], missing: str) -> RunFolder:
    """The run with the highest number. Skips damaged runs."""
    found: list[tuple[float, RunFolder]] = []
    for run in runs:
        with suppress(RunError):
            number = read(run)
            if _is_number(number):
                found.append((number, run))
    if not found:
        raise RunError(missing, "Name a run: " + ", ".join(run.name for run in runs[:8]))
    return max(found, key=lambda pair: pair[0])[1]
