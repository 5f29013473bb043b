"""Accelerators: snapshots of long episodes by the simulator's state, without replaying them from their start.

Replay is exact but takes as long as the episode took. If a simulator can save its state, an
:class:`~reverie.envs.episode.Episode` saves it every :data:`LONG_EPISODE` actions, together with the state of the
wrappers, and replays only the actions since. The obvious state calls are silently incomplete (MuJoCo's positions and
velocities, ALE's state without its generator), and even complete ones are not exact for every env. So an accelerator is
used only if :mod:`reverie.envs.snapshot` found it exact, and only if every wrapper is known here.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import RunError
from reverie.core.types import Row
from reverie.envs.suite import Accelerator, Env
from reverie.envs.suites import suite_of_module
from reverie.envs.vary import Vary
from reverie.envs.wrappers import images, keys, observations, steps, text
from reverie.envs.wrappers.atari import Atari
from reverie.envs.wrappers.atari_start import AtariStart, LastAction

LONG_EPISODE = 1000
"""Actions between two saved states of an exact accelerator."""


class ElapsedSteps:
    """The step counter of a time limit."""

    def save(self, env: Any) -> Row:
        return {"elapsed": np.array(env._elapsed_steps)}

    def load(self, env: Any, arrays: Row) -> None:
        env._elapsed_steps = int(arrays["elapsed"])


class FrameHistory:
    """The frames of a frame stack."""

    def save(self, env: Any) -> Row:
        return {path: np.stack(frames) for path, frames in env._history.items()}

    def load(self, env: Any, arrays: Row) -> None:
        env._history = {path: deque(frames, maxlen=len(frames)) for path, frames in arrays.items()}


class AtariLives:
    """The lives left, and whether the next episode continues the game."""

    def save(self, env: Any) -> Row:
        return {"lives": np.array(env.lives), "continues": np.array(env.continues)}

    def load(self, env: Any, arrays: Row) -> None:
        env.lives, env.continues = int(arrays["lives"]), bool(arrays["continues"])


class NoState:
    """A wrapper without state."""

    def save(self, env: Any) -> Row:
        return {}

    def load(self, env: Any, arrays: Row) -> None:
        return


_WRAPPERS: dict[type[Any], Accelerator] = {
    gym.wrappers.TimeLimit: ElapsedSteps(),
    steps.TimeLimit: ElapsedSteps(),
    observations.FrameStack: FrameHistory(),
    Atari: AtariLives(),
    AtariStart: LastAction(),
    steps.ActionRepeat: NoState(),
    keys.DropKeys: NoState(),
    images.Grayscale: NoState(),
    observations.OneHot: NoState(),
    images.RenderPixels: NoState(),
    images.Resize: NoState(),
    steps.RewardClip: NoState(),
    keys.SelectKeys: NoState(),
    text.TextTokens: NoState(),
    Vary: NoState(),
}


class ChainState:
    """Saves the state of an env and of all its wrappers, after ``every`` actions."""

    def __init__(self, links: list[tuple[Env, Accelerator]], every: float) -> None:
        self.every = every
        self._links = links
        self.spans_episodes = any(isinstance(env, Atari) and env.spans_episodes for env, _ in links)
        """Whether the simulator goes on across resets. Then an episode does not follow from its seed."""

    def save(self) -> Row:
        return {
            f"{depth}/{key}": array
            for depth, (env, accelerator) in enumerate(self._links)
            for key, array in accelerator.save(env).items()
        }

    def load(self, arrays: Row) -> None:
        """Load a saved state into an env that was just reset."""
        try:
            for depth, (env, accelerator) in enumerate(self._links):
                prefix = f"{depth}/"
                own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
                accelerator.load(env, own)
        except Exception as error:
            raise RunError(
                f"The saved simulator state cannot be loaded: {type(error).__name__}: {error}",
                "Use the wrappers and the package versions that the run was saved with.",
            ) from error


def find_accelerator(env: Env, every: float = math.inf) -> ChainState | None:
    """How to save an env with its wrappers. None if the state of the simulator or of a wrapper cannot be saved."""
    links: list[tuple[Env, Accelerator]] = []
    while isinstance(env, gym.Wrapper):
        if type(env) not in _WRAPPERS:
            return None
        links.append((env, _WRAPPERS[type(env)]))
        env = env.env
    simulator = _simulator_accelerator(env)
    return None if simulator is None else ChainState([*links, (env, simulator)], every)


def _simulator_accelerator(env: Any) -> Accelerator | None:
    """Compares the class itself, not its bases: a derived class may have state outside of the simulator."""
    suite = suite_of_module(type(env).__module__)
    return suite.accelerator(env) if suite is not None and suite.accelerator is not None else None
