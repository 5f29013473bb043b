"""Wrappers that choose which keys of a Dict observation the agent gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError, nearest


class KeyWrapper(gym.ObservationWrapper[Any, Any, Any]):
    """Base class: keeps some keys of a Dict observation, in the order of the env."""

    def __init__(self, env: gym.Env[Any, Any], keys: Sequence[str]) -> None:
        super().__init__(env)
        inner: Any = env.observation_space
        self._keys = list(keys)
        self.observation_space = spaces.Dict({key: inner.spaces[key] for key in self._keys})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {key: observation[key] for key in self._keys}


class SelectKeys(KeyWrapper):
    """Keeps these keys of a Dict observation and drops all others."""

    class Config(ComponentConfig):
        kind: str = "select_keys"
        keys: tuple[str, ...] = Field(min_length=1)
        """Keys to keep. Their order does not matter."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        known = _check_keys("select_keys", env.observation_space, config.keys)
        super().__init__(env, [key for key in known if key in config.keys])


class DropKeys(KeyWrapper):
    """Drops these keys of a Dict observation and keeps all others."""

    class Config(ComponentConfig):
        kind: str = "drop_keys"
        keys: tuple[str, ...] = Field(min_length=1)
        """Keys to drop."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        known = _check_keys("drop_keys", env.observation_space, config.keys)
        if set(config.keys) == set(known):
            raise ConfigError("drop_keys would drop every key of the observation.", f"Keep one of {', '.join(known)}.")
        super().__init__(env, [key for key in known if key not in config.keys])


def _check_keys(kind: str, space: spaces.Space[Any], keys: tuple[str, ...]) -> list[str]:
    """The keys of a Dict space. Refuses other spaces, and keys that the space does not have."""
    if not isinstance(space, spaces.Dict):
        raise ConfigError(
            f"{kind} needs a Dict observation, but the observation space is {space}.",
            f"Remove {kind} from env.wrappers.",
        )
    for key in keys:
        if key not in space.spaces:
            raise ConfigError(f"{kind}: the observation has no key '{key}'.", nearest(key, space.spaces))
    return list(space.spaces)
