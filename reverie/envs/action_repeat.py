"""Simulator steps per action of the agent.

The counter ``env_steps`` counts actions. Published Atari and control-suite curves count simulator steps, which we show
as ``frames``: env steps times the action repeat.
"""

from __future__ import annotations

import math

from reverie.envs.config import EnvConfig

ATARI_FRAME_SKIP = 4
"""Default of the v5 envs of ale_py."""
_DEFAULTS = {"ALE/": ATARI_FRAME_SKIP, "atari/": ATARI_FRAME_SKIP, "dmlab/": 4}
"""Frame skip of ids with these prefixes, unless the arguments of the env choose another."""
_ARGUMENTS = ("frameskip", "frame_skip")
"""Names of the argument, in Atari and elsewhere."""


def action_repeat(env: EnvConfig) -> int:
    """Frames per env step: the product of all ``action_repeat`` wrappers and the frame skip inside the env.

    An action that ends its episode may take fewer frames; published curves ignore that too.
    """
    repeats = (int(getattr(wrapper, "repeats", 1)) for wrapper in env.wrappers if wrapper.kind == "action_repeat")
    return math.prod(repeats) * _frame_skip(env)


def _frame_skip(env: EnvConfig) -> int:
    """Frame skip inside the env. A random one, given as a range, counts with its lower end."""
    name = env.id.removeprefix("ale_py:")
    default = next((skip for prefix, skip in _DEFAULTS.items() if name.startswith(prefix)), 1)
    skip = next((env.kwargs[key] for key in _ARGUMENTS if key in env.kwargs), default)
    return int(min(skip) if isinstance(skip, list | tuple) else skip)
