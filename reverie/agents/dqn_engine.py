"""What DQN's two engines have in common: torch in :mod:`reverie.algos.dqn`, and :mod:`.numpy_q_network`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from reverie.core.types import Array, Carry, Row
from reverie.functional.transition_batch import TransitionBatch
from reverie.nets.optim import Result


class DQNEngine(Protocol):
    """What the torch form and the numpy form of DQN have in common. ``config`` is that of the current phase."""

    def q_values(self, now: Row, carry: Carry, rng: np.random.Generator | None) -> tuple[Array, Carry]:
        """Values (N, A) of arriving rows, and the next carry. Noisy layers get new noise from ``rng``."""
        ...

    def gradient_step(
        self, transitions: TransitionBatch, config: Any, learning_rate: float, rng: np.random.Generator
    ) -> Result:
        """One step of the online network. ``aux`` has the ``losses`` (N)."""
        ...
