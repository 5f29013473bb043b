"""How a backend that steps many envs at once plays the same task as one of our envs.

Suites declare it (``Suite.envpool``), because names, arguments and observations differ: EnvPool's ``WalkerWalk-v1`` is
our ``dmc/walker_walk``. What a backend cannot do is refused, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.specs import Specs
from reverie.core.types import Array, Row
from reverie.envs.config import EnvConfig

USE_OTHERS = "Use env.vector=sync or env.vector=process instead."


@dataclass(frozen=True)
class BatchTask:
    """An env of another backend that is the same task as one of ours."""

    id: str
    """Its name there."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the backend."""
    wrappers: tuple[ComponentConfig, ...] = ()
    """Those of ``env.wrappers`` that the backend does not replace."""
    observe: Callable[[Any], Any] | None = None
    """From the backend's observation of many envs to one with the structure of ours. None: they are alike."""


FindTask = Callable[[EnvConfig], BatchTask | None]
"""The task of a backend for an env. None if the backend does not have it."""


def same_ids(ids: Iterable[str], arguments: Iterable[str] = ()) -> FindTask:
    """Envs that have the same id there, with these arguments of the same meaning."""
    known, names = frozenset(ids), frozenset(arguments)

    def find(config: EnvConfig) -> BatchTask | None:
        if config.id not in known:
            return None
        return BatchTask(config.id, only_arguments(config, names), config.wrappers)

    return find


def only_arguments(config: EnvConfig, known: Iterable[str] = ()) -> dict[str, Any]:
    """``env.kwargs``, if a backend knows all of them. Else ConfigError."""
    for name in sorted(set(config.kwargs) - set(known)):
        raise ConfigError(f"env.vector={config.vector} has nothing for env.kwargs.{name} of '{config.id}'.", USE_OTHERS)
    return dict(config.kwargs)


def check_settings(config: EnvConfig) -> None:
    """Raise ConfigError for settings of each single env, which such a backend never shows."""
    if config.vary.ranges():
        raise ConfigError(f"env.vary has no effect with env.vector={config.vector}.", USE_OTHERS)
    if config.log_keys:
        raise ConfigError(f"env.log_keys has no effect with env.vector={config.vector}.", USE_OTHERS)


def reward_map(config: EnvConfig, wrappers: Iterable[ComponentConfig]) -> Callable[[Array], Array] | None:
    """What the remaining wrappers do to rewards. ConfigError if one of them does something else."""
    maps = [_reward_clip(config, wrapper) for wrapper in wrappers]
    if len(maps) > 1:
        raise ConfigError("env.wrappers clips rewards twice.", "Keep one reward_clip.")
    return maps[0] if maps else None


def _reward_clip(config: EnvConfig, wrapper: Any) -> Callable[[Array], Array]:
    if wrapper.kind != "reward_clip":
        raise ConfigError(
            f"env.vector={config.vector} has nothing for the wrapper {wrapper.kind} of '{config.id}'.", USE_OTHERS
        )
    if wrapper.sign:
        return np.sign
    return lambda rewards: np.clip(rewards, wrapper.low, wrapper.high)


def check_same(config: EnvConfig, specs: Specs, other: Specs, leaves: Row) -> None:
    """Raise ConfigError unless a backend's actions and first observations (N, ...) are those of our env."""
    mine, theirs = specs.action, other.action
    fields = ("kind", "shape", "classes")
    different = [f"{name} of actions" for name in fields if getattr(mine, name) != getattr(theirs, name)]
    if not different and not np.allclose((mine.low, mine.high), (theirs.low, theirs.high)):
        different.append("bounds of actions")
    for key, spec in specs.observations.items():
        if key not in leaves:
            different.append(key)
        elif leaves[key][0].size != int(np.prod(spec.shape)) or (leaves[key].dtype == np.uint8) != (
            spec.dtype == "uint8"
        ):
            different.append(f"form of {key}")
    if different:
        raise ConfigError(f"'{config.id}' differs with env.vector={config.vector}: {', '.join(different)}.", USE_OTHERS)


def find_leaves(observation: Any, specs: Specs) -> Row:
    """The leaves of an observation of many envs by our keys, as far as it has them."""
    found = {key: _walk(observation, key.split("/")[1:]) for key in specs.observations}
    return {key: np.asarray(leaf) for key, leaf in found.items() if leaf is not None}


def _walk(observation: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(observation, dict):
            return None
        observation = observation.get(name)
    return None if isinstance(observation, dict) else observation
