"""Atari preprocessing of DQN (Mnih et al. 2015), which DreamerV3 shares with other values.

One wrapper, because its parts need single frames of the emulator: every action lasts for the env's own ``frameskip``
frames, of which the observation is the maximum of the last two. The vector classes of ale_py and EnvPool have the same
parts built in (:mod:`reverie.envs.suites.atari` translates the settings).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.envs.wrappers.atari_start import AtariStart
from reverie.envs.wrappers.images import resize_image

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class Atari(gym.Wrapper[Any, Any, Any, Any]):
    """Shows the maximum of the last two frames of an action, resized, and starts games at random moments."""

    class Config(ComponentConfig):
        kind: str = "atari"
        height: int = Field(84, ge=1)
        """Height of the image in pixels. RAM observations stay as they are."""
        width: int = Field(84, ge=1)
        """Width of the image in pixels."""
        max_frames: bool = True
        """Show the maximum of the last two frames of an action: many games draw their objects in every other frame."""
        noops: int = Field(30, ge=0)
        """A game starts with 1 to this many frames without an action. 0: with none."""
        fire: bool = False
        """Press the fire button at the start of a game, which some games wait for."""
        life_loss: bool = False
        """A lost life ends the episode, and the next episode continues the game. Evaluations then count lives."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        _check_game(game)
        self._game = game
        self._frames = _find_start(env)
        self._config = config
        self._has_screen = game._obs_type != "ram"
        self._skip = int(game._frameskip)
        self._takes_two = config.max_frames and self._has_screen and self._skip > 1
        self._use_skip(self._skip - self._takes_two)
        self.lives = 0
        self.continues = False
        """Whether the next episode continues the game: this one ended with a lost life."""
        self.observation_space = self._space() if self._has_screen else env.observation_space

    @property
    def spans_episodes(self) -> bool:
        """Whether the game goes on across resets."""
        return self._config.life_loss

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.continues:
            observation, _, _, _, info = self._step(self._press("NOOP"))
        else:
            observation, info = self.env.reset(seed=seed, options=options)
            observation, info = self._start(observation, info, seed)
        self.lives, self.continues = self._game.ale.lives(), False
        return self._show(observation), info

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self._step(action)
        lives = self._game.ale.lives()
        if self._config.life_loss and lives < self.lives and not (terminated or truncated):
            terminated = self.continues = True
        self.lives = lives
        return self._show(observation), reward, terminated, truncated, info

    def _step(self, action: Any) -> Step:
        """One action of the agent. Its last frame is taken apart from the others, to see the one before."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not self._takes_two or terminated or truncated:
            return observation, reward, terminated, truncated, info
        self._use_skip(1)
        last, more, terminated, truncated, info = self._frames.step(action)
        self._use_skip(self._skip - 1)
        return np.maximum(observation, last), reward + more, terminated, truncated, info

    def _start(self, observation: Any, info: dict[str, Any], seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Wait for a random number of frames, then fire. A game that ends meanwhile is started again without this."""
        rng = self._game.np_random if seed is None else make_generator(seed, "no-ops")
        waiting = int(rng.integers(1, self._config.noops + 1)) if self._config.noops else 0
        actions = [self._press("NOOP")] * waiting
        if self._config.fire and self._can("FIRE"):
            actions.append(self._press("FIRE"))
        self._use_skip(1)
        for action in actions:
            observation, _, terminated, truncated, info = self._frames.step(action)
            if terminated or truncated:
                observation, info = self.env.reset(seed=seed)
                break
        self._use_skip(self._skip - self._takes_two)
        return observation, info

    def _use_skip(self, frames: int) -> None:
        self._game._frameskip = frames

    def _can(self, name: str) -> bool:
        return self._game.continuous or any(action.name == name for action in self._game._action_set)

    def _press(self, name: str) -> Any:
        """The action that only presses the button ``name``."""
        if self._game.continuous:
            return np.array([0, 0, name == "FIRE"], np.float32)
        return next(index for index, action in enumerate(self._game._action_set) if action.name == name)

    def _show(self, observation: Any) -> Array:
        if not self._has_screen:
            return np.asarray(observation)
        image = resize_image(observation, self._config.height, self._config.width)
        return image if image.ndim == 3 else image[..., None]

    def _space(self) -> spaces.Box:
        channels = 3 if self._game._obs_type == "rgb" else 1
        return spaces.Box(0, 255, (self._config.height, self._config.width, channels), np.uint8)


def _find_start(env: Any) -> AtariStart:
    """The innermost wrapper, below time limits: it takes the actions that are no actions of the agent."""
    return env if isinstance(env, AtariStart) else _find_start(env.env)


def _check_game(game: Any) -> None:
    if not hasattr(game, "ale"):
        raise ConfigError(f"The wrapper atari needs an Atari game, not {game}.", "Remove it from env.wrappers.")
    if not isinstance(game._frameskip, int):
        raise ConfigError("The wrapper atari needs a fixed frame skip.", "Set env.kwargs.frameskip=4")
    if game.sound_obs:
        raise ConfigError("The wrapper atari has no form for sound.", "Remove env.kwargs.sound_obs.")
