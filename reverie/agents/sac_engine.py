"""What SAC's two engines have in common: torch in :mod:`reverie.algos.sac`, and :mod:`.numpy_soft_actor_critic`."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from reverie.core.types import Array, Carry, Row
from reverie.functional.transition_batch import TransitionBatch
from reverie.nets.optim import Result


class SACEngine(Protocol):
    """What the torch form and the numpy form of SAC have in common."""

    def choose(self, now: Row, carry: Carry, noise: Array | None) -> tuple[Array, Carry]:
        """Actions (B, A) for arriving rows, the most likely ones without noise, and the next carry."""
        ...

    def gradient_step(
        self, transitions: TransitionBatch, learning_rate: float, rng: np.random.Generator
    ) -> tuple[Result, Result]:
        """One step of the critics, and one of actor and temperature. The first ``aux`` has ``td_errors`` (N)."""
        ...
