"""The base of wrappers that change some leaves of an observation. Other leaves pass through unchanged."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from reverie.core.errors import ConfigError

Space = spaces.Space[Any]


class LeafWrapper(gym.ObservationWrapper[Any, Any, Any]):
    """Base class. ``wanted`` describes, in error messages, the kind of leaf that the wrapper needs."""

    wanted = ""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._inner_space = env.observation_space
        if not any(self.fits(leaf) for leaf in leaves(self._inner_space)):
            raise ConfigError(
                f"{type(self).__name__} needs {self.wanted}, but the observation space is {self._inner_space}.",
                f"Remove the wrapper from env.wrappers, or put one before it whose output is {self.wanted}.",
            )
        self.observation_space = self._map_space(self._inner_space)

    def fits(self, space: Space) -> bool:
        """Whether the wrapper changes this leaf."""
        raise NotImplementedError

    def change_space(self, space: Space) -> Space:
        raise NotImplementedError

    def change(self, value: Any, space: Space, path: str) -> Any:
        """The new value of a leaf. ``path`` is the name of the leaf."""
        raise NotImplementedError

    def observation(self, observation: Any) -> Any:
        return self._map(observation, self._inner_space, "obs")

    def _map(self, value: Any, space: Space, path: str) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._map(value[key], sub, f"{path}/{key}") for key, sub in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._map(value[i], sub, f"{path}/{i}") for i, sub in enumerate(space.spaces))
        return self.change(value, space, path) if self.fits(space) else value

    def _map_space(self, space: Space) -> Space:
        if isinstance(space, spaces.Dict):
            return spaces.Dict({key: self._map_space(sub) for key, sub in space.spaces.items()})
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._map_space(sub) for sub in space.spaces])
        return self.change_space(space) if self.fits(space) else space


def leaves(space: Space) -> list[Space]:
    """The spaces inside Dict and Tuple spaces, at any depth."""
    if isinstance(space, spaces.Dict):
        return [leaf for sub in space.spaces.values() for leaf in leaves(sub)]
    if isinstance(space, spaces.Tuple):
        return [leaf for sub in space.spaces for leaf in leaves(sub)]
    return [space]
