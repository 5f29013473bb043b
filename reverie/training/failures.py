"""Detects and explains failed updates: values that are not finite, and out of memory."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from reverie.core.errors import OutOfMemoryError, TrainingError
from reverie.core.types import Batch, State, Update, observation_keys


class UpdateCall(NamedTuple):
    """One call of an update hook: where it happens, and its batch."""

    hook: str
    phase: str
    env_id: str
    batch: Batch
    env_steps: int
    updates: int

    def __str__(self) -> str:
        return f"'{self.hook}' in phase '{self.phase}'"


class NotFiniteError(TrainingError):
    """An update returned a metric that is NaN or infinite. Carries the batch, to be saved for inspection."""

    def __init__(self, message: str, fix: str, call: UpdateCall, metrics: dict[str, float]) -> None:
        super().__init__(message, fix)
        self.call = call
        self.metrics = metrics

    def record(self) -> State:
        """Everything about the failure, for a file: the batch as the algorithm received it, and the metrics as text,
        because JSON has no NaN."""
        call = self.call
        return {
            "problem": self.message, "hook": call.hook, "phase": call.phase, "env": call.env_id,
            "env_steps": call.env_steps, "updates": call.updates,
            "metrics": {key: repr(value) for key, value in self.metrics.items()}, "batch": dict(call.batch),
        }  # fmt: skip


def check_finite(update: Update, call: UpdateCall) -> None:
    """Once per update: a metric that is not finite means that the weights are useless."""
    broken = [key for key, value in update.metrics.items() if not math.isfinite(float(value))]
    if not broken:
        return
    metrics = {key: float(value) for key, value in update.metrics.items()}
    what = f"{', '.join(f'{key} = {metrics[key]}' for key in broken)} in {call}, at update {call.updates:,}"
    inputs = [key for key in ("reward", *observation_keys(call.batch)) if not _is_finite(call.batch[key])]
    if inputs:
        raise NotFiniteError(
            f"{what}: {' and '.join(inputs)} of the env {call.env_id} is not finite.",
            f"Fix the env. To find the step where it happens: reverie envs check {call.env_id} --episodes 100",
            call, metrics,
        )  # fmt: skip
    raise NotFiniteError(
        f"{what}: training has diverged.",
        "Lower the learning rate, clip gradients (max_grad_norm) or normalise observations and rewards.", call, metrics,
    )  # fmt: skip


def check_weights(state: State, path: str = "") -> None:
    """Refuse to save NaN weights: such a checkpoint is useless, and older good ones would be deleted for it."""
    for key, value in state.items():
        if isinstance(value, dict):
            check_weights(value, f"{path}{key}.")
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            raise TrainingError(
                f"The weights '{path}{key}' contain NaN, so nothing was saved: training has diverged.",
                "The last checkpoint is still good. Lower the learning rate, clip gradients (max_grad_norm) or "
                "normalise observations and rewards.",
            )


def explain_failure(error: Exception, call: UpdateCall) -> None:
    """Turn torch's errors about memory, or about gradients under ``debug``, into messages that say what to change."""
    if "returned nan values" in str(error):  # anomaly detection
        what = f"{str(error).splitlines()[0]} In {call}: training has diverged."
        raise NotFiniteError(what, "The stack trace above names the operation.", call, {}) from error
    if is_out_of_memory(error):
        raise OutOfMemoryError(
            f"There is not enough memory for {call}, at env step {call.env_steps:,}.",
            "Lower algorithm.batch_size, env.num_envs or the size of the network. A resume with a smaller batch "
            "(algorithm.batch_size=...) continues from the last checkpoint.",
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Python's MemoryError, or one of torch's errors, recognised by its text."""
    texts = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in texts)


def _is_finite(values: Any) -> bool:
    return bool(np.isfinite(values).all())
