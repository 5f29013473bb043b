"""Cache of the verdicts on whether snapshots of envs are exact.

A verdict holds for one env, its settings, and the versions and sources of its packages; any change requires a new test.
Each verdict is a separate JSON file in the user's cache folder, so that runs that start together do not interfere. If
the folder is missing, broken or not writable, the test is only repeated.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym

from reverie.core import registry
from reverie.envs.accelerators import LONG_EPISODE, ChainState, find_accelerator
from reverie.envs.config import BATCHED, EnvConfig
from reverie.envs.make import find_spec, is_dotted
from reverie.envs.suites import SUITES
from reverie.store.cache import read_entry, write_entry

Kind = Literal["exact", "statistical"]
Method = Literal["replay", "replay+state", "arrays", "none", "unchecked"]
_known: dict[str, SnapshotVerdict] = {}


@dataclass(frozen=True)
class SnapshotVerdict:
    """Whether a restored env continues bit for bit, why not, and how it is restored.

    ``method`` is ``replay`` (seed and actions), ``replay+state`` (long episodes by the simulator's state),
    ``arrays`` (the env's own vector class), ``none`` (cannot be saved) or ``unchecked`` (the test failed).
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
    """The verdict of an earlier test, if there was one."""
    key = verdict_key(config)
    if key not in _known:
        try:
            _known[key] = SnapshotVerdict.from_json(read_entry("snapshots", key))
        except (ValueError, KeyError, TypeError):
            return None
    return _known[key]


def save_verdict(config: EnvConfig, verdict: SnapshotVerdict) -> None:
    """Cache a verdict in this process and, if possible, on disk."""
    key = verdict_key(config)
    _known[key] = verdict
    write_entry("snapshots", key, verdict.to_json())


def admitted_accelerator(config: EnvConfig, env: gym.Env[Any, Any]) -> ChainState | None:
    """Loads any saved state of this env. Saves states only if a test found that to be exact."""
    chain = find_accelerator(env)
    if chain is not None:
        verdict = load_verdict(config)
        if verdict is not None and verdict.method == "replay+state":
            chain.every = LONG_EPISODE
    return chain


def verdict_key(config: EnvConfig) -> str:
    """A hash of everything that a verdict depends on."""
    settings = {"id", "kwargs", "obs", "wrappers", "vary", "max_episode_steps", "log_keys"}
    described = {
        "config": config.model_dump(include=settings),
        "vector": config.vector if config.vector in BATCHED else "",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _packages()},
        "sources": {module: (_version(module.partition(".")[0]), _source(module)) for module in _modules(config)},
    }
    text = json.dumps(described, default=repr)  # arguments may be any objects
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _modules(config: EnvConfig) -> list[str]:
    """The modules that define the env and its wrappers."""
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


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _source(module: str) -> str | None:
    """A digest of the source file: code under development has no version, or does not change it."""
    try:
        spec = importlib.util.find_spec(module)
        return blake2b(Path(spec.origin).read_bytes()).hexdigest() if spec and spec.origin else None
    except (OSError, ImportError, ValueError):
        return None
