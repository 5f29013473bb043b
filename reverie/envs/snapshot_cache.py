"""What is known about whether an env's snapshots are exact, kept between runs.

A verdict holds for one env with its settings and the versions and sources of what it consists of; any change
asks for a new probe. Each lies in a JSON file of its own in the user's cache folder, so that runs that start
together do not disturb each other. The folder is only a memory: a missing, broken or unwritable one costs a
probe and nothing else.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym

from reverie.core import registry
from reverie.envs.accelerators import LONG_EPISODE, ChainState, find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.make import find_spec, is_dotted
from reverie.envs.suites import SUITES
from reverie.store import documents

Kind = Literal["exact", "statistical"]
Method = Literal["replay", "replay+state", "arrays", "none", "unchecked"]
_known: dict[str, SnapshotVerdict] = {}


@dataclass(frozen=True)
class SnapshotVerdict:
    """Whether a restored env continues bit for bit, why not, and how it is restored.

    ``method`` is ``replay`` (seed and actions), ``replay+state`` (long episodes by the simulator's state),
    ``arrays`` (the env's own vector class), ``none`` (nothing can be saved) or ``unchecked`` (the probe failed).
    """

    kind: Kind
    reason: str
    method: Method

    def __str__(self) -> str:
        return f"{self.kind} ({self.method})" + (f": {self.reason}" if self.reason else "")

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SnapshotVerdict:
        verdict = cls(data["kind"], str(data["reason"]), data["method"])
        if verdict.kind not in get_args(Kind) or verdict.method not in get_args(Method):
            raise ValueError(f"not a verdict: {data}")
        return verdict


def load_verdict(config: EnvConfig) -> SnapshotVerdict | None:
    """The verdict of an earlier probe, if there was one."""
    key = verdict_key(config)
    if key not in _known:
        try:
            _known[key] = SnapshotVerdict.from_json(documents.read_json(_path(key)))
        except (OSError, RuntimeError, ValueError, KeyError, TypeError):
            return None
    return _known[key]


def save_verdict(config: EnvConfig, verdict: SnapshotVerdict) -> None:
    """Keep a verdict in this process and, if possible, for later ones."""
    key = verdict_key(config)
    _known[key] = verdict
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
            json.dump(verdict.to_json(), file)
        os.replace(file.name, path)
    except (OSError, RuntimeError):
        return


def admitted_accelerator(config: EnvConfig, env: gym.Env[Any, Any]) -> ChainState | None:
    """How to load any saved state of this env; it saves such states itself only where a probe admitted that."""
    chain = find_accelerator(env)
    if chain is not None:
        verdict = load_verdict(config)
        if verdict is not None and verdict.method == "replay+state":
            chain.every = LONG_EPISODE
    return chain


def verdict_key(config: EnvConfig) -> str:
    """Changes with everything that may change a verdict."""
    settings = {"id", "kwargs", "wrappers", "max_episode_steps", "log_keys"}
    described = {
        "config": config.model_dump(include=settings),
        "native": config.vector == "native",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _packages()},
        "sources": {module: (_version(module.partition(".")[0]), _source(module)) for module in _modules(config)},
    }
    text = json.dumps(described, default=repr)  # arguments may be any objects
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _modules(config: EnvConfig) -> list[str]:
    """Where the env and its wrappers are defined."""
    found = [registry.load("wrapper", wrapper.kind).__module__ for wrapper in config.wrappers]
    if is_dotted(config.id):
        registry.check_foreign("env", config.id)
        module = config.id.rpartition(".")[0]
        registry.make_importable(module)
        return [*found, module]
    entry: Any = find_spec(config.id).entry_point
    return [*found, entry.partition(":")[0] if isinstance(entry, str) else entry.__module__]


def _packages() -> list[str]:
    return ["reverie", "gymnasium", *sorted({name for suite in SUITES for name in suite.packages.values()})]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _source(module: str) -> str | None:
    """A digest of the file: what a user is writing has no version, or one that does not move."""
    try:
        spec = importlib.util.find_spec(module)
        return blake2b(Path(spec.origin).read_bytes()).hexdigest() if spec and spec.origin else None
    except (OSError, ImportError, ValueError):
        return None


def _path(key: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    default = (Path(base) if base else Path.home() / ".cache") / "reverie"
    return Path(os.environ.get("REVERIE_CACHE") or default) / "snapshots" / f"{key}.json"
