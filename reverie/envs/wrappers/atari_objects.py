"""Positions of the objects of an Atari game, read from its RAM by OCAtari (Delfosse et al. 2024).

OCAtari's own env class makes its env itself, so only its detection is used. Its list of objects belongs to an episode:
the detection updates it with every observation.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.machine.installation import install_command

_SCREEN = (160, 210, 160, 210)


class AtariObjects(gym.ObservationWrapper[Any, Any, Any]):
    """The box of every object as (x, y, width, height), divided by the size of the screen. Absent objects are 0."""

    class Config(ComponentConfig):
        kind: str = "atari_objects"
        hud: bool = False
        """Also the score, the lives and other things that are no part of the game."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        self._game: Any = env.unwrapped
        self._hud = config.hud
        self._detection, self._name = _detection(self._game)
        self._objects: list[Any] = []
        self._slots = self._known_objects()
        self.observation_space = spaces.Box(-1, 2, (4 * sum(self._slots.values()),), np.float32)

    def _known_objects(self) -> dict[str, int]:
        """The largest number of objects of each kind."""
        try:
            known = self._detection.get_max_objects(self._name, self._hud)
        except AttributeError:
            known = {}
        if not any(known.values()):
            raise _unknown(self._game)
        return {name: number for name, number in known.items() if number}

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._objects = self._detection.init_objects(self._name, self._hud)
        return super().reset(**arguments)

    def observation(self, observation: Any) -> Array:
        # Signed integers: the detection subtracts RAM bytes, which would wrap around.
        self._detection.detect_objects_ram(
            self._objects, self._game.ale.getRAM().astype(np.int64), self._name, self._hud
        )
        return np.concatenate([self._boxes(name, number) for name, number in self._slots.items()])

    def _boxes(self, name: str, number: int) -> Array:
        """The boxes of one kind of object, flat, in the order in which they are listed."""
        found = [thing.xywh for thing in self._objects if thing and thing.category == name][:number]
        boxes = np.zeros((number, 4), np.float32)
        boxes[: len(found)] = np.array(found, np.float32).reshape(-1, 4) / _SCREEN
        return np.clip(boxes, -1, 2).ravel()


def _detection(game: Any) -> tuple[Any, str]:
    """OCAtari's functions, and its name of the game."""
    if not hasattr(game, "ale"):
        raise ConfigError(f"The wrapper atari_objects needs an Atari game, not {game}.", "Remove it from env.wrappers.")
    try:
        importlib.import_module("ocatari")
    except ImportError as error:
        fix = f"{install_command('atari-objects')} && pip install --no-deps ocatari==2.2.1"
        raise ConfigError(f"Objects of Atari games need OCAtari, which is not installed: {error}", fix) from error
    name = game._game.replace("_", "")
    try:
        importlib.import_module(f"ocatari.ram.{name}")
    except ImportError as error:
        raise _unknown(game) from error
    return importlib.import_module("ocatari.ram.extract_ram_info"), name


def _unknown(game: Any) -> ConfigError:
    return ConfigError(f"OCAtari does not know the objects of '{game._game}'.", "Use env.obs=ram instead.")
