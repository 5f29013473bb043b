"""Inspection of every algorithm: shapes, agreement with acting, and no change of the agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core import registry
from reverie.core.contracts import Inspectable
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.traits import algorithm_traits
from reverie.core.types import Clock, Mode, Row
from tests.sessions import assert_same_state
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    INDEX,
    MIXED_ACTION,
    MULTI_BINARY,
    MULTI_DISCRETE,
    VECTOR,
    random_rows,
)
from tests.unit.algos.test_dreamer import SMALL
from tests.unit.algos.test_planet import SMALL as SMALL_PLANET

ACTIONS = (DISCRETE, BOX, MULTI_DISCRETE, MULTI_BINARY, MIXED_ACTION)
GRU = {"network": {"kind": "gru", "units": 8, "encoder": {"kind": "mlp", "units": [8]}}}
ALONE = {"planner": {"kind": "none"}, "model": {"kind": "latent_mlp", "latent": 16, "units": 8, "encoder_units": 8}}
"""TD-MPC2 acting by its policy, which is what it shows."""
CASES = [
    pytest.param(kind, action, settings, id=f"{kind}-{action.kind}{'-gru' if settings else ''}")
    for kind in registry.kinds("algorithm")
    for action in ACTIONS
    if action.kind in algorithm_traits(kind).actions
    for settings in (
        {},
        *([GRU] if algorithm_traits(kind).recurrent and action.kind in ("discrete", "continuous") else []),
    )
]


def make_agent(kind: str, action: Any, settings: dict[str, Any]) -> tuple[Any, Row]:
    """An agent, and rows (2, 5). The second env starts an episode at its fourth row."""
    found = registry.load("algorithm", kind)
    specs = Specs(INDEX if kind == "qlearning" else VECTOR, action)
    tiny = {"dreamer": SMALL, "planet": SMALL_PLANET, "tdmpc2": ALONE, "tdmpc": {"planner": {"kind": "none"}}}
    config = found.Config.model_validate(tiny.get(kind, settings))
    agent = found(config, specs, make_generator("weights"))
    rows = random_rows(specs, 2, 5)
    rows["is_first"][:, 0] = rows["is_first"][1, 3] = True
    return agent, rows | {"previous_action": np.roll(rows["action"], 1, axis=1)}


@pytest.mark.parametrize(("kind", "action", "settings"), CASES)
def test_inspection_shows_the_policy_used_for_acting(kind: str, action: Any, settings: dict[str, Any]) -> None:
    agent, rows = make_agent(kind, action, settings)
    assert isinstance(agent, Inspectable)
    before = agent.state()
    found = agent.inspect(rows, Clock(), make_generator("inspect"))
    assert_same_state(before, agent.state())
    assert found.policy["mode"].shape == (2, 5, *action.shape)
    numbers = sum(part.width for part in action.parts or (action,) if not part.classes)
    classes = [size for part in action.parts or (action,) for size in part.classes]
    if "std" in found.policy:
        assert found.policy["std"].shape == (2, 5, numbers)
        assert (found.policy["std"] > 0).all()
    if classes:
        assert found.policy["probs"].shape == (2, 5, sum(classes))
        for part in np.split(found.policy["probs"], np.cumsum(classes)[:-1], axis=-1):
            np.testing.assert_allclose(part.sum(-1), 1, rtol=1e-5)
    assert ("std" in found.policy) == (numbers > 0)
    assert found.value is None if kind == "sac" else found.value is not None and found.value.shape == (2, 5)
    if kind in ("dreamer", "planet"):  # their latents are drawn
        return
    carry = agent.initial_carry(2)
    for time in range(5):
        now = {key: values[:, time] for key, values in rows.items()}
        chosen, carry, _ = agent.act(now, carry, Clock(), make_generator("act"), Mode.EVALUATE)
        np.testing.assert_allclose(chosen, found.policy["mode"][:, time], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decode", [False, True])
def test_a_world_model_dreams_from_the_last_row(decode: bool) -> None:
    agent, rows = make_agent("dreamer", DISCRETE, {})
    found = agent.inspect(rows, Clock(), make_generator("inspect"), decode=decode, dream_steps=3)
    assert {key: values.shape[:2] for key, values in found.latents.items()} == {"deter": (2, 5), "stoch": (2, 5)}
    shapes = {key: values.shape[:2] for key, values in found.dream.items()}
    assert shapes == dict.fromkeys(shapes, (2, 3))
    assert {"action", "reward", "continuation", "value", "latent/deter"} <= set(shapes)
    assert ("obs" in shapes) == decode == ("obs" in found.decoded)
    again = agent.inspect(rows, Clock(), make_generator("inspect"), decode=decode, dream_steps=3)
    np.testing.assert_array_equal(found.dream["reward"], again.dream["reward"])


def test_a_saved_policy_of_dreamer_has_no_values() -> None:
    agent, rows = make_agent("dreamer", DISCRETE, {})
    agent.load_policy_state(agent.policy_state())
    assert agent.inspect(rows, Clock(), make_generator("inspect")).value is None
    agent.load_state(agent.state())
    assert agent.inspect(rows, Clock(), make_generator("inspect")).value is not None
