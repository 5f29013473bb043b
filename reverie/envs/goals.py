"""Rewards and ends of episodes as functions of goals, for hindsight relabelling.

Goal envs (Gymnasium-Robotics, or your own) return a Dict observation of ``observation``, ``achieved_goal`` and
``desired_goal`` and define ``compute_reward(achieved_goal, desired_goal, info)``, and perhaps ``compute_terminated``
with the same arguments. The functions are called with an empty info, because rows do not store it. Before they are
used, they must give the rewards and ends that the env itself returned under random actions. So a wrapper that changes
rewards is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import Specs, read_specs
from reverie.core.types import Array, Row
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.make import make_env
from reverie.envs.vector import allocate_rows, row_layout

ACHIEVED, DESIRED = "obs/achieved_goal", "obs/desired_goal"
_TRIAL_STEPS = 32
_TOLERANCE = 1e-3
"""Rows hold goals in float32, and envs compute with float64."""
_REMOVE = "Remove the buffer's hindsight"

GoalFunction = Callable[[Array, Array], Array]
"""From achieved and desired goals (N, ...) to one value for each pair (N,)."""


@dataclass(frozen=True)
class Goals:
    """What follows from a goal."""

    rewards: GoalFunction
    terminated: GoalFunction | None
    """None if the end of an episode does not depend on its goal."""


def make_goals(config: EnvConfig) -> Goals:
    """The goal functions of an env. ConfigError if it has none, or if they do not give what the env returns."""
    env = make_env(config)
    specs = read_specs(env)
    _check_spaces(config.id, specs)
    if not env.has_wrapper_attr("compute_reward"):
        raise ConfigError(
            f"'{config.id}' has goals but no compute_reward, so the reward of another goal is unknown.",
            f"Define compute_reward(achieved_goal, desired_goal, info) in the env. {_REMOVE} otherwise.",
        )
    rows = _play(env, config, specs)
    rewards = _checked(config.id, env, "compute_reward", rows, "reward")
    if not env.has_wrapper_attr("compute_terminated"):
        return Goals(rewards, None)
    return Goals(rewards, _checked(config.id, env, "compute_terminated", rows, "terminated"))


def _check_spaces(env_id: str, specs: Specs) -> None:
    achieved, desired = (specs.observations.get(key) for key in (ACHIEVED, DESIRED))
    if achieved is None or achieved != desired:
        raise ConfigError(
            f"'{env_id}' has no goals: hindsight needs a Dict observation with achieved_goal and desired_goal of one "
            "shape.",
            f"{_REMOVE}, or choose a goal env such as FetchReach-v4.",
        )


def _play(env: gym.Env[Any, Any], config: EnvConfig, specs: Specs) -> Row:
    """Random steps: achieved and desired goals (T, ...), with the reward and the end that arrived."""
    episode = Episode(env, specs, (), 0, "goals", 0, 1)
    row = allocate_rows(row_layout(specs, ()), 1)
    episode.reset(row, 0)
    steps: list[Row] = []
    for action in as_action_list(specs.action, specs.action.sample(make_generator("goals"), _TRIAL_STEPS)):
        desired = row[DESIRED].copy()  # the goal that the action was chosen for: some envs then draw a new one
        episode.step(action, row, 0)
        if not row["is_first"][0]:
            steps.append({**{key: row[key].copy() for key in (ACHIEVED, "reward", "terminated")}, DESIRED: desired})
    return {key: np.concatenate([step[key] for step in steps]) for key in steps[0]}


def _checked(env_id: str, env: gym.Env[Any, Any], name: str, rows: Row, column: str) -> GoalFunction:
    """A method of the env as a function of many goals, which gives what the env returned in ``column``."""
    function, expected = _batched(env_id, env.get_wrapper_attr(name), name, rows), rows[column]
    found = function(rows[ACHIEVED], rows[DESIRED])
    wrong = np.flatnonzero(np.abs(found.astype(np.float32) - expected) > _TOLERANCE * (1 + np.abs(expected)))
    if len(wrong):
        raise ConfigError(
            f"{name} of '{env_id}' does not give what the env returns: {found[wrong[0]]} instead of "
            f"{expected[wrong[0]]} in step {wrong[0] + 1} of a trial.",
            f"Remove wrappers that change {column if column == 'terminated' else 'rewards'} or repeat actions. "
            f"{_REMOVE} otherwise.",
        )
    return function


def _batched(env_id: str, method: Callable[..., Any], name: str, rows: Row) -> GoalFunction:
    """The method for all goals at once if it can, else called for one after the other."""

    def all_at_once(achieved: Array, desired: Array) -> Array:
        return np.asarray(method(achieved, desired, {}))

    def one_by_one(achieved: Array, desired: Array) -> Array:
        return np.array([method(*pair, {}) for pair in zip(achieved, desired, strict=True)])

    try:
        plain = one_by_one(rows[ACHIEVED], rows[DESIRED])
    except Exception as error:  # an env may raise anything
        raise ConfigError(
            f"{name} of '{env_id}' raised {type(error).__name__}: {error}",
            f"It must work with an empty info, because replay does not store it. {_REMOVE} otherwise.",
        ) from error
    try:
        together = all_at_once(rows[ACHIEVED], rows[DESIRED])
    except Exception:  # it was written for single goals
        return one_by_one
    is_same = together.shape == plain.shape and np.allclose(together, plain)
    return all_at_once if is_same else one_by_one
