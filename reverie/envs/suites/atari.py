"""Atari games through the Arcade Learning Environment (Bellemare et al. 2013): ``ALE/Pong-v5`` and 103 others."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.types import Row
from reverie.envs.suite import Accelerator, Suite


class ALEState:
    """The emulator with its random generator, which sticky actions draw from."""

    def save(self, env: Any) -> Row:
        return {"ale": np.frombuffer(env.ale.cloneState(include_rng=True).serialize(), np.uint8).copy()}

    def load(self, env: Any, arrays: Row) -> None:
        from ale_py import ALEState

        env.ale.restoreState(ALEState(arrays["ale"].tobytes()))


def _register(env_id: str) -> None:
    import ale_py

    gym.register_envs(ale_py)


def _accelerator(env: Any) -> Accelerator | None:
    """None for a random frame skip, which is drawn outside of the emulator."""
    return ALEState() if isinstance(env._frameskip, int) else None


SUITE = Suite(
    name="atari",
    title="Atari games",
    prefixes=("ALE/",),
    example="ALE/Breakout-v5",
    id_forms=("ALE/<game>-v5",),
    licence="ale-py is GPL-2.0: an extra, never a requirement",
    modules=("ale_py",),
    register=_register,
    extra="atari",
    packages={"ale_py": "ale-py"},
    accelerator=_accelerator,
)
