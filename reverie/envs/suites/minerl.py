"""MineRL: tasks in Minecraft, from the images that a player sees (Guss et al. 2019).

Ids are ``minerl/<id of the package>``. The package needs Java 8, the old ``gym`` and Minecraft itself
(``setup/minerl.sh``). Nobody has run this adapter with the real package yet: it is tested against a stand-in with the
interface that the package documents.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs.old_gym import convert_space, split_end
from reverie.envs.suite import NO_KEY, KeyMap, Suite
from reverie.envs.wrappers.images import resize_image

_PREFIX = "minerl/"
_DEGREES = 15
SIMPLE: tuple[dict[str, Any], ...] = (
    {}, {"forward": 1}, {"back": 1}, {"left": 1}, {"right": 1}, {"forward": 1, "jump": 1}, {"jump": 1}, {"attack": 1},
    {"forward": 1, "attack": 1}, {"use": 1}, {"camera": (-_DEGREES, 0)}, {"camera": (_DEGREES, 0)},
    {"camera": (0, -_DEGREES)}, {"camera": (0, _DEGREES)},
)  # fmt: skip
"""The discrete actions, as changes of the package's no-op."""


class MineRLEnv(gym.Env[Array, Any]):
    """One task. ``actions``: simple (14 discrete ones) or full (the package's dict of keys and camera)."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, task: str, size: int = 64, actions: str = "simple", render_mode: str | None = None) -> None:
        if actions not in ("simple", "full"):
            raise ConfigError(f"MineRL has no actions '{actions}'.", nearest(actions, ("simple", "full")))
        import gym as old_gym
        import minerl  # noqa: F401 - registers its ids with the old gym

        self.render_mode = render_mode
        self._game = old_gym.make(task)
        self._is_simple, self._size = actions == "simple", size
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        full = convert_space(self._game.action_space)
        self.action_space = spaces.Discrete(len(SIMPLE)) if self._is_simple else full
        self._view = np.zeros((size, size, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed)
        return self._read(self._game.reset()), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, done, info = self._game.step(self._to_game(action))
        terminated, truncated = split_end(done, info)
        return self._read(observation), float(reward), terminated, truncated, {}

    def _to_game(self, action: Any) -> Any:
        if not self._is_simple:
            return action
        pressed = self._game.action_space.noop()
        for key, value in SIMPLE[int(action)].items():
            pressed[key] = np.array(value, np.float32) if key == "camera" else value
        return pressed

    def _read(self, observation: Any) -> Array:
        self._view = np.asarray(observation["pov"], np.uint8)
        return resize_image(self._view, self._size, self._size)

    def render(self) -> Array:
        return self._view

    def close(self) -> None:
        self._game.close()


def _register(env_id: str) -> None:
    gym.register(env_id, "reverie.envs.suites.minerl:MineRLEnv", kwargs={"task": env_id.removeprefix(_PREFIX)})


SUITE = Suite(
    name="minerl",
    title="MineRL",
    prefixes=(_PREFIX,),
    example="minerl/MineRLBasaltFindCave-v0",
    id_forms=("minerl/<id of the package>",),
    env_ids=lambda: ["minerl/MineRLBasaltFindCave-v0", "minerl/MineRLObtainDiamondShovel-v0"],
    modules=("reverie.envs.suites.minerl",),
    register=_register,
    packages={"minerl": "minerl", "gym": "gym"},
    setup="sh setup/minerl.sh (Java 8, the old gym, and a build of Minecraft)",
    licence="Minecraft has its own",
    snapshots="statistical",
    keys={_PREFIX: KeyMap({NO_KEY: 0, "up": 1, "down": 2, "a": 3, "d": 4, "space": 6, "f": 7, "e": 9}, fps=20)},
)
