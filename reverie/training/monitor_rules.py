"""The monitor's rules. A rule checks one metric of one line and describes the problem, if it finds one.

Rules depend only on recorded metrics and counters, so equal runs raise equal alerts, and so does a run that was stopped
and resumed. A rule's state for one metric is a :class:`MetricState`, which is saved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reverie.config.monitor import MonitorConfig
from reverie.core.types import State
from reverie.core.wording import count

if TYPE_CHECKING:
    from reverie.core.specs import ActionSpec

Level = Literal["info", "warning", "error"]
WARM_UP_LINES = 5
"""Lines that establish the usual size of a gradient."""
HARMLESS_NORM = 0.1
"""Gradient norms below this may grow by any factor, as those of heads that start at zero do."""
SMALL_LOSS = 0.01
"""A value loss below this fraction of the highest one is harmless."""
FEWEST_EVALUATIONS = 3
"""Evaluations in a row without a new best before that counts as no progress."""
_GAUSSIAN_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)


@dataclass(frozen=True)
class Task:
    """The facts about a run that rules may use."""

    action: ActionSpec
    horizon_steps: int
    solved_at: float | None = None
    vector: str = "sync"
    num_envs: int = 1


@dataclass
class MetricState:
    """State of one rule for one metric."""

    streak: int = 0
    """Lines in a row with a problem."""
    has_alerted: bool = False
    number: float | None = None
    """Of the rule's own: an average, a maximum or the best value."""
    count: int = 0
    """Of the rule's own: values in the average, or the env step of the best value."""
    seen: int = 0
    """Of the rule's own: evaluations since the best one."""

    def saved(self) -> State:
        values = dataclasses.asdict(self)
        return {"is_told" if name == "has_alerted" else name: value for name, value in values.items()}

    @classmethod
    def from_saved(cls, values: State) -> MetricState:
        """From a checkpoint, where ``has_alerted`` has an older name."""
        return cls(**{"has_alerted" if name == "is_told" else name: value for name, value in values.items()})


class Rule:
    """Base class: a metric of update hooks that stays past a bound for ``patience`` lines."""

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
        """The metrics of a line that the rule checks."""
        for key in line:
            group, _, name = key.partition("/")
            if group.startswith("update") and self.covers(name):
                yield key

    def covers(self, name: str) -> bool:
        """Whether the rule checks an update metric of this name."""
        return name == self.metric

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        """What is wrong with the value, or None."""
        raise NotImplementedError


class HighKL(Rule):
    name = metric = "kl"
    advice = "Lower algorithm.learning_rate or algorithm.epochs, or set algorithm.target_kl=0.02."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        text = f"an update changes the policy by a KL of {value:.3g} (above {self.bound:g})"
        return text if value > self.bound else None


class HighClipFraction(Rule):
    name = metric = "clip_fraction"
    advice = "Lower algorithm.learning_rate or algorithm.epochs."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        text = (
            f"{value:.0%} of the probability ratios are clipped (above {self.bound:.0%}): most samples have no gradient"
        )
        return text if value > self.bound else None


class LowExplainedVariance(Rule):
    """Ignored where the value loss is tiny: returns then hardly vary, so there is no variance to explain. A solved
    CartPole has values from -8 to 1 for half of its run."""

    name = metric = "explained_variance"
    patience_factor = 4
    advice = "Normalise rewards (normaliser.reward=true), or raise algorithm.value_weight."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        loss = next((number for key, number in line.items() if key.endswith("/value_loss")), None)
        if loss is not None:
            state.number = max(state.number or 0.0, loss)
            if loss < SMALL_LOSS * state.number:
                return None
        text = f"the value function predicts returns worse than a constant would: {value:.3g} (below {self.bound:g})"
        return text if value < self.bound else None


class GradientRule(Rule):
    """Checks all gradient norms, of the whole algorithm or of one network (``grad_norm_critic``)."""

    def covers(self, name: str) -> bool:
        return name == "grad_norm" or name.startswith("grad_norm_")


class GrowingGradient(GradientRule):
    """Compares with the geometric mean of earlier lines. Lines with a problem do not enter the mean."""

    name = "gradient_growth"
    advice = "Lower the learning rate, clip gradients (max_grad_norm), or normalise observations and rewards."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        usual = math.exp(state.number) if state.number is not None else value
        if state.count >= WARM_UP_LINES and value > max(self.bound * usual, HARMLESS_NORM):
            return f"the gradient norm is {value:.3g}, {value / usual:,.0f} times its usual size"
        if value > 0:
            logarithm, count = math.log(value), min(state.count, 4 * WARM_UP_LINES)
            state.number = ((state.number or 0.0) * count + logarithm) / (count + 1)
            state.count += 1
        return None


class VanishingGradient(GradientRule):
    name = "gradient_low"
    advice = "Check whether rewards ever differ, and whether a layer is dead: --debug writes statistics of each layer."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        return f"the gradient norm is {value:.1e}: the weights hardly change" if value < self.bound else None


class IgnoredObservations(Rule):
    """The latents of a small Dreamer may become constant, and the encoder then learns nothing. On Motion the ratio of
    the gradient norms was 1e-5 in such a run, and at least 0.08 in the same run with ``image_bias_init: mean``."""

    name = "encoder_share"
    metric = "grad_norm_encoder"
    advice = "Set algorithm.image_bias_init=mean, raise algorithm.model.rssm.stoch, or lower algorithm.learning_rate."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        decoder = next((number for key, number in line.items() if key.endswith("/grad_norm_decoder")), None)
        if decoder is None or value >= self.bound * decoder:
            return None
        return f"the encoder's gradient is {value / decoder:.1e} of the decoder's: the model ignores observations"


class CollectRule(Rule):
    """Checks a metric of acting."""

    def metrics(self, line: Mapping[str, Any]) -> Iterator[str]:
        yield from (key for key in line if key == f"collect/{self.metric}")


class CollapsedPlans(CollectRule):
    """The elites of a healthy CEM still differ after its last iteration: by 0.35 to 0.41 with PlaNet on Pendulum."""

    name = metric = "plan_spread"
    advice = "Raise algorithm.planner.min_std, or lower algorithm.planner.iterations or algorithm.planner.momentum."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        text = f"the elites of plans deviate by only {value:.2g} (below {self.bound:g}): all of them are the same plan"
        return text if value < self.bound else None


class PoorPolicy(CollectRule):
    """A policy that has just begun to learn is about as good as chance."""

    name = metric = "policy_gain"
    patience_factor = 4
    advice = "Raise the policy's learning rate, or set algorithm.planner.policy_samples=0."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        gain = line.get("collect/plan_gain", 0.0)
        if gain <= 0 or value >= self.bound * gain:
            return None
        return f"the policy's sequences should earn {-value:.3g} less than random ones, and plans {gain:.3g} more"


class LowEntropy(Rule):
    name = metric = "entropy"
    advice = "Raise algorithm.entropy_weight, or lower algorithm.learning_rate."

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        action = self.task.action
        if 2 * line["env_steps"] > self.task.horizon_steps or action.parts:
            return None  # late in a run low entropy is normal, and mixed action kinds have no common scale
        if action.kind == "continuous":
            deviation = math.exp(min(value / max(1, action.size) - _GAUSSIAN_ENTROPY, 0.0))
            text = (
                f"the policy hardly explores any more: actions deviate by only {deviation:.2g} (below {self.bound:g})"
            )
            return text if deviation < self.bound else None
        fraction = value / max(sum(math.log(classes) for classes in action.classes), 1e-9)
        text = f"the policy hardly explores any more: its entropy is {fraction:.2%} of the highest possible"
        return text if fraction < self.bound else None


class NoProgress(Rule):
    """Needs no patience, since it measures a long time, but needs several evaluations: two poor ones may be chance."""

    name = "no_progress"
    patience_factor = 0
    advice = "Compare with the tuned values of a preset, or try another seed. Training longer rarely helps."

    def metrics(self, line: Mapping[str, Any]) -> Iterator[str]:
        yield from (key for key in line if key == "evaluate/return_mean")

    def problem(self, value: float, line: Mapping[str, Any], state: MetricState) -> str | None:
        if state.number is None or value > state.number:
            state.number, state.count, state.seen = value, line["env_steps"], 0
        else:
            state.seen += 1
        goal = self.task.solved_at
        if not self.task.horizon_steps or (goal is not None and state.number >= goal):
            return None
        waited = line["env_steps"] - state.count
        text = f"no evaluation was better than {state.number:.4g} for {count(waited, 'env step')}"
        is_long = waited > self.bound * self.task.horizon_steps and state.seen >= FEWEST_EVALUATIONS
        return text if is_long else None


RULES: tuple[type[Rule], ...] = (
    HighKL, HighClipFraction, LowExplainedVariance, GrowingGradient, VanishingGradient, IgnoredObservations,
    CollapsedPlans, PoorPolicy, LowEntropy, NoProgress,
)  # fmt: skip
