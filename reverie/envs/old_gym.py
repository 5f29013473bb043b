"""Envs of the old ``gym`` (before 0.26) as envs of Gymnasium: their spaces, and steps that return four values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError


def convert_space(space: Any) -> spaces.Space[Any]:
    """The same space in Gymnasium. Classes of packages that derive from those of gym count as these."""
    from gym import spaces as old

    if isinstance(space, old.Dict):
        return spaces.Dict({str(key): convert_space(part) for key, part in space.spaces.items()})
    if isinstance(space, old.Box):
        low, high = np.asarray(space.low, space.dtype), np.asarray(space.high, space.dtype)
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, old.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, old.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, old.MultiBinary):
        return spaces.MultiBinary(int(space.n))
    raise ConfigError(
        f"The space {type(space).__name__} of the old gym has no counterpart here.", "Leave it out with a wrapper."
    )


def split_end(done: bool, info: Mapping[str, Any]) -> tuple[bool, bool]:
    """Terminated and truncated, from the one flag of the old gym, whose time limit left a note in ``info``."""
    is_truncated = bool(done and info.get("TimeLimit.truncated", False))
    return bool(done) and not is_truncated, is_truncated
