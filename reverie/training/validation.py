"""Losses on held-out data.

Like evaluation, validation draws from (run seed, "validate", env steps, updates) and changes nothing but metrics, so it
has no state to save.
"""

from __future__ import annotations

import numpy as np

from reverie.config.phases import Phase
from reverie.core.contracts import HasHeldOutLoss
from reverie.core.errors import TrainingError
from reverie.core.rng import make_generator
from reverie.training.session import Session


def held_out_means(session: Session, phase: Phase, batches: int) -> dict[str, float]:
    """The algorithm's ``held_out_metrics`` of each hook in the phase, averaged over ``batches`` batches."""
    held_out = getattr(session.buffers[phase.buffer], "holdout", None)
    algorithm = session.algorithm
    if held_out is None or not isinstance(algorithm, HasHeldOutLoss):
        raise TrainingError(
            "validate needs held-out data and an algorithm with held_out_metrics.",
            "Set the buffer's holdout=0.1, or remove the hook.",
        )
    clock = session.counters.clock()
    rng = make_generator(session.config.seed, "validate", clock.env_steps, clock.updates)
    values: dict[str, list[float]] = {}
    for hook in (hook.name for hook in phase.hooks if hook.name in session.algorithm.reads):
        for _ in range(batches):
            batch = held_out.sample(session.algorithm.reads[hook], session.collector.now, rng)
            metrics = algorithm.held_out_metrics(hook, session.normaliser.normalise_batch(batch), clock, rng)
            for name, value in metrics.items():
                values.setdefault(f"{hook}/{name}", []).append(float(value))
    return {name: float(np.mean(found)) for name, found in values.items()}
