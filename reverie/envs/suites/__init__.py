"""The list of env suites, and lookup of an env's suite.

To add a suite, write a file like those beside this one and add its declaration to :data:`SUITES`. Suites of other
packages come from entry points (:mod:`reverie.envs.entry_points`).
"""

from __future__ import annotations

from functools import cache

import gymnasium as gym

from reverie.core.errors import ConfigError
from reverie.envs import entry_points
from reverie.envs.suite import Suite
from reverie.envs.suites import (
    atari,
    bandits,
    box2d,
    brax,
    bsuite,
    classic_control,
    craftax,
    crafter,
    dm_control,
    dmlab,
    memory_maze,
    metaworld,
    minedojo,
    minerl,
    minigrid,
    mujoco,
    playground,
    procgen,
    pusht,
    retro,
    reverie,
    robotics,
    toy_text,
    vizdoom,
)
from reverie.machine.libraries import install_library

SUITES: list[Suite] = [
    atari.SUITE,
    bandits.SUITE,
    box2d.SUITE,
    brax.SUITE,
    bsuite.SUITE,
    classic_control.SUITE,
    craftax.SUITE,
    crafter.SUITE,
    dm_control.SUITE,
    dmlab.SUITE,
    memory_maze.SUITE,
    metaworld.SUITE,
    minedojo.SUITE,
    minerl.SUITE,
    minigrid.SUITE,
    mujoco.SUITE,
    playground.SUITE,
    procgen.SUITE,
    pusht.SUITE,
    retro.SUITE,
    reverie.SUITE,
    robotics.SUITE,
    toy_text.SUITE,
    vizdoom.SUITE,
]


@cache
def add_installed() -> None:
    """Add the suites and envs that other packages declare as entry points. Does nothing the second time."""
    entries = entry_points.installed()
    known = {suite.name for suite in SUITES}
    SUITES.extend(suite for suite in entry_points.load_suites(entries) if suite.name not in known)
    entry_points.register_classes(entries)


def register_suites() -> None:
    """Register the envs that the suites declare with Gymnasium. Does nothing the second time."""
    add_installed()
    for suite in SUITES:
        for env_id, entry in suite.envs.items():
            if env_id not in gym.registry:
                limit, kwargs = entry.max_episode_steps, dict(entry.kwargs)
                gym.register(env_id, entry.entry_point, max_episode_steps=limit, kwargs=kwargs)


def register_env(env_id: str) -> None:
    """Register an id with Gymnasium through its suite, if a suite has a matching prefix."""
    suite = find_suite(env_id)
    if suite is None or suite.register is None:
        return
    try:
        suite.register(env_id)
    except ImportError as error:
        message = f"'{env_id}' belongs to {suite.title}, which is not installed: {error}"
        raise ConfigError(message, install_library(error) or suite.install_hint) from error


def find_suite(env_id: str) -> Suite | None:
    """The suite of an env, by the prefix of its id or the module of its class."""
    add_installed()
    by_prefix = next((suite for suite in SUITES if suite.owns(env_id)), None)
    if by_prefix is not None or env_id not in gym.registry:
        return by_prefix
    entry = gym.registry[env_id].entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    return suite_of_module(module)


def suite_of_module(module: str) -> Suite | None:
    """The suite whose env classes are defined in this module."""
    add_installed()
    return next((suite for suite in SUITES if suite.defines(module)), None)
