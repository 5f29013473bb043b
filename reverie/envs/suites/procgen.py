"""Procgen: 16 games with generated levels, for generalisation (Cobbe et al. 2020). Needs the extra ``procgen``.

Ids are ``procgen/coinrun`` and so on. ``num_levels`` and ``start_level`` choose the levels, ``distribution_mode`` how
they are drawn. Procgen draws levels from a generator of its own. Here the seed of a reset chooses the level, and every
episode is played in a new instance of the game, which takes about a millisecond.

Procgen shows the next level when an episode ends, never the last frame. The last row repeats the frame before it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs.bare_package import skip_init
from reverie.envs.suite import NO_KEY, KeyMap, Suite

_PREFIX = "procgen/"
_MOST_LEVELS = 2**31 - 1
_ACTIONS = 15
_DEFAULT_LIMIT = 1000
_LIMITS = {"bigfish": 6000, "bossfight": 4000, "leaper": 500, "maze": 500, "plunder": 4000}
"""Steps after which the games themselves end an episode, from their sources."""
GAMES = (
    "bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot", "heist", "jumper",
    "leaper", "maze", "miner", "ninja", "plunder", "starpilot",
)  # fmt: skip
_MODES = {
    "easy": GAMES,
    "hard": GAMES,
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("coinrun", "caveflyer", "leaper", "jumper", "maze", "heist", "climber", "ninja"),
}
"""Distribution modes and the games that have them. In others Procgen would end the process."""


class ProcgenEnv(gym.Env[Array, np.int64]):
    """One game. Other ``options`` are Procgen's own, such as use_backgrounds or restrict_themes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self, game: str, num_levels: int = 0, start_level: int = 0, distribution_mode: str = "hard",
        render_mode: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        _check(game, distribution_mode)
        skip_init("procgen")
        from procgen.env import EXPLORATION_LEVEL_SEEDS, ProcgenGym3Env

        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = spaces.Discrete(_ACTIONS)
        self._make, self._game = ProcgenGym3Env, None
        self._levels = (start_level, num_levels or _MOST_LEVELS - start_level)
        if distribution_mode == "exploration":  # one level of the hard mode
            distribution_mode, self._levels = "hard", (EXPLORATION_LEVEL_SEEDS[game], 1)
        self._options = {
            "env_name": game,
            "distribution_mode": distribution_mode,
            "render_mode": render_mode,
            **options,
        }
        self._limit = 2000 if (game, distribution_mode) == ("jumper", "memory") else _LIMITS.get(game, _DEFAULT_LIMIT)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        first, count = self._levels
        self._level = first + int(self.np_random.integers(count))
        self.close()
        self._game = self._make(
            num=1, num_levels=1, start_level=self._level, rand_seed=0, num_threads=0, **self._options
        )
        self._steps = 0
        self._image = self._observe()[1]
        self._frame = self._current_frame()
        return self._image, {"level": self._level, "success": 0.0}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert self._game is not None
        self._game.act(np.array([action], np.int32))
        reward, image, is_over = self._observe()
        self._steps += 1
        is_complete = bool(self._game.get_info()[0]["prev_level_complete"])
        if not is_over:
            self._image, self._frame = image, self._current_frame()
        is_truncated = is_over and not is_complete and self._steps >= self._limit
        info = {"level": self._level, "success": float(is_complete)}
        return self._image, reward, is_over and not is_truncated, is_truncated, info

    def _observe(self) -> tuple[float, Array, bool]:
        assert self._game is not None
        rewards, observations, firsts = self._game.observe()
        return float(rewards[0]), observations["rgb"][0].copy(), bool(firsts[0])

    def _current_frame(self) -> Array:
        """The frame at 512x512, which Procgen draws if ``render_mode`` is set."""
        if self.render_mode is None or self._game is None:
            return self._image
        frame: Array = self._game.get_info()[0]["rgb"].copy()
        return frame

    def render(self) -> Array:
        return self._frame

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None


def _check(game: str, mode: str) -> None:
    if game not in GAMES:
        raise ConfigError(f"Procgen has no game '{game}'.", nearest(game, GAMES))
    if mode not in _MODES:
        raise ConfigError(f"Procgen has no distribution mode '{mode}'.", nearest(mode, _MODES))
    if game not in _MODES[mode]:
        others = ", ".join(known for known, games in _MODES.items() if game in games)
        raise ConfigError(f"{game} has no distribution mode '{mode}'.", f"It has {others}.")


def _register(env_id: str) -> None:
    game = env_id.removeprefix(_PREFIX)
    limit = max(_LIMITS.get(game, _DEFAULT_LIMIT), 2000 if game == "jumper" else 0)
    entry_point = "reverie.envs.suites.procgen:ProcgenEnv"
    gym.register(env_id, entry_point, max_episode_steps=limit, kwargs={"game": game})


SUITE = Suite(
    name="procgen",
    title="Procgen",
    prefixes=(_PREFIX,),
    example="procgen/coinrun",
    id_forms=("procgen/<game>",),
    env_ids=lambda: [f"{_PREFIX}{game}" for game in GAMES],
    modules=("reverie.envs.suites.procgen",),
    register=_register,
    extra="procgen",
    # They ask for numpy 1 and the old gym, but work without.
    without_dependencies=("procgen2==0.10.7", "gym3==0.3.3"),
    packages={"procgen": "procgen2", "gym3": "gym3", "cffi": "cffi"},
    keys={
        _PREFIX: KeyMap(
            {
                NO_KEY: 4, "left+down": 0, "left": 1, "left+up": 2, "down": 3, "up": 5, "right+down": 6, "right": 7,
                "right+up": 8, "space": 9, "z": 10, "x": 11, "c": 12, "v": 13, "b": 14,
            },
            fps=15,
        )
    },
)  # fmt: skip
