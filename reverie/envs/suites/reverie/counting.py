"""``Reverie/Counting-v0``: observations contain the episode, the step and the last action."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array, Row

ObservationChoice = Literal["vector", "image", "dict", "tuple", "discrete"]
ActionChoice = Literal["discrete", "continuous", "unbounded", "multi_discrete", "multi_binary", "mixed"]

EPISODE, STEP, ACTION, CHECKSUM = range(4)
"""Indices of the four numbers in an observation of :class:`CountingEnv`."""
IMAGE_SHAPE = (16, 16, 3)
_IMAGE_OFFSET, _IMAGE_SCALE = 2**20, 16


def episode_name(seed: int) -> int:
    """The name of an episode of :class:`CountingEnv` that was reset with this seed."""
    return seed % 1_000_003


class CountingEnv(gym.Env[Any, Any]):
    """Observations are four numbers: name of the episode, step, last action, checksum of all actions.

    The episode's name comes from its seed (see :func:`episode_name`). It is not a count, because a count would survive
    ``reset`` and could not be restored by replaying an episode. The reward is the step number, so all rows of an
    episode differ. In first rows the action is -1. :func:`read_counting` reads the numbers from any kind of observation
    except ``discrete``, which contains only the step.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        length: int = 10,
        observation: ObservationChoice = "vector",
        action: ActionChoice = "discrete",
        ends: Literal["terminated", "truncated"] = "terminated",
        varied: bool = False,
        start: int = 0,
        crash_at: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.length, self.ends, self.varied, self.start = length, ends, varied, start
        self.observation, self.crash_at, self.render_mode = observation, crash_at, render_mode
        self.observation_space = _observation_space(observation, length)
        self.action_space = _action_space(action, start)
        self._numbers = np.zeros(4, np.float32)
        self._end = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        name = episode_name(seed if seed is not None else int(self.np_random.integers(2**31)))
        self._numbers = np.array([name, 0, -1, name], np.float32)
        self._end = 1 + name % self.length if self.varied else self.length
        return self._observe(), {"steps": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = int(self._numbers[STEP]) + 1
        if step == self.crash_at:
            raise RuntimeError(f"crash_at is {step}")
        number = self._as_number(action)
        checksum = (int(self._numbers[CHECKSUM]) * 31 + round(number * _IMAGE_SCALE) + step) % 1_000_003
        self._numbers[STEP:] = step, number, checksum
        ended = step >= self._end
        info = {"steps": step, "success": float(ended)}
        return (
            self._observe(),
            float(step),
            ended and self.ends == "terminated",
            ended and self.ends == "truncated",
            info,
        )

    def render(self) -> Array:
        return np.kron(_as_image(self._numbers), np.ones((4, 4, 1), np.uint8))

    def _as_number(self, action: Any) -> float:
        if isinstance(self.action_space, spaces.Discrete):
            return float(action - self.start)
        if isinstance(self.action_space, spaces.MultiDiscrete):
            return float(np.ravel_multi_index(tuple(action - self.start), tuple(self.action_space.nvec)))
        if isinstance(self.action_space, spaces.MultiBinary):
            return float(action @ np.array([1, 2, 4]))
        if isinstance(self.action_space, spaces.Dict):
            move, bits = action["buttons"]
            return float(8 * (move - self.start) + bits @ np.array([1, 2, 4]) + action["force"][0])
        return float(action[0])

    def _observe(self) -> Any:
        numbers = self._numbers.copy()
        if self.observation == "vector":
            return numbers
        if self.observation == "image":
            return _as_image(numbers)
        if self.observation == "dict":
            return {"numbers": numbers, "camera": _as_image(numbers)}
        step = np.int64(numbers[STEP]) + 3
        return step if self.observation == "discrete" else (numbers, step)


def read_counting(row: Row) -> Array:
    """The four numbers of an observation, batched or not, as float32 ``(..., 4)``."""
    for key in ("obs/numbers", "obs/0", "obs"):
        if key in row and row[key].dtype == np.float32:
            return np.asarray(row[key])
    pixels = row["obs"][..., 0, :4, :].astype(np.int64)
    whole = pixels[..., 0] + pixels[..., 1] * 2**8 + pixels[..., 2] * 2**16
    numbers = whole.astype(np.float32)
    numbers[..., ACTION] = (whole[..., ACTION] - _IMAGE_OFFSET) / _IMAGE_SCALE
    return numbers


def _as_image(numbers: Array) -> Array:
    """The numbers as bytes of the first four pixels. Actions are rounded to 1/16."""
    whole = numbers.astype(np.int64)
    whole[ACTION] = round(float(numbers[ACTION]) * _IMAGE_SCALE) + _IMAGE_OFFSET
    image = np.zeros(IMAGE_SHAPE, np.uint8)
    image[0, :4] = whole[:, None] >> np.array([0, 8, 16]) & 255
    return image


def _observation_space(kind: ObservationChoice, length: int) -> spaces.Space[Any]:
    numbers = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    image = spaces.Box(0, 255, IMAGE_SHAPE, np.uint8)
    step = spaces.Discrete(length + 1, start=3)
    choices: dict[str, spaces.Space[Any]] = {
        "vector": numbers,
        "image": image,
        "dict": spaces.Dict({"numbers": numbers, "camera": image}),
        "tuple": spaces.Tuple((numbers, step)),
        "discrete": step,
    }
    return choices[kind]


def _action_space(kind: ActionChoice, start: int) -> spaces.Space[Any]:
    force = spaces.Box(np.array([-2, 0], np.float32), np.array([6, 1], np.float32))
    buttons = spaces.Tuple((spaces.Discrete(4, start=start), spaces.MultiBinary(3)))
    choices: dict[str, spaces.Space[Any]] = {
        "discrete": spaces.Discrete(4, start=start),
        "continuous": force,
        "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "multi_discrete": spaces.MultiDiscrete([3, 4], start=np.array([start, start])),
        "multi_binary": spaces.MultiBinary(3),
        "mixed": spaces.Dict({"buttons": buttons, "force": force}),
    }
    return choices[kind]
