"""BSuite: 23 small experiments that each test one ability of an agent (Osband et al. 2020). Needs the extra ``bsuite``.

Ids are ``bsuite/<experiment>/<setting>``, such as ``bsuite/catch/0``. The logger ``bsuite`` writes the file that
BSuite's own analysis reads, :mod:`reverie.log.bsuite`.

BSuite draws all episodes of an env from one generator and sums its measures, such as the regret, over episodes. Here
every episode is played in a new env whose generators are seeded by the reset, and its measures are in ``info``. What
defines the task, such as the arms of a bandit, still follows from the setting.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Array
from reverie.envs.suite import Suite

_PREFIX = "bsuite/"
_CELL_PIXELS = 12
MEASURES = ("total_regret", "total_perfect", "total_bad_episodes", "raw_return", "denoised_return", "best_episode")
"""Entries of ``info`` that some experiments have. Those of the others are missing."""


class BSuiteEnv(gym.Env[Array, np.int64]):
    """One setting of one experiment. Episodes that end with a discount are truncated."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, setting: str, render_mode: str | None = None) -> None:
        from bsuite import bsuite, sweep

        if setting not in sweep.SETTINGS:
            raise ConfigError(f"BSuite has no experiment '{setting}'.", nearest(setting, sweep.SETTINGS))
        self.render_mode = render_mode
        experiment, _ = bsuite.unpack_bsuite_id(setting)
        self._load, self._arguments = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[experiment], sweep.SETTINGS[setting]
        self._task = self._new_task(setting)
        self.num_episodes = int(self._task.bsuite_num_episodes)
        shape = self._task.observation_spec().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(self._task.action_spec().num_values)
        self._observation = np.zeros(shape, np.float32)

    def _new_task(self, setting: str) -> Any:
        try:
            return self._load(**self._arguments)
        except (OSError, ValueError) as error:  # MNIST is downloaded
            raise ConfigError(
                f"BSuite cannot load '{setting}': {error}", "The mnist experiments need their images on disk."
            ) from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._task = self._load(**self._arguments)
        layer = self._task
        while layer is not None:  # wrappers that add noise, then the task
            if "_rng" in vars(layer):
                layer._rng = np.random.RandomState(int(self.np_random.integers(2**31)))
            layer = vars(layer).get("_env")
        return self._read(self._task.reset()), self._measures()

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        step = self._task.step(int(action))
        is_terminal = step.last() and not step.discount
        observation = self._read(step)
        return observation, float(step.reward or 0), is_terminal, step.last() and not is_terminal, self._measures()

    def _read(self, step: Any) -> Array:
        self._observation = np.asarray(step.observation, np.float32)
        return self._observation

    def _measures(self) -> dict[str, Any]:
        return {key: float(value) for key, value in self._task.bsuite_info().items()}

    def render(self) -> Array:
        """The observation as gray cells."""
        grid = np.atleast_2d(self._observation.squeeze())
        low, high = float(grid.min()), float(grid.max())
        shades = 40 + 215 * (grid - low) / max(high - low, 1e-6)
        cells = shades.round().astype(np.uint8).repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)
        return np.repeat(cells[..., None], 3, axis=-1)


def _register(env_id: str) -> None:
    """Gymnasium allows one slash in an id, so ``bsuite/catch/0`` is a second name of ``bsuite/catch-0``."""
    setting = env_id.removeprefix(_PREFIX).replace("-", "/")
    own_id = _PREFIX + setting.replace("/", "-")
    if own_id not in gym.registry:
        gym.register(own_id, "reverie.envs.suites.bsuite:BSuiteEnv", kwargs={"setting": setting})
    gym.registry[env_id] = gym.registry[own_id]


def _env_ids() -> list[str]:
    from bsuite import sweep

    return [f"{_PREFIX}{setting}" for setting in sweep.SETTINGS]


SUITE = Suite(
    name="bsuite",
    title="BSuite",
    prefixes=(_PREFIX,),
    example="bsuite/catch/0",
    id_forms=("bsuite/<experiment>/<setting>",),
    env_ids=_env_ids,
    modules=("reverie.envs.suites.bsuite",),
    register=_register,
    extra="bsuite",
    packages={"bsuite": "bsuite"},
)
