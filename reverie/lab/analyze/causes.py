"""Likely causes of what happened, each with its evidence and what to type next.

Causes come from the alerts of the run's monitor, the verdict about its world model, its metrics and its settings. Their
order is a judgement from experience, not a measurement; only an experiment that changes one thing can decide.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reverie.lab.analyze.shape import Shape
from reverie.report.foresight_data import read_foresight
from reverie.report.formatting import number
from reverie.report.run_data import RunData
from reverie.report.safe_files import as_number
from reverie.report.settings import Difference, show_value
from reverie.report.world_model_verdict import verdict
from reverie.store.run_folder import RunFolder
from reverie.training.monitor_rules import RULES

GOOD = ("learnt", "still improving")
FEW_EPISODES = 20
LEARNING_RATE = "algorithm.learning_rate"
FAR = 3.0
"""A learning rate this many times higher or lower than the preset's is suspicious."""
LEARNING = ("algorithm.", "env.", "phases.", "normaliser.", "buffers.")
BUDGETS = ("duration_steps", "duration_updates", "duration_cycles")
NOT_LEARNING = (*BUDGETS, "env.vector", "env.num_workers")
ADVICE = {rule.name: rule.advice for rule in RULES}
HALVE = "halve the learning rate"
ALERTS = {
    "no_updates": ("The agent was never trained: it made no update.", 0.95, ""),
    "kl": ("Updates change the policy too much at once.", 0.8, HALVE),
    "clip_fraction": ("Updates change the policy too much at once.", 0.7, HALVE),
    "gradient_growth": ("Training is numerically unstable: gradients grow.", 0.8, HALVE),
    "explained_variance": ("Advantages are mostly noise.", 0.6, "normaliser.reward=true"),
    "gradient_low": ("The weights hardly change: there is almost no gradient.", 0.6, "--debug"),
    "encoder_share": ("The world model ignores what it observes.", 0.8, "algorithm.image_bias_init=mean"),
    "entropy": ("The policy stopped exploring too early.", 0.7, "algorithm.entropy_weight=0.01"),
}  # fmt: skip
"""By the rule of an alert: the cause, how likely it is, and what to change."""


@dataclass(frozen=True)
class Cause:
    """A possible cause. ``likelihood`` orders causes and is no probability."""

    text: str
    evidence: str
    next: str
    likelihood: float


def likely_causes(run: RunData, shape: Shape, num_seeds: int) -> list[Cause]:
    """The causes that the run's records speak for, the likeliest first, each once."""
    found = [cause for rule in RULES_OF_THUMB for cause in rule(run, shape)]
    if num_seeds == 1 and shape.kind not in GOOD:
        evidence = "There is one seed, and seeds of one setting differ a lot in RL."
        found.append(Cause("Chance: another seed may do better.", evidence, train(run, "--seed 1,2,3"), 0.3))
    found.sort(key=lambda cause: -cause.likelihood)
    unique = {cause.text: cause for cause in reversed(found)}
    return sorted(unique.values(), key=lambda cause: -cause.likelihood)


def train(run: RunData, *words: str) -> str:
    """The command that trains such a run again, with changes."""
    replaced = [word.partition("=")[0] for word in words]
    changes = [f"{entry.key}={show_value(entry.value)}" for entry in changed_settings(run) if entry.key not in replaced]
    return " ".join([preset(run), *map(shlex.quote, changes), *words])


def preset(run: RunData) -> str:
    """The command that trains the run's preset as it is."""
    return f"reverie train {shlex.quote(str(run.manifest.get('spec') or f'{run.env}:{run.algorithm}'))}"


def changed_settings(run: RunData) -> list[Difference]:
    """Settings that differ from the preset and decide what is learnt. Budgets and evaluations are not among them."""
    return [
        entry
        for entry in run.settings.differences
        if entry.key.startswith(LEARNING) and ".evaluate." not in entry.key and not entry.key.endswith(NOT_LEARNING)
    ]


def named(run: RunData) -> str:
    """The words that name the run on the command line."""
    return RunFolder(run.path).words


# ---------------------------------------------------------------- rules of thumb


def _from_alerts(run: RunData, shape: Shape) -> Iterator[Cause]:
    rules = [alert.rule for alert in run.alerts]
    for rule in dict.fromkeys(rules):
        if rule in ALERTS and shape.kind not in GOOD:
            text, likelihood, change = ALERTS[rule]
            first = next(alert for alert in run.alerts if alert.rule == rule)
            problem = first.message.removesuffix(ADVICE.get(rule, "")).strip().rstrip(".")
            where = f" (first at {run.unit.removesuffix('s')} {first.x:,.0f})" if first.x is not None else ""
            yield Cause(text, f"Alert: {problem}{where}.", _with_change(run, change), likelihood)


def _from_world_model(run: RunData, shape: Shape) -> Iterator[Cause]:
    look = read_foresight(run.path, [])
    sentence = verdict(look, run.final_score, run.solved_at) if look is not None else ""
    if sentence and not sentence.startswith("No part"):
        command = f"reverie foresee {named(run)}"
        yield Cause("A part of the world model is behind.", sentence, command, 0.75)


def _from_budget(run: RunData, shape: Shape) -> Iterator[Cause]:
    if shape.kind == "still improving":
        evidence = f"The last third of the curve gained {number(shape.rise)}, far above its noise."
        yield Cause("The budget is too short.", evidence, f"reverie resume {named(run)} --steps {2 * run.done}", 0.9)
    budgets = [entry for entry in run.settings.differences if entry.key.endswith(BUDGETS)]
    for entry in budgets:
        before, now = as_number(entry.before), as_number(entry.value)
        if before and now and now < before / 2 and shape.kind not in ("learnt", "collapse"):
            evidence = f"{entry.key} is {now:,.0f}, and {before:,.0f} in the preset."
            yield Cause("The budget is too short.", evidence, f"{preset(run)} --seed 1,2,3", 0.85)


def _from_settings(run: RunData, shape: Shape) -> Iterator[Cause]:
    changed = changed_settings(run)
    if changed and shape.kind not in GOOD:
        found = list(_from_learning_rate(run, changed))
        yield from found
        changed = [entry for entry in changed if not (found and entry.key == LEARNING_RATE)]
    if changed and shape.kind not in GOOD:
        shown = [f"{entry.key}={show_value(entry.value)} instead of {show_value(entry.before)}" for entry in changed]
        evidence = "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")
        yield Cause("Settings differ from the preset.", evidence + ".", f"{preset(run)} --seed 1,2,3", 0.65)


def _from_learning_rate(run: RunData, changed: Sequence[Difference]) -> Iterator[Cause]:
    for entry in changed:
        before, now = _start_of(entry.before)[1], _start_of(entry.value)[1]
        if entry.key == LEARNING_RATE and before and now and not 1 / FAR < now / before < FAR:
            word = "higher" if now > before else "lower"
            evidence = f"It starts at {now:g}, and at {before:g} in the preset."
            text = f"The learning rate is much {word} than in the preset."
            yield Cause(text, evidence, f"{preset(run)} --seed 1,2,3", 0.85)


def _from_rewards(run: RunData, shape: Shape) -> Iterator[Cause]:
    lowest, highest = run.episodes.returns.extremes()
    count = run.episodes.returns.count
    if count >= FEW_EPISODES and lowest == highest:
        evidence = f"All {count:,} training episodes had the return {number(lowest)}."
        command = f"reverie envs check {shlex.quote(run.env)}"
        text = "The agent never saw rewards that differ, so there is nothing to learn from."
        yield Cause(text, evidence, command, 0.95)


def _from_evaluation_gap(run: RunData, shape: Shape) -> Iterator[Cause]:
    recent, final = run.episodes.recent, run.final_score
    lowest, highest = run.episodes.returns.extremes()
    if len(recent) < FEW_EPISODES or final is None or highest <= lowest:
        return
    mean = sum(recent) / len(recent)
    if mean - final > 0.3 * (highest - lowest):
        shown = f"The last {len(recent)} training episodes have a mean return of {number(mean)}"
        evidence = f"{shown}, the final score is {number(final)}."
        text = "Evaluation acts otherwise than training: it takes the most likely action."
        yield Cause(text, evidence, f"reverie eval {named(run)} --sample", 0.6)


def _from_entropy(run: RunData, shape: Shape) -> Iterator[Cause]:
    ends = _ends(run, "/entropy")
    if ends is None or shape.kind in GOOD:
        return
    first, middle, _ = ends
    if first > 0 and middle < 0.1 * first:
        evidence = f"The entropy fell from {number(first)} to {number(middle)} in the first half of training."
        yield Cause("The policy stopped exploring too early.", evidence, _with_change(run, ALERTS["entropy"][2]), 0.6)


def _from_value_loss(run: RunData, shape: Shape) -> Iterator[Cause]:
    ends = _ends(run, "/value_loss") or _ends(run, "/critic_loss")
    if ends is None or shape.kind != "collapse":
        return
    _, middle, last = ends
    if middle > 0 and last > 5 * middle:
        evidence = f"Its loss grew from {number(middle)} in the middle of training to {number(last)} at the end."
        yield Cause("The value function diverged.", evidence, _halved(run), 0.65)


def _from_experience(run: RunData, shape: Shape) -> Iterator[Cause]:
    """What is most often wrong if nothing else stands out."""
    if shape.kind in GOOD or shape.kind == "unknown":
        return
    halved = _halved(run)
    if halved:
        is_high = shape.kind == "collapse"
        text = "The learning rate is too high." if is_high else "The learning rate does not fit this task."
        yield Cause(text, "Nothing in the metrics speaks for it; it is the setting that matters most.", halved, 0.2)
    evidence = "Nothing in the metrics speaks for it."
    text = "The task needs more data or another algorithm."
    yield Cause(text, evidence, f"reverie resume {named(run)} --steps {2 * run.done}", 0.1)


RULES_OF_THUMB: Sequence[Callable[[RunData, Shape], Iterator[Cause]]] = (
    _from_alerts, _from_world_model, _from_budget, _from_settings, _from_rewards, _from_evaluation_gap, _from_entropy,
    _from_value_loss, _from_experience,
)  # fmt: skip


def _with_change(run: RunData, change: str) -> str:
    """The command that trains with a change, if the run's algorithm has that setting."""
    key, is_setting, _ = change.partition("=")
    if not change:
        return f"reverie resume {named(run)} --steps {10 * max(run.done, 1000)}"
    if change == HALVE or (is_setting and key not in run.settings.leaves()):
        return _halved(run) or preset(run)
    return train(run, *(["--seed 1,2,3"] if is_setting else []), change)


def _halved(run: RunData) -> str:
    """The command that trains with half of the learning rate. Empty if that is no number or schedule."""
    form, start = _start_of(run.settings.leaves().get(LEARNING_RATE))
    if start is None:
        return ""
    return train(run, "--seed 1,2,3", f"{LEARNING_RATE}={form}{start / 2:g}")


def _start_of(value: Any) -> tuple[str, float | None]:
    """The first value of a number or schedule (3e-4, lin_3e-4), and how the schedule is written before it."""
    form, separator, start = show_value(value).rpartition("_")
    try:
        return form + separator, float(start)
    except ValueError:
        return "", None


def _ends(run: RunData, ending: str) -> tuple[float, float, float] | None:
    """A metric at the beginning, in the middle and at the end of training. None without enough of it."""
    found = next((series for name, series in run.metrics.curves.items() if name.endswith(ending)), None)
    curve = found.curve() if found is not None else None
    if curve is None or len(curve) < 8:
        return None
    size, middle = max(1, len(curve) // 8), len(curve) // 2
    first, half, last = curve.mean[:size].mean(), curve.mean[middle : middle + size].mean(), curve.mean[-size:].mean()
    return float(first), float(half), float(last)
