"""Memory Maze: find coloured targets in a maze, again and again (Pasukonis et al. 2022). Needs ``memory-maze``.

Ids are ``memory_maze/9x9`` to ``memory_maze/15x15``. The border of the image has the colour of the current target.
In Memory Maze one generator draws all mazes of an env. Here every reset has its own seed, which decides the maze too.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs import gl
from reverie.envs.bare_package import skip_init
from reverie.envs.suite import NO_KEY, KeyMap, Suite

_PREFIX = "memory_maze/"
_EPISODE_STEPS = {"9x9": 1000, "11x11": 2000, "13x13": 3000, "15x15": 4000}
_ENLARGED = 4
"""Pixels of a rendered frame for each pixel of the image, in both directions."""
_MOST_SEEDS = 2**31 - 1


class MemoryMazeEnv(gym.Env[Array, np.int64]):
    """One size of maze. Reward 1 for each visit to the current target, which then changes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, maze: str, size: int = 64, render_mode: str | None = None) -> None:
        if maze not in _EPISODE_STEPS:
            raise ConfigError(f"Memory Maze has no maze '{maze}'.", nearest(maze, _EPISODE_STEPS))
        gl.require_backend()  # before dm_control is imported
        skip_init("memory_maze")
        from memory_maze import tasks

        self.render_mode = render_mode
        make = getattr(tasks, f"memory_maze_{maze}")
        self._maze_env = make(seed=0, image_only_obs=True, camera_resolution=size)
        self._image = np.zeros((size, size, 3), np.uint8)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(self._maze_env.action_spec().num_values)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._reseed()
        self._image = self._maze_env.reset().observation
        return self._image, {}

    def _reseed(self) -> None:
        """Replace both generators: that of positions and textures, and that of the maze's walls."""
        for_walls, for_rest = (int(number) for number in self.np_random.integers(1, _MOST_SEEDS, 2))
        arena = self._maze_env._task._maze_arena
        old = arena._maze
        arena._maze = type(old)(
            height=old.height,
            width=old.width,
            max_rooms=old.max_rooms,
            room_min_size=old.room_min_size,
            room_max_size=old.room_max_size,
            max_variations=old.max_variations,
            spawns_per_room=old.spawns_per_room,
            objects_per_room=old.objects_per_room,
            simplify=True,
            random_seed=for_walls,
        )
        self._maze_env._random_state.seed(for_rest)

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        step = self._maze_env.step(int(action))
        self._image = step.observation
        is_terminal = step.last() and not step.discount
        return self._image, float(step.reward or 0), is_terminal, step.last() and not is_terminal, {}

    def render(self) -> Array:
        """What the agent sees, enlarged."""
        return self._image.repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1)

    def close(self) -> None:
        self._maze_env.close()


def _register(env_id: str) -> None:
    maze = env_id.removeprefix(_PREFIX)
    entry_point = "reverie.envs.suites.memory_maze:MemoryMazeEnv"
    gym.register(env_id, entry_point, max_episode_steps=_EPISODE_STEPS.get(maze), kwargs={"maze": maze})


SUITE = Suite(
    name="memory_maze",
    title="Memory Maze",
    prefixes=(_PREFIX,),
    example="memory_maze/9x9",
    id_forms=tuple(f"{_PREFIX}{maze}" for maze in _EPISODE_STEPS),
    env_ids=lambda: [f"{_PREFIX}{maze}" for maze in _EPISODE_STEPS],
    modules=("reverie.envs.suites.memory_maze",),
    register=_register,
    extra="memory-maze",
    packages={"memory_maze": "memory-maze", "dm_control": "dm-control", "mujoco": "mujoco"},
    renderer="gl",
    keys={_PREFIX: KeyMap({NO_KEY: 0, "up": 1, "left": 2, "right": 3, "up+left": 4, "up+right": 5}, fps=8)},
)
