"""Reverie: one config-first lab for world-model and model-free reinforcement learning.

>>> import reverie
>>> run = reverie.train("CartPole-v1:ppo", seed=1)
>>> agent = reverie.load("@last")
>>> action = agent.act(observation)
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverie.agent import Agent
    from reverie.api import (
        Run,
        compare,
        evaluate,
        export,
        find,
        find_runs,
        foresee,
        load,
        make_config,
        record,
        repeat,
        report,
        resume,
        train,
        verify,
    )
    from reverie.core.errors import ReverieError
    from reverie.core.registry import register

_EXPORTS = {
    "reverie.agent": ("Agent",),
    "reverie.api": (
        "Run", "compare", "evaluate", "export", "find", "find_runs", "foresee", "load", "make_config", "record",
        "repeat", "report", "resume", "train", "verify",
    ),
    "reverie.core.errors": ("ReverieError",),
    "reverie.core.registry": ("register",),
}  # fmt: skip
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "Agent", "ReverieError", "Run", "compare", "evaluate", "export", "find", "find_runs", "foresee", "load",
    "make_config", "record", "register", "repeat", "report", "resume", "train", "verify",
]  # fmt: skip


def __dir__() -> list[str]:
    """What is meant to be used; the rest of the package is imported by its full name."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Names are imported when they are used, so that ``import reverie`` costs nothing."""
    if name == "__version__":
        return metadata.version("reverie")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'reverie' has no attribute '{name}'")
