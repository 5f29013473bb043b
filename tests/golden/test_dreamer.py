"""Twenty updates of every form of Dreamer against numbers written down once: nothing may change what is learnt unseen.

The numbers hold up to the order in which sums are taken, which a faster kernel may change: hence the tolerance.
Two-hot heads that have hardly learnt multiply such differences by the size of their outermost bins, 5e8. With them only
the model is looked at, which nothing of that reaches here; policy and value are looked at with normal heads.
If a change is meant to change results, write them anew: REVERIE_WRITE_GOLDEN=1 python -m pytest tests/golden
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from reverie.core.rng import make_generator
from reverie.core.types import Clock
from tests.unit.algos.batches import BOX, OBSERVATIONS
from tests.unit.algos.test_dreamer import SMALL, make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

NUMBERS = Path(__file__).with_name("dreamer.json")
TOLERANCE = 1e-2
PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
FORMS: dict[str, dict[str, Any]] = {
    "two-hot, vector": {"replay_value_gradient": False},
    "two-hot, image and vector": {"action": BOX, "observations": OBSERVATIONS["mixed"], "replay_value_gradient": False},
    "discrete": PLAIN,
    "continuous, mixed gradients": {**PLAIN, "action": BOX, "dynamics_share": 0.3, "slow_targets": True},
    "gaussian, dynamics": {"action": BOX, **SMOOTH},
}
OF_THE_MODEL = tuple(f"loss_{name}" for name in ("dynamics", "representation", "reconstruction", "continuation"))


def run(form: str, disturbance: float = 0.0) -> dict[str, float]:
    """Losses of the last of 20 updates, and the size of what they made of each part."""
    agent = make(**{"learning_rate": 1e-3, **FORMS[form]})
    noise = torch.Generator().manual_seed(0)
    for parameter in (*agent.model.parameters(), *agent.actor.parameters(), *agent.critic.parameters()):
        parameter.data.mul_(1 + disturbance * torch.randn(parameter.shape, generator=noise))
    before = {name: weights(getattr(agent, name)) for name in ("model", "actor", "critic")}
    make_rows = gaussian_batch if "gaussian" in form else make_batch
    for number in range(20):
        update = agent.update(make_rows(agent, number), Clock(), make_generator(number, "golden"))
    found = {name: float(value) for name, value in update.metrics.items() if "loss" in name or "dream" in name}
    moved = {name: float((weights(getattr(agent, name)) - old).norm()) for name, old in before.items()}
    found |= {f"moved_{name}": value for name, value in moved.items()}
    is_whole = "two-hot" not in form
    return {name: value for name, value in found.items() if is_whole or name in OF_THE_MODEL}


@pytest.mark.parametrize("form", FORMS)
def test_twenty_updates_give_the_numbers_written_down(form: str) -> None:
    found = run(form)
    if os.environ.get("REVERIE_WRITE_GOLDEN"):
        known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
        NUMBERS.write_text(json.dumps({**known, form: found}, indent=2) + "\n")
    assert found == pytest.approx(json.loads(NUMBERS.read_text())[form], rel=TOLERANCE, abs=1e-6)
