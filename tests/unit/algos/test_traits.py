"""The actions that algorithms declare are those that they can be built for, and errors name algorithms that can."""

from __future__ import annotations

import re

import pytest

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.traits import algorithm_traits, check_actions
from reverie.core.types import Clock, Mode
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    INDEX,
    MIXED_ACTION,
    MULTI_BINARY,
    MULTI_DISCRETE,
    UNBOUNDED,
    VECTOR,
    column_of,
    random_rows,
)
from tests.unit.algos.test_dreamer import SMALL as SMALL_DREAMER
from tests.unit.algos.test_planet import SMALL as SMALL_PLANET

ACTIONS = {
    "discrete": DISCRETE, "box": BOX, "unbounded": UNBOUNDED, "multi_discrete": MULTI_DISCRETE,
    "multi_binary": MULTI_BINARY, "mixed": MIXED_ACTION,
}  # fmt: skip
ADVICE = {
    ("dqn", "box"): "dqn needs discrete actions; this env has continuous ones. "
    "Try dreamer or planet or ppo or reinforce or sac or tdmpc or tdmpc2.",
    ("sac", "unbounded"): (
        "sac needs bounded actions; this env's bounds are infinite. "
        "Wrap the env with gymnasium.wrappers.RescaleAction, or try ppo or reinforce."
    ),
    ("ppo", "mixed"): (
        "ppo needs discrete or continuous or multi_discrete or multi_binary actions; this env has mixed ones. "
        "Try dreamer."
    ),
}


def refusal(kind: str, action: ActionSpec) -> ConfigError | None:
    try:
        check_actions(kind, action)
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", registry.kinds("algorithm"))
def test_an_algorithm_acts_with_what_it_declares(kind: str, action: str) -> None:
    if error := refusal(kind, ACTIONS[action]):
        advised = set(re.findall(r"\w+", error.fix)) & set(registry.kinds("algorithm"))
        assert advised, "an algorithm that refuses names others"
        assert [other for other in advised if refusal(other, ACTIONS[action])] == []
        return
    algorithm = registry.load("algorithm", kind)
    config = algorithm.Config.model_validate({"dreamer": SMALL_DREAMER, "planet": SMALL_PLANET}.get(kind, {}))
    specs = Specs(INDEX if kind == "qlearning" else VECTOR, ACTIONS[action])
    agent = algorithm(config, specs, make_generator("weights"))
    now = {**column_of(random_rows(specs, 2, 1)), "previous_action": specs.action.zeros(2)}
    chosen, _, _ = agent.act(now, agent.initial_carry(2), Clock(), make_generator("act"), Mode.COLLECT)
    assert chosen.shape == (2, *specs.action.shape)
    assert set(algorithm_traits(kind).hooks) == set(agent.reads)


@pytest.mark.parametrize(("kind", "action"), ADVICE)
def test_the_refusal_names_kinds_and_alternatives(kind: str, action: str) -> None:
    error = refusal(kind, ACTIONS[action])
    assert error is not None
    assert f"{error.message} {error.fix}" == ADVICE[kind, action]
