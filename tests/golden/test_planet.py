"""Twenty updates of PlaNet: their results must not change unnoticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Clock, Mode
from tests.golden.records import check, hash_tree
from tests.unit.algos.batches import DISCRETE, OBSERVATIONS
from tests.unit.algos.test_planet import arriving, make, make_batch, weights

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

FORMS: dict[str, dict[str, Any]] = {
    "vector": {},
    "overshooting": {"overshooting_steps": 3, "free_nats": 0.05},
    "image and vector, discrete": {"observations": OBSERVATIONS["mixed"], "action": DISCRETE},
}


@pytest.mark.parametrize("form", FORMS)
def test_twenty_updates_give_what_was_recorded(form: str) -> None:
    agent = make(**{"learning_rate": 1e-3, **FORMS[form]})
    before = weights(agent)
    for number in range(20):
        update = agent.update(make_batch(agent, number), Clock(), make_generator(number, "golden"))
    found = {name: float(value) for name, value in update.metrics.items() if "loss" in name}
    now, carry = arriving(agent, 4), agent.initial_carry(4)
    action, _, extras = agent.act(now, carry, Clock(), make_generator("act"), Mode.COLLECT)
    found |= {
        "moved": float((weights(agent) - before).norm()),
        "plan_value": float(np.mean(extras["act_metrics"]["plan_value"])),
    }
    check("planet", form, found, hash_tree({"state": agent.state(), "action": action}))
