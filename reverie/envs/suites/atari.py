"""Atari games through the Arcade Learning Environment (Bellemare et al. 2013): ``ALE/Pong-v5`` and 103 others.

``atari/pong`` is short for ``ALE/Pong-v5``. ale_py has the licence GPL-2.0, so it is in an extra: ``atari``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core import registry
from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Row
from reverie.envs.atari_batch import envpool_task
from reverie.envs.config import EnvConfig
from reverie.envs.suite import Accelerator, Env, Suite
from reverie.envs.wrappers.atari_start import AtariStart

SHORT, LONG, VERSION = "atari/", "ALE/", "-v5"


class ALEState:
    """The emulator with its random generator, which sticky actions draw from."""

    def save(self, env: Any) -> Row:
        return {"ale": np.frombuffer(env.ale.cloneState(include_rng=True).serialize(), np.uint8).copy()}

    def load(self, env: Any, arrays: Row) -> None:
        from ale_py import ALEState

        env.ale.restoreState(ALEState(arrays["ale"].tobytes()))


def _register(env_id: str) -> None:
    """Register all games, and the short form of one if the id is that."""
    import ale_py

    gym.register_envs(ale_py)
    if env_id not in gym.registry:
        spec = copy.deepcopy(gym.registry[_long_id(env_id)])
        spec.id = env_id
        gym.registry[env_id] = spec


def _long_id(env_id: str) -> str:
    """``ALE/SpaceInvaders-v5`` of ``atari/space_invaders``."""
    found = {short_name(known): known for known in gym.registry if known.startswith(LONG)}
    name = short_name(env_id)
    if name not in found:
        raise ConfigError(f"There is no Atari game called '{name}'.", nearest(name, found))
    return found[name]


def short_name(env_id: str) -> str:
    """``space_invaders`` of ``ALE/SpaceInvaders-v5``, the name in ale_py, or of ``atari/space_invaders``."""
    if env_id.startswith(SHORT):
        return env_id.removeprefix(SHORT)
    entry = gym.registry.get(env_id)
    return str(entry.kwargs["game"]) if entry else env_id.removeprefix(LONG).removesuffix(VERSION)


def _repair(env: Env) -> Env:
    """Reset faster, and add a time limit that others can read: the emulator truncates a game at a number of frames."""
    game: Any = env.unwrapped
    limits = []
    if isinstance(env, gym.wrappers.TimeLimit):  # it must see resets, and only the steps of the agent
        limits, env = [int(env._max_episode_steps)], env.env
    started = env if game.sound_obs else AtariStart(env)
    frames = game.ale.getInt("max_num_frames_per_episode")
    if frames and isinstance(game._frameskip, int):
        limits.append(math.ceil(frames / game._frameskip))
    return gym.wrappers.TimeLimit(started, min(limits)) if limits else started


def _accelerator(env: Any) -> Accelerator | None:
    """None for a random frame skip, which is drawn outside of the emulator."""
    return ALEState() if isinstance(env._frameskip, int) else None


def _with_form(obs_type: str) -> Callable[[EnvConfig], EnvConfig]:
    """A form of observation that ale_py has itself."""

    def apply(config: EnvConfig) -> EnvConfig:
        return config.model_copy(update={"kwargs": {**config.kwargs, "obs_type": obs_type}})

    return apply


def _with_objects(config: EnvConfig) -> EnvConfig:
    """Objects instead of the screen, read after the wrapper ``atari`` if there is one."""
    ends = [index + 1 for index, wrapper in enumerate(config.wrappers) if wrapper.kind == "atari"]
    at = ends[0] if ends else 0
    objects = registry.load("wrapper", "atari_objects").Config()
    wrappers = (*config.wrappers[:at], objects, *config.wrappers[at:])
    return _with_form("ram")(config.model_copy(update={"wrappers": wrappers}))


OBSERVATIONS: dict[str, Callable[[EnvConfig], EnvConfig]] = {
    "rgb": _with_form("rgb"),
    "gray": _with_form("grayscale"),
    "ram": _with_form("ram"),
    "objects": _with_objects,
}

SUITE = Suite(
    name="atari",
    title="Atari games",
    prefixes=(LONG, SHORT),
    example="ALE/Breakout-v5",
    id_forms=("ALE/<game>-v5", "atari/<game>"),
    licence="ale-py is GPL-2.0: an extra, never a requirement",
    modules=("ale_py",),
    register=_register,
    extra="atari",
    packages={"ale_py": "ale-py"},
    repair=_repair,
    observations=OBSERVATIONS,
    accelerator=_accelerator,
    envpool=envpool_task(_long_id),
    native="ale",
)
