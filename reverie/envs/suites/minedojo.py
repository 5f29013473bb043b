"""MineDojo: thousands of tasks in Minecraft (Fan et al. 2022).

Ids are ``minedojo/<task id>``, such as ``minedojo/harvest_milk``. The package needs Java 8, the old ``gym`` and a build
of Minecraft (``setup/minedojo.sh``). Nobody has run this adapter with the real package yet: it is tested against a
stand-in with the interface that the package documents. Seeds choose the world of an env, not that of an episode.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array
from reverie.envs.old_gym import split_end
from reverie.envs.suite import NO_KEY, KeyMap, Suite

_PREFIX = "minedojo/"
_FULL = np.array([20, 20, 300], np.float32)
"""Full life, food and oxygen."""
_MOVE, _STRAFE, _JUMP, _PITCH, _YAW, _FUNCTION = range(6)
"""Positions in the package's MultiDiscrete action."""
_NO_TURN, _TURN = 12, 1
SIMPLE: tuple[dict[int, int], ...] = (
    {}, {_MOVE: 1}, {_MOVE: 2}, {_STRAFE: 1}, {_STRAFE: 2}, {_MOVE: 1, _JUMP: 1}, {_JUMP: 1},
    {_PITCH: _NO_TURN - _TURN}, {_PITCH: _NO_TURN + _TURN}, {_YAW: _NO_TURN - _TURN}, {_YAW: _NO_TURN + _TURN},
    {_FUNCTION: 1}, {_FUNCTION: 3}, {_MOVE: 1, _FUNCTION: 3},
)  # fmt: skip
"""Changes of the package's no-op: nothing, forward, back, left, right, forward with a jump, jump, four turns by 15
degrees, use, attack, forward with an attack."""


class MineDojoEnv(gym.Env[Any, np.int64]):
    """One task: the image, and life, food and oxygen as parts of their maximum."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, task: str, size: int = 64, render_mode: str | None = None, **settings: Any) -> None:
        import minedojo

        self.render_mode = render_mode
        self._game = minedojo.make(task_id=task, image_size=(size, size), **settings)
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "stats": spaces.Box(0.0, np.inf, (3,), np.float32)})
        self.action_space = spaces.Discrete(len(SIMPLE))
        self._image = np.zeros((size, size, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._read(self._game.reset()), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        pressed = self._game.action_space.no_op()
        for position, value in SIMPLE[int(action)].items():
            pressed[position] = value
        observation, reward, done, info = self._game.step(pressed)
        terminated, truncated = split_end(done, info)
        return self._read(observation), float(reward), terminated, truncated, {}

    def _read(self, observation: Any) -> dict[str, Array]:
        self._image = np.ascontiguousarray(np.moveaxis(observation["rgb"], 0, -1), np.uint8)  # (H, W, C)
        stats = observation["life_stats"]
        levels = [float(np.asarray(stats[key]).item()) for key in ("life", "food", "oxygen")]
        return {"image": self._image, "stats": np.array(levels, np.float32) / _FULL}

    def render(self) -> Array:
        return self._image

    def close(self) -> None:
        self._game.close()


def _register(env_id: str) -> None:
    gym.register(env_id, "reverie.envs.suites.minedojo:MineDojoEnv", kwargs={"task": env_id.removeprefix(_PREFIX)})


SUITE = Suite(
    name="minedojo",
    title="MineDojo",
    prefixes=(_PREFIX,),
    example="minedojo/harvest_milk",
    id_forms=("minedojo/<task>",),
    env_ids=lambda: ["minedojo/harvest_milk", "minedojo/harvest_wool_with_shears_and_sheep"],
    modules=("reverie.envs.suites.minedojo",),
    register=_register,
    packages={"minedojo": "minedojo", "gym": "gym"},
    setup="sh setup/minedojo.sh (Java 8, the old gym, and a build of Minecraft)",
    licence="Minecraft has its own",
    snapshots="statistical",
    keys={_PREFIX: KeyMap({NO_KEY: 0, "up": 1, "down": 2, "a": 3, "d": 4, "space": 6, "f": 12, "e": 11}, fps=20)},
)
