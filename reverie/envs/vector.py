"""Several envs in this process, stepped one after the other, and the row layout that all vectors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import RunError
from reverie.core.specs import Specs, read_specs
from reverie.core.types import ARRIVING, Array, Row, State, observation_keys
from reverie.core.wording import count
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.make import make_env, max_episode_steps_of
from reverie.envs.render import render_fps
from reverie.envs.snapshot_cache import admitted_accelerator

Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shape (without the env axis) and dtype of each column."""


class SyncVector:
    """``num_envs`` copies of one env in this process. Every call returns new arrays."""

    def __init__(
        self, config: EnvConfig, seed: int, stream: str, num_envs: int, render_mode: str | None = None
    ) -> None:
        envs = [make_env(config, render_mode) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.specs = read_specs(envs[0], max_episode_steps_of(envs[0]))
        self.crashes = 0
        self._layout = row_layout(self.specs, config.log_keys)
        self._episodes = [
            make_episode(config, env, self.specs, seed, stream, index, num_envs) for index, env in enumerate(envs)
        ]
        self._restored: Row = {}

    def reset(self) -> Row:
        """Start the next episode in every env."""
        rows = allocate_rows(self._layout, self.num_envs)
        for index, episode in enumerate(self._episodes):
            episode.reset(rows, index)
        return rows

    def step(self, action: Array, active: Array | None = None) -> Row:
        rows = allocate_rows(self._layout, self.num_envs)
        for index, own_action in enumerate(as_action_list(self.specs.action, action)):
            if active is None or active[index]:
                self._episodes[index].step(own_action, rows, index)
        if active is not None:
            blank_rows(rows, ~active)
        return rows

    def render(self, index: int = 0) -> Any:
        """The rendered frame of one env. The vector must be built with a ``render_mode``."""
        return self._episodes[index].render()

    @property
    def render_fps(self) -> float:
        return render_fps(self._episodes[0].env)

    def state(self) -> State:
        return {str(index): episode.state() for index, episode in enumerate(self._episodes)}

    def load_state(self, state: State) -> None:
        check_env_count(state, self.num_envs)
        self._restored = allocate_rows(self._layout, self.num_envs)
        for index, episode in enumerate(self._episodes):
            episode.load_state(state[str(index)], self._restored, index)

    def check_restored(self, now: Row) -> int:
        is_other = differs(self._restored, now)
        lost = [i for i, episode in enumerate(self._episodes) if _is_lost(episode, bool(is_other[i]))]
        for index in lost:
            self._episodes[index].abandon(now, index)
        return len(lost)

    def close(self) -> None:
        for episode in self._episodes:
            episode.env.close()


def make_episode(
    config: EnvConfig, env: gym.Env[Any, Any], specs: Specs, seed: int, stream: str, index: int, stride: int
) -> Episode:
    """The episodes of one env of a vector, with the snapshots that the config allows."""
    accelerator = admitted_accelerator(config, env)
    return Episode(env, specs, config.log_keys, seed, stream, index, stride, accelerator, config.replay_steps)


def _is_lost(episode: Episode, is_other: bool) -> bool:
    return episode.is_lost or (is_other and not episode.pending)


def differs(rows: Row, now: Row) -> Array:
    """Whether the observation, reward or flags of each env differ from ``now``, bit for bit, shape (N,)."""
    keys = [*observation_keys(now), *ARRIVING]
    return np.array(
        [
            any(rows[key][index].tobytes() != now[key][index].tobytes() for key in keys)
            for index in range(len(now["reward"]))
        ]
    )


def row_layout(specs: Specs, log_keys: Sequence[str]) -> Layout:
    """The columns of an arriving row."""
    layout: Layout = {key: (spec.shape, spec.dtype) for key, spec in specs.observations.items()}
    layout |= {"reward": ((), "float32")}
    layout |= dict.fromkeys(("is_first", "terminated", "truncated"), ((), "bool"))
    return layout | {f"log/{key}": ((), "float32") for key in log_keys}


def allocate_rows(layout: Layout, num_envs: int) -> Row:
    """Uninitialised arrays for one row of every env."""
    return {key: np.empty((num_envs, *shape), dtype) for key, (shape, dtype) in layout.items()}


def blank_rows(rows: Row, resting: Array) -> None:
    """Fill the rows of inactive envs with zeros and ``is_first``, so that carries restart and nothing is learned."""
    for values in rows.values():
        values[resting] = 0
    rows["is_first"][resting] = True


def check_env_count(state: State, num_envs: int) -> None:
    """Raise RunError if a saved state is that of another number of envs."""
    if len(state) != num_envs:
        raise RunError(
            f"The checkpoint has {count(len(state), 'env')}, this run has {num_envs}.",
            f"Set env.num_envs={len(state)} to continue, or start a new run.",
        )
