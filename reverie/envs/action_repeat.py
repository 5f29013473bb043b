"""Simulator steps per action of the agent.

The counter ``env_steps`` counts actions. Published Atari and control-suite curves count simulator steps, which we show
as ``frames``: env steps times the action repeat.
"""

from __future__ import annotations

import math

from reverie.envs.config import EnvConfig

ATARI_FRAME_SKIP = 4
"""Default of the v5 envs of ale_py."""


def action_repeat(env: EnvConfig) -> int:
    """Frames per env step: the product of all ``action_repeat`` wrappers and Atari's own frame skip.

    An action that ends its episode may take fewer frames; published curves ignore that too.
    """
    repeats = (int(getattr(wrapper, "repeats", 1)) for wrapper in env.wrappers if wrapper.kind == "action_repeat")
    return math.prod(repeats) * _frame_skip(env)


def _frame_skip(env: EnvConfig) -> int:
    """Frame skip inside the env. A random one, given as a range, counts with its lower end."""
    is_atari = env.id.removeprefix("ale_py:").startswith(("ALE/", "atari/"))
    skip = env.kwargs.get("frameskip", ATARI_FRAME_SKIP if is_atari else 1)
    return int(min(skip) if isinstance(skip, list | tuple) else skip)
