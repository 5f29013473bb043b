"""Twenty updates of every form of Dreamer: their results must not change unnoticed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Clock
from tests.golden.records import check
from tests.unit.algos.batches import BOX, OBSERVATIONS
from tests.unit.algos.test_dreamer import SMALL, make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
FORMS: dict[str, dict[str, Any]] = {
    "two-hot, vector": {},
    "two-hot, image and vector": {"action": BOX, "observations": OBSERVATIONS["mixed"]},
    "two-hot, few free nats": {"free_nats": 0.05, "replay_value_gradient": False},
    "discrete": PLAIN,
    "continuous, mixed gradients": {
        **PLAIN,
        "action": BOX,
        "reparameterised_weight": 0.3,
        "bootstrap_from_target": True,
    },
    "gaussian, dynamics": {"action": BOX, **SMOOTH},
}


def learn(form: str) -> tuple[dict[str, float], str]:
    """Losses of the last of 20 updates with the size of what they made of each part, and a hash of the weights."""
    agent = make(**{"learning_rate": 1e-3, **FORMS[form]})
    before = {name: weights(getattr(agent, name)) for name in ("model", "actor", "critic")}
    make_rows = gaussian_batch if "gaussian" in form else make_batch
    for number in range(20):
        update = agent.update(make_rows(agent, number), Clock(), make_generator(number, "golden"))
    found = {name: float(value) for name, value in update.metrics.items() if "loss" in name or "imagined" in name}
    moved = {name: float((weights(getattr(agent, name)) - old).norm()) for name, old in before.items()}
    found |= {f"moved_{name}": value for name, value in moved.items()}
    all_bytes = b"".join(weights(getattr(agent, name)).numpy().tobytes() for name in before)
    return found, hashlib.sha256(all_bytes).hexdigest()


@pytest.mark.parametrize("form", FORMS)
def test_twenty_updates_give_what_was_recorded(form: str) -> None:
    check("dreamer", form, *learn(form))
