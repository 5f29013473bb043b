"""ale_py's own vector: many games in C++ threads, with the work of the wrappers ``atari`` and ``frame_stack``."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.envs.atari_batch import ale_task
from reverie.envs.batch_task import BatchTask
from reverie.envs.batch_vector import BatchVector, Results
from reverie.envs.config import EnvConfig
from reverie.envs.make import find_spec, num_workers, with_observation


class AleVector(BatchVector):
    """``num_envs`` copies of one game in ``env.workers`` threads (0: one per core)."""

    _env: Any = None
    _is_begun = False

    def _find_task(self, config: EnvConfig) -> BatchTask:
        find_spec(config.id)  # registers the games
        return ale_task(with_observation(config))

    def _open(self) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self.close()
        threads = num_workers(self._config, self.num_envs)
        self._env = AtariVectorEnv(self._task.id, self.num_envs, num_threads=threads, **self._task.kwargs)
        self._is_begun = False

    def _begin(self, envs: Array) -> Any:
        if self._is_begun:
            observation, _ = self._env.reset(options={"reset_mask": envs})
        else:  # a reset of some needs an earlier one of all
            observation, _ = self._env.reset(seed=np.array(self._seeds()))
            self._is_begun = True
        return _repeat_first(observation[envs], np.zeros(int(envs.sum()), int))

    def _advance(self, action: Array, envs: Array | None) -> Results:
        observation, reward, terminated, truncated, _ = self._env.step(action)
        observation = _repeat_first(observation, np.where(self._pending, 0, self._elapsed + 1))
        if envs is None:
            return observation, reward, terminated, truncated
        self._forced |= ~envs  # they were stepped with the others
        return observation[envs], reward[envs], terminated[envs], truncated[envs]

    def close(self) -> None:
        self._env = None  # ends its threads


def _repeat_first(images: Array, ages: Array) -> Array:
    """Stacks (N, F, ...) of envs whose episodes are ``ages`` steps old. ale_py begins them with black images."""
    stack = images.shape[1]
    if ages.min(initial=stack) >= stack - 1:
        return images
    images = images.copy()
    for index in np.flatnonzero(ages < stack - 1):
        first = stack - 1 - ages[index]
        images[index, :first] = images[index, first]
    return images
