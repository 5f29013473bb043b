"""The few facts about a run that lists, filters and the index work with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunSummary:
    """One run. What its files do not say is empty, 0 or None, and what is damaged is in ``problems``."""

    path: Path
    name: str
    spec: str = ""
    algorithm: str = ""
    env: str = ""
    seed: int | None = None
    status: str = "unknown"
    """``created``, ``running``, ``interrupted``, ``stopped``, ``failed``, ``finished`` or ``unknown``."""
    env_steps: int = 0
    updates: int = 0
    best_score: float | None = None
    final_score: float | None = None
    tags: tuple[str, ...] = ()
    note: str = ""
    created: float | None = None
    """Unix time."""
    changed: float = 0.0
    """Unix time of the last change that the run itself recorded."""
    config_hash: str = ""
    """Equal for runs that differ only in seed, logging and checkpoints."""
    git_commit: str = ""
    machine: str = ""
    version: str = ""
    """The version of Reverie that created the run."""
    parent: str = ""
    """The run whose weights this one started with (``--init-from``)."""
    resumes: int = 0
    size_bytes: int = 0
    problems: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "tags": list(self.tags), "problems": list(self.problems)}
