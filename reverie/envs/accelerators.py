"""Snapshots of long episodes without replaying them from their start: the state calls of simulators.

Replay is exact but takes as long as the episode took. Where a simulator can give its state as bytes, an
:class:`~reverie.envs.episode.Episode` saves it once every :data:`LONG_EPISODE` actions, together with what the
wrappers around it remember, and replays only the actions since. The usual calls are silently wrong (MuJoCo's
positions and velocities, ALE's state without its generator), and even the right ones are not exact for every
env. So an accelerator is used only where :mod:`reverie.envs.snapshot` found it exact, and never around a wrapper
whose memory is not known here.
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
from reverie.envs.wrappers import images, keys, observations, steps, text

LONG_EPISODE = 1000
"""Actions after which an admitted accelerator takes over from replay."""


class ElapsedSteps:
    """A time limit's count."""

    def save(self, env: Any) -> Row:
        return {"elapsed": np.array(env._elapsed_steps)}

    def load(self, env: Any, arrays: Row) -> None:
        env._elapsed_steps = int(arrays["elapsed"])


class FrameHistory:
    """The frames that a stack still shows."""

    def save(self, env: Any) -> Row:
        return {path: np.stack(frames) for path, frames in env._history.items()}

    def load(self, env: Any, arrays: Row) -> None:
        env._history = {path: deque(frames, maxlen=len(frames)) for path, frames in arrays.items()}


class NoState:
    """A wrapper that forgets everything between two steps."""

    def save(self, env: Any) -> Row:
        return {}

    def load(self, env: Any, arrays: Row) -> None:
        return


_WRAPPERS: dict[type[Any], Accelerator] = {
    gym.wrappers.TimeLimit: ElapsedSteps(),
    steps.TimeLimit: ElapsedSteps(),
    observations.FrameStack: FrameHistory(),
    steps.ActionRepeat: NoState(),
    keys.DropKeys: NoState(),
    images.Grayscale: NoState(),
    observations.OneHot: NoState(),
    images.RenderPixels: NoState(),
    images.Resize: NoState(),
    steps.RewardClip: NoState(),
    keys.SelectKeys: NoState(),
    text.TextTokens: NoState(),
}


class ChainState:
    """The memory of an env and of all wrappers around it; taken anew after ``every`` actions."""

    def __init__(self, links: list[tuple[Env, Accelerator]], every: float) -> None:
        self.every = every
        self._links = links

    def save(self) -> Row:
        return {
            f"{depth}/{key}": array
            for depth, (env, accelerator) in enumerate(self._links)
            for key, array in accelerator.save(env).items()
        }

    def load(self, arrays: Row) -> None:
        """Bring a chain that has just been reset to where another one was saved."""
        try:
            for depth, (env, accelerator) in enumerate(self._links):
                prefix = f"{depth}/"
                own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
                accelerator.load(env, own)
        except Exception as error:
            raise RunError(
                f"The saved state of the env does not fit it: {type(error).__name__}: {error}",
                "Use the versions of the env's packages and the wrappers that the run was saved with.",
            ) from error


def find_accelerator(env: Env, every: float = math.inf) -> ChainState | None:
    """How the whole chain can be saved, or None if some link has memory that is out of reach."""
    links: list[tuple[Env, Accelerator]] = []
    while isinstance(env, gym.Wrapper):
        if type(env) not in _WRAPPERS:
            return None
        links.append((env, _WRAPPERS[type(env)]))
        env = env.env
    simulator = _simulator_accelerator(env)
    return None if simulator is None else ChainState([*links, (env, simulator)], every)


def _simulator_accelerator(env: Any) -> Accelerator | None:
    """By the class itself, not its bases: a derived class may have state outside of the simulator."""
    suite = suite_of_module(type(env).__module__)
    return suite.accelerator(env) if suite is not None and suite.accelerator is not None else None
