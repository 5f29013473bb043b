"""Stand-ins for packages that cannot be installed here, with the parts of their interfaces that our adapters use.

They check what they are given as the real ones do, and record it.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

STEPS = 5
"""Length of an episode."""


class OldSpace:
    """A space of the old gym."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class OldBox(OldSpace): ...


class OldDiscrete(OldSpace): ...


class OldMultiDiscrete(OldSpace):
    def no_op(self) -> Any:
        return np.array([0, 0, 0, 12, 12, 0, 0, 0])


class OldMultiBinary(OldSpace): ...


class OldText(OldSpace): ...


class OldDict(OldSpace):
    def noop(self) -> dict[str, Any]:
        return {key: np.zeros(2, np.float32) if key == "camera" else 0 for key in self.__dict__["spaces"]}


KEYS = ("attack", "back", "forward", "jump", "left", "right", "use", "ESC")


class MineRLGame:
    """A task of MineRL 1.0: images of 360x640, keys as 0 or 1, the camera in degrees."""

    def __init__(self, task: str) -> None:
        self.task, self.seeds, self.actions, self.is_closed = task, [], [], False  # type: ignore[var-annotated]
        camera = OldBox(low=np.full(2, -180.0), high=np.full(2, 180.0), dtype=np.dtype(np.float32), shape=(2,))
        keys = {key: OldDiscrete(n=2) for key in KEYS}
        self.action_space = OldDict(spaces={**keys, "camera": camera})

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> dict[str, Any]:
        self.count = 0
        return self._observe()

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        assert set(action) == {*KEYS, "camera"}
        self.actions.append(action)
        self.count += 1
        return self._observe(), 1.0, self.count >= STEPS, {}

    def _observe(self) -> dict[str, Any]:
        return {"pov": np.full((360, 640, 3), 10 * self.count, np.uint8)}

    def close(self) -> None:
        self.is_closed = True


class MineDojoGame:
    """A task of MineDojo: channels first, eight numbers as action."""

    def __init__(self, task_id: str, image_size: tuple[int, int], **settings: Any) -> None:
        self.task, self.image_size, self.settings = task_id, image_size, settings
        self.actions: list[Any] = []
        self.action_space = OldMultiDiscrete(nvec=np.array([3, 3, 4, 25, 25, 8, 244, 36]))

    def reset(self) -> dict[str, Any]:
        self.count = 0
        return self._observe()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        assert action.shape == (8,)
        assert (action < self.action_space.__dict__["nvec"]).all()
        self.actions.append(action.tolist())
        self.count += 1
        is_over = self.count >= STEPS
        return self._observe(), 0.5, is_over, {"TimeLimit.truncated": True} if is_over else {}

    def _observe(self) -> dict[str, Any]:
        image = np.zeros((3, *self.image_size), np.uint8)
        image[0] = 200  # red
        stats = {"life": np.array([10.0]), "food": np.array([20.0]), "oxygen": np.array([300.0])}
        return {"rgb": image, "life_stats": stats}

    def close(self) -> None: ...


class Lab:
    """A level of DeepMind Lab. After the end of an episode there are no observations."""

    def __init__(self, level: str, observations: list[str], config: dict[str, str], renderer: str) -> None:
        assert all(isinstance(value, str) for value in config.values())
        self.level, self.names, self.config, self.renderer = level, observations, config, renderer
        self.seeds: list[int] = []
        self.actions: list[Any] = []

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)
        self.count = 0

    def is_running(self) -> bool:
        return self.count < STEPS

    def step(self, action: Any, num_steps: int) -> float:
        assert action.dtype == np.intc
        assert action.shape == (7,)
        self.actions.append((action.tolist(), num_steps))
        self.count += 1
        return 2.0

    def observations(self) -> dict[str, Any]:
        if not self.is_running():
            raise RuntimeError("Environment is not running")
        size = int(self.config["height"]), int(self.config["width"]), 3
        found: dict[str, Any] = {"RGB_INTERLEAVED": np.full(size, 30 + self.count, np.uint8), "INSTR": "Go to: RED!"}
        return {name: found[name] for name in self.names}

    def close(self) -> None: ...


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(contents)
    return made


def old_gym(make: Any) -> ModuleType:
    names = ("Box", "Dict", "Discrete", "MultiDiscrete", "MultiBinary", "Text")
    classes = (OldBox, OldDict, OldDiscrete, OldMultiDiscrete, OldMultiBinary, OldText)
    return module("gym", make=make, spaces=SimpleNamespace(**dict(zip(names, classes, strict=True))))
