"""Environments with one mistake each, for the tests; found by dotted path."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Sound(gym.Env[Any, Any]):
    """Nothing is wrong here: a random walk that ends after five steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-50, 50, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.place = np.zeros(2, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place = self.place + np.float32(self.np_random.uniform(-1, 1))
        return self.place.copy(), 1.0, self.steps == 5, False, {"success": 1.0}

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


class Underflow(Sound):
    """Its reward is a denormal number, computed where the env runs."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(np.float32(1e-30) * np.float32(1e-10)), *rest


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class OldReset(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class SeedlessReset(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class OutOfBounds(Sound):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation + 60, *rest


class WrongShape(Sound):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation[:1], *rest


class WrongDtype(Sound):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation.astype(np.float64), *rest


class ListObservation(Sound):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation.tolist(), *rest


class NanObservation(Sound):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation * np.nan, *rest


class NanReward(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest


class ArrayReward(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward]), *rest


class IntegerFlags(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, int(terminated), 0, info


class Endless(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return np.clip(observation, -50, 50), reward, False, False, info


class Unseeded(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=int.from_bytes(os.urandom(4), "little"))


class Remembering(Sound):
    """The first episode differs from the others: something outlives reset."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        self.resets += 1
        return observation + np.float32(self.resets == 1), info


class Aliasing(Sound):
    def step(self, action: Any) -> Any:
        old = self.place
        _, *rest = super().step(action)
        old[:] = self.place
        self.place = old
        return old, *rest


class Large(Sound):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation + 1e4, *rest


class BoxAction(Sound):
    def __init__(self, low: float = -1, high: float = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = spaces.Box(low, high, (1,), np.float32)


class Invisible(Sound):
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form


class FailingStep(Sound):
    def step(self, action: Any) -> Any:
        raise RuntimeError("the wheel came off")


class FailingReset(Sound):
    """Works until its second reset, like an env that leaks something."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        if self.resets == 2:
            raise RuntimeError("no more handles")
        return super().reset(seed=seed)


class FailsInWorkers(Sound):
    """Can be made in the parent only."""

    def __init__(self, parent: int, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        if os.getpid() != parent:
            raise RuntimeError("no licence for a second process")


class BrokenDrawing(Sound):
    """Says that it draws, and cannot."""

    def render(self) -> Any:
        raise OSError("no OpenGL here")


class TextReward(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, str(reward), *rest


class InDict(Sound):
    """Nothing is wrong here either: a Dict observation."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        box = spaces.Box(-50, 50, (2,), np.float32)
        self.observation_space = spaces.Dict({"place": box, "speed": box})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        return {"place": observation, "speed": observation}, info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return {"place": observation, "speed": observation}, *rest


class MissingKey(InDict):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return {"place": observation["place"]}, *rest


class NoDict(InDict):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation["place"], *rest


class ShortTuple(Sound):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        box = spaces.Box(-50, 50, (2,), np.float32)
        self.observation_space = spaces.Tuple((box, box))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        return (observation, observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation,), *rest


class Ragged(Sound):
    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return [[1.0], [1.0, 2.0]], *rest


class NoInfo(Sound):
    def step(self, action: Any) -> Any:
        *others, _ = super().step(action)
        return *others, None


class Truncating(Sound):
    """Nothing is wrong here either: it keeps its own clock."""

    def step(self, action: Any) -> Any:
        observation, reward, ended, _, info = super().step(action)
        return observation, reward, False, ended, info


class NeedsSize(Sound):
    def __init__(self, size: int, colour: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        if size < 0:
            raise ValueError("a negative size")


class FailingAt(Sound):
    """Raises at the same step of every episode, or ends its process there."""

    def __init__(self, at: int, exits: bool = False, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.at, self.exits = at, exits

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.steps == self.at:
            if self.exits:
                os._exit(3)
            raise RuntimeError("the wheel came off again")
        return result


class Tenfold(gym.RewardWrapper[Any, Any], gym.utils.RecordConstructorArgs):
    """A wrapper that a registration names, with an argument."""

    def __init__(self, env: Any, factor: float = 1.0) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, factor=factor)
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return self.factor * float(reward)
