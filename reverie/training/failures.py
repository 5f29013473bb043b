"""What stops an update: numbers that are not finite, memory that does not suffice. Each is explained."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from reverie.core.errors import OutOfMemoryError, TrainingError
from reverie.core.types import Batch, State, Update, observation_keys


class UpdateCall(NamedTuple):
    """One call of an update hook: where it happens and what it was given."""

    hook: str
    phase: str
    env_id: str
    batch: Batch
    env_steps: int
    updates: int

    def __str__(self) -> str:
        return f"'{self.hook}' in phase '{self.phase}'"


class NotFiniteError(TrainingError):
    """An update gave a number that is none; carries the batch that did it, so that it can be looked at."""

    def __init__(self, message: str, fix: str, call: UpdateCall, metrics: dict[str, float]) -> None:
        super().__init__(message, fix)
        self.call = call
        self.metrics = metrics

    def record(self) -> State:
        """Everything about it, for a file: the batch as the algorithm saw it, and the numbers as text (JSON has none
        that are not finite)."""
        call = self.call
        return {
            "problem": self.message, "hook": call.hook, "phase": call.phase, "env": call.env_id,
            "env_steps": call.env_steps, "updates": call.updates,
            "metrics": {key: repr(value) for key, value in self.metrics.items()}, "batch": dict(call.batch),
        }  # fmt: skip


def check_finite(update: Update, call: UpdateCall) -> None:
    """One look per update: a metric that is not a number means that the weights are spoilt."""
    spoilt = [key for key, value in update.metrics.items() if not math.isfinite(float(value))]
    if not spoilt:
        return
    metrics = {key: float(value) for key, value in update.metrics.items()}
    what = f"{', '.join(f'{key} = {metrics[key]}' for key in spoilt)} in {call}"
    inputs = [key for key in ("reward", *observation_keys(call.batch)) if not _is_finite(call.batch[key])]
    if inputs:
        raise NotFiniteError(
            f"{what}: the env {call.env_id} gave a {' and '.join(inputs)} that is not finite.",
            f"Mend the env; to look for the place: reverie envs check {call.env_id} --episodes 100", call, metrics,
        )  # fmt: skip
    raise NotFiniteError(
        f"{what}: training has diverged.",
        "Lower the learning rate, clip gradients (max_grad_norm) or normalise observations and rewards.", call, metrics,
    )  # fmt: skip


def check_weights(state: State, path: str = "") -> None:
    """Refuse to keep weights that are not numbers: older checkpoints would go for one that is worth nothing."""
    for key, value in state.items():
        if isinstance(value, dict):
            check_weights(value, f"{path}{key}.")
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            raise TrainingError(
                f"The weights '{path}{key}' are not numbers any more, so nothing is saved: training has diverged.",
                "The last checkpoint is from before. Lower the learning rate, clip gradients (max_grad_norm) or "
                "normalise observations and rewards.",
            )


def explain_failure(error: Exception, call: UpdateCall) -> None:
    """Turn what torch says of memory, or of a gradient under ``debug``, into a message that says what to change."""
    if "returned nan values" in str(error):  # anomaly detection
        what = f"{str(error).splitlines()[0]} In {call}: training has diverged."
        raise NotFiniteError(what, "The stack above it names the operation.", call, {}) from error
    if is_out_of_memory(error):
        raise OutOfMemoryError(
            f"There is not enough memory for {call}, at env step {call.env_steps:,}.",
            "Lower algorithm.batch_size, env.num_envs or the size of the network; a resume with a smaller batch "
            "(algorithm.batch_size=...) goes on from the last checkpoint.",
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own error, or one of torch's: its class for devices, its text for the CPU."""
    texts = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)


def _is_finite(values: Any) -> bool:
    return bool(np.isfinite(values).all())
