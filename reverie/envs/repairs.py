"""Repairs envs whose seeds do not decide their episodes, so that runs can be repeated and resumed exactly.

Suites declare the repairs. A repaired env plays the same episodes as a newly made one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from reverie.envs.suite import Suite


def repair_env(env: gym.Env[Any, Any], suites: list[Suite]) -> gym.Env[Any, Any]:
    """Patch the packages that are already imported, and wrap the env if its suite declares a repair."""
    for suite in suites:
        if suite.patch is not None and any(module in sys.modules for module in suite.packages):
            suite.patch()
    bases = [base.__module__ for base in type(env.unwrapped).__mro__]
    for suite in suites:
        if suite.repair is not None and any(suite.defines(module) for module in bases):
            env = suite.repair(env)
    return env


class BeforeReset(gym.Wrapper[Any, Any, Any, Any]):
    """Calls a function with the unwrapped env before every reset."""

    def __init__(self, env: gym.Env[Any, Any], prepare: Callable[[Any], None]) -> None:
        super().__init__(env)
        self._prepare = prepare

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._prepare(self.unwrapped)
        return self.env.reset(**arguments)
