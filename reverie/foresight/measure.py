"""How well a world model foresees: its open-loop predictions compared with what happened, on rows it never learns from.

Every few rows a prediction starts from what was observed so far and continues with the actions that were taken. Its
squared error is compared with that of the simplest forecast: everything stays as it is. Images count as fractions of
full brightness; the error of indices is the fraction of wrong ones. Observations are compared if the model has a
decoder. Values and latents have no true values: those of the observed rows take their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reverie.core.contracts import Decodes, WorldModel
from reverie.core.types import Array, Row, observation_keys
from reverie.policy import Policy

BINS = 10
"""Of a calibration, with equally many predictions each."""


@dataclass(frozen=True)
class Errors:
    """Mean squared errors of open-loop predictions by steps ahead, (H,) each."""

    model: Array
    repeat_last: Array
    counts: Array
    """Predictions whose episode had not ended by then."""

    def mean(self, errors: Array) -> float:
        return float(np.average(errors, weights=self.counts)) if self.counts.any() else 0.0

    def metrics(self) -> dict[str, float]:
        """Relative errors below 1 are better than repeating. Undefined, and left out, where nothing changes."""
        model, repeat_last = self.mean(self.model), self.mean(self.repeat_last)
        metrics = {"mse": model, "repeat_last_mse": repeat_last}
        if repeat_last > 0:
            metrics["relative_mse"] = model / repeat_last
        if self.repeat_last[-1] > 0:
            metrics["relative_mse_at_end"] = float(self.model[-1] / self.repeat_last[-1])
        return metrics


@dataclass(frozen=True)
class Calibration:
    """Means of predictions and of what happened, over K bins of similar predictions."""

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
class Measurement:
    """Rows (B, T), and what a world model predicts for them: observations if it decodes, and all else that it has."""

    rows: Row
    seen: Row
    """(B, T, ...) from the latents of the observed rows."""
    ahead: Row
    """(N, H, ...) from imagined latents."""
    starts: Array
    """(N, 2): env and time of the last observed row of each open-loop prediction."""
    losses: Mapping[str, float]

    @property
    def steps(self) -> int:
        """H: how far predictions look ahead."""
        return int(self.ahead["reward"].shape[1])

    @cached_property
    def truth(self) -> Row:
        """What predictions are compared with (B, T, ...)."""
        return {**self.seen, **self.rows, "continuation": (~self.rows["terminated"]).astype(np.float32)}

    @cached_property
    def is_real(self) -> Array:
        """(N, H): whether the step belongs to the episode in which the prediction started."""
        return ~np.logical_or.accumulate(self.true_ahead("is_first"), axis=1)

    def true_ahead(self, key: str) -> Array:
        """What happened (N, H, ...)."""
        env, time = self.starts.T
        values: Array = self.truth[key][env[:, None], time[:, None] + 1 + np.arange(self.steps)]
        return values

    @property
    def observations(self) -> list[str]:
        """The decoded observations."""
        return observation_keys(self.seen)

    @cached_property
    def errors(self) -> dict[str, Errors]:
        return {key: self._errors(key) for key in self.ahead}

    @cached_property
    def calibrations(self) -> dict[str, Calibration]:
        return {key: Calibration.of(self.seen[key], self.truth[key]) for key in ("reward", "continuation")}

    def metrics(self) -> dict[str, float]:
        return dict(self._metrics())

    def _metrics(self) -> Iterator[tuple[str, float]]:
        for key, errors in self.errors.items():
            yield from ((f"open_loop/{key}/{name}", value) for name, value in errors.metrics().items())
        for key in self.observations:
            yield f"reconstruction/{key}/mse", float(_distance(self.seen[key], self.rows[key]).mean())
        for key, calibration in self.calibrations.items():
            yield from ((f"calibration/{key}_{name}", value) for name, value in calibration.metrics().items())
        yield from ((f"held_out/loss_{name}", value) for name, value in self.losses.items())

    def _errors(self, key: str) -> Errors:
        truth, real = self.true_ahead(key), self.is_real
        env, time = self.starts.T
        model = _distance(self.ahead[key], truth)
        last = _distance(np.broadcast_to(self.truth[key][env, time][:, None], truth.shape), truth)
        counts = real.sum(0)
        means = [(errors * real).sum(0, dtype=np.float64) / np.maximum(counts, 1) for errors in (model, last)]
        return Errors(means[0], means[1], counts)


def measure(policy: Policy, rows: Row, context: int, steps: int, rng: np.random.Generator) -> Measurement:
    """Compare the policy's world model with rows (B, T) that begin with episodes."""
    model = policy.algorithm
    assert isinstance(model, WorldModel)
    envs, length = rows["is_first"].shape
    times = np.arange(context - 1, length - steps, steps)
    starts = np.stack(np.meshgrid(np.arange(envs), times, indexing="ij"), -1).reshape(-1, 2)
    normal = dict(policy.normaliser.normalise_batch(rows))
    observed = model.observe(normal, rng)
    env, time = starts.T
    begin = {key: values[env, time] for key, values in observed.latents.items()}
    actions = normal["action"][env[:, None], time[:, None] + np.arange(steps)]
    seen, ahead = (describe(model, latents) for latents in (observed.latents, model.imagine(begin, actions, rng)))
    return Measurement(normal, seen, ahead, starts, observed.losses)


def describe(model: WorldModel, latents: Row) -> Row:
    """What latents (...) stand for: decoded observations first, predictions, and the latents themselves."""
    decoded = model.decode(latents) if isinstance(model, Decodes) else {}
    return {**decoded, **model.predict(latents), **{f"latent/{key}": values for key, values in latents.items()}}


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
