"""What PPO's torch form and its numpy form share: the interface of a gradient step, and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from reverie.nets.optim import Result

Minibatch = dict[str, Any]


class StepSettings(NamedTuple):
    """The settings of a gradient step at one moment of training; :class:`.PPOConfig` explains them."""

    learning_rate: float
    max_grad_norm: float | None
    target_kl: float | None
    clip: float
    value_clip: float | None
    value_weight: float
    entropy_weight: float

    def accepts(self, metrics: Mapping[str, Any]) -> bool:
        """Whether the policy is still close enough to the old one for a step on this minibatch.

        A KL that is NaN is accepted: the check of all metrics after the update reports it.
        """
        return self.target_kl is None or not float(metrics["kl"]) > 1.5 * self.target_kl


class PPOEngine(Protocol):
    """What the torch form and the numpy form of PPO have in common."""

    def minibatches(self, rows: dict[str, Tensor], size: int) -> Iterator[Minibatch]:
        """Split shuffled rows (R, ...) into what :meth:`gradient_step` takes."""
        ...

    def gradient_step(self, minibatch: Minibatch, settings: StepSettings) -> Result:
        """One step, or none if the policy has moved further than ``target_kl`` allows.

        Metrics: ``policy_loss`` and ``value_loss``. ``aux`` has the ``log_ratio`` (R,).
        """
        ...
