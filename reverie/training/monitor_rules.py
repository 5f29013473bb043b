"""What the monitor looks for. A rule judges one metric of one line: it is fine, it is bad, or the rule cannot tell.

Rules that look at metrics are functions of what was recorded, at counters: two equal runs give equal alerts, and so
does a run that was stopped and resumed. What a rule remembers of a metric is in its :class:`Watch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reverie.config.monitor import MonitorConfig
from reverie.core.wording import count

if TYPE_CHECKING:
    from reverie.core.specs import ActionSpec

Level = Literal["info", "warning", "error"]
WARM_UP_LINES = 5
"""Lines from which the usual size of a gradient is learnt."""
HARMLESS_NORM = 0.1
"""Gradients below this may grow as they like: those of heads that begin at zero do."""
SMALL_LOSS = 0.01
"""A value loss below this share of the highest one is no trouble any more."""
FEWEST_EVALUATIONS = 3
"""Evaluations that must have failed to be better before that counts as no progress."""
_GAUSSIAN_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)


@dataclass(frozen=True)
class Task:
    """What rules may know of the run."""

    action: ActionSpec
    horizon_steps: int
    solved_at: float | None = None
    vector: str = "sync"
    num_envs: int = 1


@dataclass
class Watch:
    """What a rule remembers of one metric: for how many lines it is bad, whether that was told, and its own numbers."""

    streak: int = 0
    is_told: bool = False
    number: float | None = None
    count: int = 0
    seen: int = 0


class Rule:
    """Base: metrics of update hooks by name, past a bound for ``patience`` lines."""

    name = ""
    metric = ""
    level: Level = "warning"
    patience_factor = 1
    advice = ""

    def __init__(self, bound: float, config: MonitorConfig, task: Task) -> None:
        self.bound = bound
        self.patience = config.patience * self.patience_factor
        self.task = task

    def metrics(self, line: Mapping[str, Any]) -> Iterator[str]:
        """The metrics of a line that the rule judges."""
        for key in line:
            group, _, name = key.partition("/")
            if group.startswith("update") and self.is_meant(name):
                yield key

    def is_meant(self, name: str) -> bool:
        return name == self.metric

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        """What is wrong with a value; None if nothing is."""
        raise NotImplementedError


class HighKL(Rule):
    name = metric = "kl"
    advice = "Lower algorithm.learning_rate or algorithm.epochs, or set algorithm.target_kl=0.02."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        text = f"an update moves the policy by a KL of {value:.3g} (above {self.bound:g})"
        return text if value > self.bound else None


class HighClipFraction(Rule):
    name = metric = "clip_fraction"
    advice = "Lower algorithm.learning_rate or algorithm.epochs."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        text = f"{value:.0%} of the probability ratios are cut (above {self.bound:.0%}): most samples teach nothing"
        return text if value > self.bound else None


class LowExplainedVariance(Rule):
    """Where the value loss has all but vanished, returns hardly vary and there is nothing left to explain: a solved
    CartPole has values from -8 to 1 for half of its run."""

    name = metric = "explained_variance"
    patience_factor = 4
    advice = "Normalise rewards (normaliser.reward=true), or raise algorithm.value_weight."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        loss = next((number for key, number in line.items() if key.endswith("/value_loss")), None)
        if loss is not None:
            watch.number = max(watch.number or 0.0, loss)
            if loss < SMALL_LOSS * watch.number:
                return None
        text = f"the value function predicts returns worse than a constant would: {value:.3g} (below {self.bound:g})"
        return text if value < self.bound else None


class GradientRule(Rule):
    """Gradient norms, of the whole or by part (``grad_norm_critic``)."""

    def is_meant(self, name: str) -> bool:
        return name == "grad_norm" or name.startswith("grad_norm_")


class GrowingGradient(GradientRule):
    """Compares with the geometric mean of earlier lines, which stands still while the norm is bad."""

    name = "gradient_growth"
    advice = "Lower the learning rate, clip gradients (max_grad_norm), or normalise observations and rewards."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        usual = math.exp(watch.number) if watch.number is not None else value
        if watch.count >= WARM_UP_LINES and value > max(self.bound * usual, HARMLESS_NORM):
            return f"the gradient norm is {value:.3g}, {value / usual:,.0f} times what it was before"
        if value > 0:
            logarithm, count = math.log(value), min(watch.count, 4 * WARM_UP_LINES)
            watch.number = ((watch.number or 0.0) * count + logarithm) / (count + 1)
            watch.count += 1
        return None


class VanishingGradient(GradientRule):
    name = "gradient_low"
    advice = "Look whether rewards ever differ, and whether a layer is dead: --debug writes statistics of each layer."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        return f"the gradient norm is {value:.1e}: nothing is learnt" if value < self.bound else None


class IgnoredObservations(Rule):
    """The latents of a small Dreamer may settle on constants, and the encoder then learns nothing. On Motion the share
    was 1e-5 in a run where that happened, and 0.08 and more in the same run with ``image_bias_init: mean``."""

    name = "encoder_share"
    metric = "grad_norm_encoder"
    advice = "Set algorithm.image_bias_init=mean, raise algorithm.model.rssm.stoch, or lower algorithm.learning_rate."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        decoder = next((number for key, number in line.items() if key.endswith("/grad_norm_decoder")), None)
        if decoder is None or value >= self.bound * decoder:
            return None
        return f"the encoder's gradient is {value / decoder:.1e} of the decoder's: the model ignores what is seen"


class LowEntropy(Rule):
    name = metric = "entropy"
    advice = "Raise algorithm.entropy_weight, or lower algorithm.learning_rate."

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        action = self.task.action
        if 2 * line["env_steps"] > self.task.horizon_steps or action.parts:
            return None  # late in a run a sure policy is what one hopes for; of mixed kinds there is no common scale
        if action.kind == "continuous":
            deviation = math.exp(min(value / max(1, action.size) - _GAUSSIAN_ENTROPY, 0.0))
            text = f"the policy hardly explores any more: actions deviate by {deviation:.2g} (below {self.bound:g})"
            return text if deviation < self.bound else None
        share = value / max(sum(math.log(classes) for classes in action.classes), 1e-9)
        text = f"the policy hardly explores any more: its entropy is {share:.2%} of the highest possible"
        return text if share < self.bound else None


class NoProgress(Rule):
    """Needs no patience, a long time is what it measures; but two poor evaluations are still chance."""

    name = "no_progress"
    patience_factor = 0
    advice = "Compare with the tuned values of a preset, or try another seed; more of the same rarely helps."

    def metrics(self, line: Mapping[str, Any]) -> Iterator[str]:
        yield from (key for key in line if key == "evaluate/return_mean")

    def complaint(self, value: float, line: Mapping[str, Any], watch: Watch) -> str | None:
        if watch.number is None or value > watch.number:
            watch.number, watch.count, watch.seen = value, line["env_steps"], 0
        else:
            watch.seen += 1
        goal = self.task.solved_at
        if not self.task.horizon_steps or (goal is not None and watch.number >= goal):
            return None
        waited = line["env_steps"] - watch.count
        text = f"no evaluation was better than {watch.number:.4g} for {count(waited, 'env step')}"
        is_long = waited > self.bound * self.task.horizon_steps and watch.seen >= FEWEST_EVALUATIONS
        return text if is_long else None


RULES: tuple[type[Rule], ...] = (
    HighKL, HighClipFraction, LowExplainedVariance, GrowingGradient, VanishingGradient, IgnoredObservations,
    LowEntropy, NoProgress,
)  # fmt: skip
