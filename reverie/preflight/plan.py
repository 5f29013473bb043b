"""The plan of a run, from its config alone: ``reverie train ... --dry-run``."""

from __future__ import annotations

import math
from typing import Any

from reverie.config.phases import Hook, Phase, flatten_phases
from reverie.config.resolve import steps_text, update_budget
from reverie.config.schema import RunConfig
from reverie.core.counters import Budget
from reverie.core.wording import count
from reverie.envs.action_repeat import action_repeat


def make_plan(config: RunConfig) -> dict[str, Any]:
    """The phases in order, with the hooks of one cycle and the approximate number of cycles."""
    phases = [_plan_phase(phase) for phase in flatten_phases(config.phases)]
    repeat = action_repeat(config.env)
    return {
        "env": config.env.id, "algorithm": config.algorithm.kind, "seed": config.seed,
        "num_envs": config.env.num_envs, "vector": config.env.vector, "device": config.backend.device,
        "threads": config.backend.threads, "env_steps": config.horizon_steps, "duration": steps_text(config.phases),
        "action_repeat": repeat, "frames": config.horizon_steps * repeat, "updates": update_budget(config.phases),
        "phases": phases,
    }  # fmt: skip


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """The plan as text."""
    amounts = (plan["duration"], Budget("updates").amount(plan["updates"]) if plan["updates"] else "")
    facts = [f"{count(plan['num_envs'], 'env')} ({plan['vector']})", plan["device"], count(plan["threads"], "thread")]
    facts += [amount for amount in amounts if amount]
    facts += [f"{plan['frames']:,} frames (action repeat {plan['action_repeat']})"] if _has_frames(plan) else []
    lines = [
        f"{plan['env']} with {plan['algorithm']}, seed {plan['seed']}",
        ", ".join(facts),
    ]
    for number, phase in enumerate(plan["phases"], 1):
        is_known = phase["duration"].endswith(("cycle", "cycles"))
        cycles = f", about {count(phase['cycles'], 'cycle')}" if phase["cycles"] and not is_known else ""
        lines.append(f"{number}. {phase['name']} ({phase['type']}): {phase['duration']}{cycles}")
        lines += [f"     {hook}" for hook in phase["hooks"]]
        lines += [f"     until {_describe_until(phase['until'])}"] if phase["until"] else []
    return lines


def _has_frames(plan: dict[str, Any]) -> bool:
    return bool(plan["action_repeat"] > 1 and plan["frames"])


def _plan_phase(phase: Phase) -> dict[str, Any]:
    amounts = {
        "env step": phase.duration_steps, "update": phase.duration_updates, "cycle": phase.duration_cycles,
    }  # fmt: skip
    duration = ", ".join(count(amount, unit) for unit, amount in amounts.items() if amount is not None)
    until = phase.until.model_dump(exclude_none=True) if phase.until else None
    return {
        "name": phase.name, "type": phase.type, "duration": duration, "cycles": _cycles(phase),
        "hooks": [_describe(hook) for hook in phase.hooks], "until": until,
    }  # fmt: skip


def _cycles(phase: Phase) -> int | None:
    """A lower bound: first rows are not env steps, so a phase needs a few cycles more."""
    if phase.duration_cycles is not None:
        return phase.duration_cycles
    rows = next((hook.rows for hook in phase.hooks if hook.name == "collect"), None)
    return math.ceil(phase.duration_steps / rows) if rows and phase.duration_steps else None


def _describe(hook: Hook) -> str:
    amounts = hook.model_dump()[hook.name]
    return hook.name + "".join(f"  {key.replace('_', ' ')} {value:,}" for key, value in amounts.items())


def _describe_until(until: dict[str, Any]) -> str:
    (_, metric), *bounds = until.items()
    return str(metric) + "".join(f" {key.replace('_', ' ')} {value:g}" for key, value in bounds)
