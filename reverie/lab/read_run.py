"""Reads the summary of a run from its folder.

The folder may be a stranger's: files are read with limits and without following links, and nothing in them is run.
What is missing or damaged becomes a sentence in ``problems``, so one damaged run never hides the others.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from reverie.core.errors import RunError, one_screen
from reverie.lab.config_facts import ConfigFacts, read_config_facts
from reverie.store import documents
from reverie.store.labels import Labels, read_labels
from reverie.store.lock import is_in_use
from reverie.store.run_folder import RunFolder
from reverie.store.run_summary import RunSummary

RUN_FILES = ("manifest.json", "config.yaml", "status.json", "metrics.jsonl")
"""A folder with one of these is a run."""
ENDED = ("finished", "stopped", "failed")
TAIL_BYTES = 64 << 10
LONGEST_TEXT = 200
LARGEST_COUNT = 1 << 63
MOST_FILES = 200_000


def is_run(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in RUN_FILES)


def read_run(path: Path) -> RunSummary:
    """The summary of a run folder. Never fails because of what the folder holds."""
    problems: list[str] = []
    manifest, status = _read_mappings(path, problems)
    facts, labels = _read_facts(path, problems), _read_labels(path, problems)
    git, machine, versions = (manifest.get(key) or {} for key in ("git", "machine", "versions"))
    spec, seed = _text(manifest.get("spec")), facts.seed if facts.seed is not None else manifest.get("seed")
    env, _, variant = spec.rpartition(":")
    return RunSummary(
        path=path,
        name=path.name or path.resolve().name,
        spec=spec,
        algorithm=_text(facts.algorithm) or variant,
        env=_text(facts.env) or env,
        seed=seed if type(seed) is int and abs(seed) < LARGEST_COUNT else None,
        status=_state(path, status),
        **_progress(path, status),
        best_score=_number(status.get("best_score")),
        final_score=_number(status.get("final_score")),
        tags=labels.tags,
        note=labels.note,
        created=_number(manifest.get("created")),
        changed=_changed(path),
        config_hash=facts.hash,
        git_commit=_text(git.get("commit")),
        machine=_machine(machine),
        version=_text(versions.get("reverie")),
        parent=_parent(path, problems),
        resumes=_num_resumes(path, problems),
        size_bytes=folder_size(path),
        problems=tuple(problems),
    )


def folder_size(path: Path) -> int:
    """Bytes of all files in a folder. Links are not followed, and a file with two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    folders = [str(path)]
    while folders and len(sizes) < MOST_FILES:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        status = entry.stat(follow_symlinks=False)
                        sizes[status.st_dev, status.st_ino] = status.st_size
        except OSError:  # deleted meanwhile, or no permission
            continue
    return sum(sizes.values())


def _read_mappings(path: Path, problems: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for read in (RunFolder(path).manifest, RunFolder(path).status):
        try:
            found.append(read())
        except RunError as error:
            problems.append(error.message)
            found.append({})
        except OSError as error:
            problems.append(f"'{path}' cannot be read: {error.strerror}.")
            found.append({})
    return found[0], found[1]


def _read_facts(path: Path, problems: list[str]) -> ConfigFacts:
    try:
        return read_config_facts(path / "config.yaml")
    except FileNotFoundError:
        problems.append(f"{path / 'config.yaml'} is missing: the run cannot be resumed or loaded.")
    except OSError as error:
        problems.append(f"{path / 'config.yaml'} cannot be read: {error.strerror}.")
    except ValueError as error:
        problems.append(one_screen(f"{path / 'config.yaml'} cannot be read: {error}"))
    return ConfigFacts()


def _read_labels(path: Path, problems: list[str]) -> Labels:
    try:
        return read_labels(path)
    except RunError as error:
        problems.append(error.message)
        return Labels()


def _state(path: Path, status: dict[str, Any]) -> str:
    """The state in status.json. A process that was killed left ``running`` there, without its lock."""
    state = _text(status.get("state")) or "unknown"
    return "interrupted" if state == "running" and not is_in_use(path) else state


def _progress(path: Path, status: dict[str, Any]) -> dict[str, int]:
    """Env steps and updates. The status has them once the run has ended, and the last metrics before."""
    has_ended = status.get("state") in ENDED
    last = {} if has_ended else _last_metrics(path)
    counters = {}
    for key in ("env_steps", "updates"):
        now = last.get(key)
        counters[key] = now if type(now) is int and 0 <= now < LARGEST_COUNT else status.get(key) or 0
    return counters


def _last_metrics(path: Path) -> dict[str, Any]:
    """The last complete line of metrics.jsonl. Empty if there is none."""
    try:
        with documents.open_file(path / "metrics.jsonl") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
        value = documents.parse_json(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _changed(path: Path) -> float:
    """When the run last recorded something: of its log files, the time of the latest."""
    times = [0.0]
    for name in ("status.json", "metrics.jsonl", "manifest.json"):
        try:
            times.append((path / name).lstat().st_mtime)
        except OSError:
            continue
    return max(times)


def _parent(path: Path, problems: list[str]) -> str:
    file = path / "initial.json"
    try:
        value = documents.read_json(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        problems.append(one_screen(f"{file} cannot be read: {error}"))
        return ""
    return _text(value.get("source")) if isinstance(value, dict) else ""


def _num_resumes(path: Path, problems: list[str]) -> int:
    file = path / "resumes.jsonl"
    try:
        return sum(1 for _ in documents.read_lines(file))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        problems.append(one_screen(f"{file} cannot be read: {error}"))
        return 0


def _machine(machine: dict[str, Any]) -> str:
    processor, cores = _text(machine.get("processor")), machine.get("cores")
    return f"{processor}, {cores} cores" if type(cores) is int and processor else processor


def _text(value: Any) -> str:
    """Printable text of limited length."""
    return one_screen(value[:LONGEST_TEXT]).replace("\n", " ") if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
