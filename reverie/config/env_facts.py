"""What ``reverie envs show`` tells about an env: its description, spaces, variants and their budgets."""

from __future__ import annotations

from typing import Any

from reverie.config.catalogue import find_entry, find_env_config
from reverie.config.compose import compose
from reverie.config.resolve import budget_of
from reverie.config.validate import load_config
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.wording import count
from reverie.envs.make import make_specs
from reverie.envs.suites import find_suite


def env_facts(name: str) -> dict[str, Any]:
    """Facts about an env by their names, for people and as JSON. Without its package, some are missing."""
    entry = find_entry(name)
    facts: dict[str, Any] = {"name": name, "id": entry.id, "suite": entry.suite, "summary": entry.summary}
    facts |= {"means": {key: getattr(entry, key) for key in ("observation", "actions", "reward")}}
    facts |= {"solved_at": entry.solved_at, "install": entry.install}
    facts["variants"] = {variant: _budget(f"{name}:{variant}") for variant in entry.variants}
    suite = find_suite(entry.id)
    facts["forms"] = ["pixels", *(suite.observations if suite is not None else ())]
    if entry.install:
        return facts
    config = find_env_config(name)
    return {**facts, **_spaces(make_specs(config)), "wrappers": [wrapper.kind for wrapper in config.wrappers]}


def _budget(spec: str) -> str:
    """How long a variant trains, as text."""
    composed = compose(spec, [])
    budget = budget_of(load_config(composed.tree, composed.sources).phases)
    return budget.amount(budget.total)


def _spaces(specs: Specs) -> dict[str, Any]:
    observations = {key: observation_text(spec) for key, spec in specs.observations.items()}
    limit = specs.max_episode_steps
    return {"observations": observations, "action": action_text(specs.action), "limit": limit}


def observation_text(spec: ObservationSpec) -> str:
    """A part of an observation in words: ``image 64x64x3, uint8``."""
    shape = "x".join(map(str, spec.shape)) or "one value"
    if spec.kind == "discrete":
        largest = max(spec.classes)
        return f"{count(len(spec.classes), 'index', 'indices')} below {largest}, shape {shape}"
    return f"{spec.kind} {shape}, {spec.dtype}"


def action_text(spec: ActionSpec) -> str:
    """An action in words: ``discrete, 7 actions``."""
    if spec.parts:
        return "; ".join(map(action_text, spec.parts))
    if spec.kind == "discrete":
        return f"discrete, {count(spec.classes[0], 'action')}"
    if spec.classes:
        choices = " or ".join(map(str, sorted(set(spec.classes))))
        return f"{spec.kind.replace('_', ' ')}, {count(spec.width, 'part')} with {choices} choices"
    bounds = f" from {min(spec.low):g} to {max(spec.high):g}" if spec.low else ""
    return f"continuous, {count(spec.width, 'value')}{bounds}"
