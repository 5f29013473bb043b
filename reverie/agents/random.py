"""A controller that acts at random. It fills buffers before learning starts."""

from __future__ import annotations

import numpy as np

from reverie.core.specs import Specs
from reverie.core.types import Array, Row


class RandomController:
    """Uniform over the action space; standard normal for unbounded actions."""

    def __init__(self, specs: Specs) -> None:
        self._action = specs.action

    def act(self, now: Row, rng: np.random.Generator) -> Array:
        return self._action.sample(rng, len(now["is_first"]))
