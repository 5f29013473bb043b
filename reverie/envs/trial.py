"""Tries a few steps of an env before a run is created, so that its mistakes are reported at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.vector import allocate_rows, row_layout

TRIAL_STEPS = 20
PATIENCE_STEPS = 1000
"""Random steps in which an env without a time limit must end an episode."""


def play_trial(env: gym.Env[Any, Any], config: EnvConfig, specs: Specs, steps: int) -> bool:
    """Play at most ``steps`` random steps of one episode. Returns whether it ended.

    Raises :class:`~reverie.envs.errors.EnvError` for the first mistake of the env.
    """
    rows = allocate_rows(row_layout(specs, config.log_keys), 1)
    episode = Episode(env, specs, config.log_keys, 0, "trial", 0, 1)
    episode.reset(rows, 0)
    for action in as_action_list(specs.action, specs.action.sample(make_generator("trial"), steps)):
        episode.step(action, rows, 0)
        if episode.pending:
            return True
    return False
