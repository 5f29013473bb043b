"""Twenty updates of TD-MPC, and a plan made with what they learned: the results must not change unnoticed."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock, Mode
from tests.golden.records import check, hash_tree
from tests.unit.algos.batches import BOX, IMAGE, VECTOR, column_of, random_rows
from tests.unit.algos.test_tdmpc import TINY, make, make_rows

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

GROWING = {"growing_horizon": {"start": 1, "end": 3, "from": 0, "to": 100}, "momentum": 0.1}
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "vector": (VECTOR, {}),
    "growing horizon": (VECTOR, {"planner": {**TINY["planner"], **GROWING}}),
    "image": (IMAGE, {"model": {**TINY["model"], "channels": 4}}),
}


def learn(form: str) -> tuple[dict[str, float], str]:
    """Metrics of the last of 20 updates, and a hash of the state and of planned actions."""
    observations, values = FORMS[form]
    specs = Specs(observations, BOX, max_episode_steps=500)
    agent = make(specs, **values)
    for number in range(20):
        rows = make_rows(specs, seed=number)
        update = agent.update(rows, Clock(updates=number), make_generator(number, "golden"))
    found = {name: float(value) for name, value in update.metrics.items()}
    now, clock = column_of(random_rows(specs, 3, 1, 99)), Clock(env_steps=50)
    chosen, carry, _ = agent.act(now, agent.initial_carry(3), clock, make_generator("act"), Mode.COLLECT)
    return found, hash_tree({"state": agent.state(), "actions": chosen, "carry": carry})


@pytest.mark.parametrize("form", FORMS)
def test_twenty_updates_give_what_was_recorded(form: str) -> None:
    check("tdmpc", form, *learn(form))
