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
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from reverie.core.errors import RunError
from reverie.core.types import Row
from reverie.envs import wrappers

LONG_EPISODE = 1000
"""Actions after which an admitted accelerator takes over from replay."""

Env = gym.Env[Any, Any]


class Accelerator(Protocol):
    """Saves and loads what one env or wrapper, without those inside it, remembers of its episode."""

    def save(self, env: Any) -> Row: ...

    def load(self, env: Any, arrays: Row) -> None: ...


class AleState:
    """Atari: the emulator with its random generator, which sticky actions draw from."""

    def save(self, env: Any) -> Row:
        return {"ale": np.frombuffer(env.ale.cloneState(include_rng=True).serialize(), np.uint8).copy()}

    def load(self, env: Any, arrays: Row) -> None:
        from ale_py import ALEState

        env.ale.restoreState(ALEState(arrays["ale"].tobytes()))


class MujocoState:
    """MuJoCo: everything that integrating on depends on. What envs read between steps may still be stale."""

    def save(self, env: Any) -> Row:
        import mujoco

        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        numbers = np.empty(mujoco.mj_stateSize(env.model, kind))
        mujoco.mj_getState(env.model, env.data, numbers, kind)
        return {"mujoco": numbers}

    def load(self, env: Any, arrays: Row) -> None:
        import mujoco

        mujoco.mj_setState(env.model, env.data, arrays["mujoco"], mujoco.mjtState.mjSTATE_INTEGRATION)


class DMControlState:
    """The control suite: as MuJoCo, with everything that follows from it computed anew, and its own count of steps."""

    def save(self, env: Any) -> Row:
        import mujoco

        physics, kind = env.suite_env.physics, mujoco.mjtState.mjSTATE_INTEGRATION
        numbers = np.empty(mujoco.mj_stateSize(physics.model.ptr, kind))
        mujoco.mj_getState(physics.model.ptr, physics.data.ptr, numbers, kind)
        return {"mujoco": numbers, "steps": np.array(env.suite_env._step_count)}

    def load(self, env: Any, arrays: Row) -> None:
        import mujoco

        physics, kind = env.suite_env.physics, mujoco.mjtState.mjSTATE_INTEGRATION
        mujoco.mj_setState(physics.model.ptr, physics.data.ptr, arrays["mujoco"], kind)
        physics.forward()
        env.suite_env._step_count = int(arrays["steps"])


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


class NoMemory:
    """A wrapper that forgets everything between two steps."""

    def save(self, env: Any) -> Row:
        return {}

    def load(self, env: Any, arrays: Row) -> None:
        return


_WRAPPERS: dict[type[Any], Accelerator] = {
    gym.wrappers.TimeLimit: ElapsedSteps(),
    wrappers.TimeLimit: ElapsedSteps(),
    wrappers.FrameStack: FrameHistory(),
    wrappers.ActionRepeat: NoMemory(),
    wrappers.Grayscale: NoMemory(),
    wrappers.OneHot: NoMemory(),
    wrappers.RenderPixels: NoMemory(),
    wrappers.Resize: NoMemory(),
    wrappers.RewardClip: NoMemory(),
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
    innermost = _innermost(env)
    return None if innermost is None else ChainState([*links, (env, innermost)], every)


def _innermost(env: Any) -> Accelerator | None:
    """By module, so that nothing has to be imported that the env did not import already."""
    module = type(env).__module__
    if module == "ale_py.env" and isinstance(env._frameskip, int):  # a random skip draws outside the emulator
        return AleState()
    if module == "reverie.envs.dm_control":
        return DMControlState()
    # Classes of Gymnasium itself only: one derived from them may remember more than the simulator does.
    return MujocoState() if module.startswith("gymnasium.envs.mujoco.") else None
