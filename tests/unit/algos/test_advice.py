"""Whoever cannot take an env names algorithms that can."""

from __future__ import annotations

import re

import pytest

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from tests.unit.algos.batches import BOX, DISCRETE, MIXED_ACTION, MULTI_BINARY, MULTI_DISCRETE, UNBOUNDED, VECTOR
from tests.unit.algos.test_dreamer import SMALL

ACTIONS = {
    "discrete": DISCRETE, "box": BOX, "unbounded": UNBOUNDED, "multi_discrete": MULTI_DISCRETE,
    "multi_binary": MULTI_BINARY, "mixed": MIXED_ACTION,
}  # fmt: skip


def build(kind: str, action: ActionSpec) -> None:
    algorithm = registry.load("algorithm", kind)
    config = algorithm.Config.model_validate(SMALL if kind == "dreamer" else {})
    algorithm(config, Specs(VECTOR, action), make_generator("weights"))


def advice(kind: str, action: ActionSpec) -> list[str]:
    """The algorithms named by one that refuses; none if it takes these actions."""
    try:
        build(kind, action)
    except ConfigError as error:
        return sorted(set(re.findall(r"\w+", error.fix)) & set(registry.kinds("algorithm"))) or [f"none: {error.fix}"]
    return []


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_advised_takes_the_env(name: str) -> None:
    advised = [other for kind in ("dqn", "qlearning", "sac", "ppo", "dreamer") for other in advice(kind, ACTIONS[name])]
    assert advised, "a table takes no vectors"
    for other in set(advised):
        build(other, ACTIONS[name])
