"""A run as a Python object, and the ways to name one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reverie.core import registry
from reverie.core.errors import ConfigError

if TYPE_CHECKING:
    from reverie.agent import Agent

Which = Literal["best", "final"]
RunLike = str | os.PathLike[str]
"""A run: its name, ``@last``, ``@best``, its path, or the :class:`Run` itself."""


@dataclass(frozen=True)
class Run:
    """A run on disk and how it ended."""

    path: Path
    state: str
    exit_code: int = 0

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def status(self) -> dict[str, Any]:
        """State, env steps, best and final score."""
        from reverie.store.run_folder import RunFolder

        return RunFolder(self.path).status()

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: everything that is reproducible."""
        return self._records("metrics")

    def scores(self) -> list[dict[str, Any]]:
        """One entry per finished episode of collection."""
        return self._records("scores")

    def agent(self, which: Which = "best", trust: bool = False) -> Agent:
        """The trained policy, ready to act."""
        from reverie.api.policies import load

        return load(self, which=which, trust=trust)

    def _records(self, kind: str) -> list[dict[str, Any]]:
        from reverie.log.sinks import read_jsonl

        return read_jsonl(self.path / f"{kind}.jsonl")


def find(name: RunLike = "@last", runs_dir: str | Path = "runs") -> Run:
    """A run by its name, a unique beginning of it, its path, ``@last``, ``@best`` or ``@best:<env>``."""
    from reverie.store.run_folder import RunFolder

    path = locate(name, runs_dir)
    return Run(path, RunFolder(path).status()["state"])


def locate(run: RunLike, runs_dir: str | Path) -> Path:
    """The folder of a run."""
    from reverie.store.run_folder import find_run

    return find_run(name_of(run), Path(runs_dir))


def name_of(run: Any) -> str:
    """The name or path of a run."""
    if isinstance(run, str | os.PathLike):
        return os.fspath(run)
    raise ConfigError(
        f"A run must be a name, a path or what train() returned, not {type(run).__name__}.",
        "Write '@last' for the newest run, for example.",
    )


def trusting(trust: bool, run: Path | None = None, typed: Sequence[str] = ()) -> AbstractContextManager[None]:
    """A block in which a run may import the classes that it names, if it is trusted or was created on this machine.

    Otherwise it may only import what the user ``typed``.
    """
    if trust:
        return nullcontext()
    from reverie.runs.trust import own_names

    own = own_names(run) if run is not None else None
    names = frozenset(word.partition("=")[2] for word in typed)
    return registry.known_kinds_only(registry.Trust(names | (own or frozenset()), may_send=own is not None))
