"""How well a world model foresees: its dreams beside what really happened, over rows that it never learnt from.

Dreams start every few rows from what was seen so far and follow the actions that were really done. Their squared error
is compared with that of the simplest forecast, that everything stays as it is. Images count in shares of full
brightness; of indices the share of wrong ones is the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reverie.core.types import Array, Foreseen, Row, observation_keys
from reverie.policy import Policy

BINS = 10
"""Of a calibration, with equally many predictions each."""


@dataclass(frozen=True)
class Errors:
    """Of dreams, by how many steps they look ahead: (H,) each."""

    model: Array
    repeat_last: Array
    counts: Array
    """Dreams that were not cut short by the end of their episode."""

    def mean(self, errors: Array) -> float:
        return float(np.average(errors, weights=self.counts)) if self.counts.any() else 0.0

    def metrics(self) -> dict[str, float]:
        """Relative errors below 1 are better than repeating; where nothing ever changes there are none."""
        model, repeat_last = self.mean(self.model), self.mean(self.repeat_last)
        metrics = {"mse": model, "repeat_last_mse": repeat_last}
        if repeat_last > 0:
            metrics["relative_mse"] = model / repeat_last
        if self.repeat_last[-1] > 0:
            metrics["relative_mse_at_end"] = float(self.model[-1] / self.repeat_last[-1])
        return metrics


@dataclass(frozen=True)
class Calibration:
    """What was predicted and what came, on average over bins of alike predictions (K,)."""

    predicted: Array
    actual: Array
    counts: Array

    @classmethod
    def of(cls, predicted: Array, actual: Array) -> Calibration:
        order = np.argsort(predicted, axis=None, kind="stable")
        bins = [part for part in np.array_split(order, BINS) if len(part)]
        means = [[values.ravel()[part].mean(dtype=np.float64) for part in bins] for values in (predicted, actual)]
        return cls(np.array(means[0]), np.array(means[1]), np.array([len(part) for part in bins]))

    def metrics(self) -> dict[str, float]:
        difference = self.predicted - self.actual
        return {
            "error": float(np.average(np.abs(difference), weights=self.counts)),
            "bias": float(np.average(difference, weights=self.counts)),
        }


@dataclass(frozen=True)
class Look:
    """Rows (B, T), what the model made of them, and where its dreams began: ``starts`` (N, 2) of env and time."""

    rows: Row
    foreseen: Foreseen
    starts: Array
    steps: int

    @cached_property
    def is_real(self) -> Array:
        """(N, H): which steps of the dreams belong to the episode that they began in."""
        return ~np.logical_or.accumulate(self.truth("is_first"), axis=1)

    def truth(self, key: str) -> Array:
        """What really came (N, H, ...)."""
        env, time = self.starts.T
        values: Array = self.rows[key][env[:, None], time[:, None] + 1 + np.arange(self.steps)]
        return values

    @cached_property
    def errors(self) -> dict[str, Errors]:
        """Of every observation and of the reward."""
        return {key: self._errors(key) for key in (*observation_keys(self.rows), "reward")}

    @cached_property
    def calibrations(self) -> dict[str, Calibration]:
        seen = self.foreseen.seen
        goes_on = (~self.rows["terminated"]).astype(np.float32)
        return {
            "reward": Calibration.of(seen["reward"], self.rows["reward"]),
            "continuation": Calibration.of(seen["continuation"], goes_on),
        }

    def metrics(self) -> dict[str, float]:
        """Everything as numbers for one line."""
        return dict(self._metrics())

    def _metrics(self) -> Iterator[tuple[str, float]]:
        for key, errors in self.errors.items():
            yield from ((f"open_loop/{key}/{name}", value) for name, value in errors.metrics().items())
        for key in observation_keys(self.rows):
            yield f"reconstruction/{key}/mse", float(_distance(self.foreseen.seen[key], self.rows[key]).mean())
        for key, calibration in self.calibrations.items():
            yield from ((f"calibration/{key}_{name}", value) for name, value in calibration.metrics().items())
        yield from ((f"held_out/loss_{name}", value) for name, value in self.foreseen.losses.items())

    def _errors(self, key: str) -> Errors:
        truth, real = self.truth(key), self.is_real
        env, time = self.starts.T
        model = _distance(self.foreseen.ahead[key], truth)
        last = _distance(np.broadcast_to(self.rows[key][env, time][:, None], truth.shape), truth)
        counts = real.sum(0)
        means = [(errors * real).sum(0, dtype=np.float64) / np.maximum(counts, 1) for errors in (model, last)]
        return Errors(means[0], means[1], counts)


def take_look(policy: Policy, rows: Row, context: int, steps: int, rng: np.random.Generator) -> Look:
    """Let the policy's world model dream over rows (B, T)."""
    envs, length = rows["is_first"].shape
    times = np.arange(context - 1, length - steps, steps)
    starts = np.stack(np.meshgrid(np.arange(envs), times, indexing="ij"), -1).reshape(-1, 2)
    normal = policy.normaliser.normalise_batch(rows)
    foreseen: Foreseen = policy.algorithm.foresee(normal, starts, steps, rng)  # type: ignore[attr-defined]
    return Look(dict(normal), foreseen, starts, steps)


def _distance(predicted: Array, truth: Array) -> Array:
    """The mean squared difference of each entry (B, T)."""
    if truth.dtype == np.uint8:
        difference = (predicted.astype(np.float32) - truth) / 255
    elif np.issubdtype(truth.dtype, np.integer):
        difference = (predicted != truth).astype(np.float32)
    else:
        difference = (predicted - truth).astype(np.float32)
    squares: Array = np.square(difference).reshape(*truth.shape[:2], -1).mean(-1)
    return squares
