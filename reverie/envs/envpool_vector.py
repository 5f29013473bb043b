"""EnvPool (Weng et al. 2022): many envs of one kind in C++ threads. Needs the extra ``envpool`` (Apache-2.0).

A backend, not other names: ``env.id`` stays, and the suite says which env of EnvPool is the same task. Episodes have
other random numbers than in our sync and process vectors.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from reverie.core.errors import ConfigError
from reverie.core.specs import read_specs
from reverie.core.types import Array
from reverie.envs.batch_task import USE_OTHERS, BatchTask, check_same, find_leaves
from reverie.envs.batch_vector import BatchVector, Results
from reverie.envs.config import EnvConfig
from reverie.envs.episode import make_action_map
from reverie.envs.make import num_workers, suite_of, with_observation
from reverie.machine.installation import install_command
from reverie.machine.libraries import install_library


class EnvPoolVector(BatchVector):
    """``num_envs`` copies of one env in ``env.workers`` threads (0: one per core)."""

    _pool: Any = None

    def _find_task(self, config: EnvConfig) -> BatchTask:
        return find_envpool_task(config)

    def _open(self) -> None:
        self.close()
        limit = {} if self._limit is None else {"max_episode_steps": self._limit + 1}  # counted in BatchVector
        self._pool = _make_pool(
            self._config,
            self._task.id,
            num_envs=self.num_envs,
            num_threads=num_workers(self._config, self.num_envs),
            seed=self._seeds(),
            **{**limit, **self._task.kwargs},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bounds of float64 are rounded
            specs, space = read_specs(self._pool), self._pool.action_space
        observation = self._pool.reset()[0]
        observation = self._task.observe(observation) if self._task.observe is not None else observation
        check_same(self._config, self.specs, specs, find_leaves(observation, self.specs))
        self._is_discrete = specs.action.kind == "discrete"
        self._to_env = make_action_map(self.specs.action, space)

    def _begin(self, envs: Array) -> Any:
        return self._pool.reset(np.flatnonzero(envs).astype(np.int32))[0]

    def _advance(self, action: Array, envs: Array | None) -> Results:
        ids = None if envs is None else np.flatnonzero(envs).astype(np.int32)
        chosen = action if envs is None else action[envs]
        results: Results = self._pool.step(chosen if self._is_discrete else self._to_env(chosen), ids)[:4]
        return results

    def close(self) -> None:
        self._pool = None  # ends its threads


def find_envpool_task(config: EnvConfig) -> BatchTask:
    """The env of EnvPool that is the same task. ConfigError if there is none."""
    suite = suite_of(config.id)
    task = suite.envpool(with_observation(config)) if suite is not None and suite.envpool is not None else None
    if task is None:
        raise ConfigError(f"EnvPool has no env that is the same task as '{config.id}'.", USE_OTHERS)
    return task


def import_envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        fix = install_library(error) or install_command("envpool")
        raise ConfigError(f"env.vector=envpool needs EnvPool: {error}", fix) from error
    return envpool


def _make_pool(config: EnvConfig, name: str, **arguments: Any) -> Any:
    envpool = import_envpool()
    try:
        return envpool.make_gymnasium(name, **arguments)
    except ImportError as error:
        fix = install_library(error.__cause__ or error)
        raise ConfigError(f"EnvPool cannot load '{config.id}': {error}", fix or USE_OTHERS) from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"EnvPool cannot make '{config.id}': {type(error).__name__}: {text}", USE_OTHERS) from error
