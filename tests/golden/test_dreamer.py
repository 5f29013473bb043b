"""Twenty updates of every form of Dreamer against numbers written down once: nothing may change what is learnt unseen.

The numbers hold up to the order in which sums are taken, which a faster kernel may change: hence the tolerance, ten
times what weights that differ in their last bits make of them.
On machines of a kind that is known, all weights are held to a hash as well, where not a single bit may differ; on
others a line says that they were not. To write all of it down: REVERIE_WRITE_GOLDEN=1 python -m pytest tests/golden
If a change is meant to change results, the hashes of other kinds have to go.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reverie import backend, processor
from reverie.core.rng import make_generator
from reverie.core.types import Clock
from tests.unit.algos.batches import BOX, OBSERVATIONS
from tests.unit.algos.test_dreamer import SMALL, make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

NUMBERS = Path(__file__).with_name("dreamer.json")
HASHES = Path(__file__).with_name("dreamer_hashes.json")
TOLERANCE = 1e-3
PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
FORMS: dict[str, dict[str, Any]] = {
    "two-hot, vector": {},
    "two-hot, image and vector": {"action": BOX, "observations": OBSERVATIONS["mixed"]},
    "two-hot, few free nats": {"free_nats": 0.05, "replay_value_gradient": False},
    "discrete": PLAIN,
    "continuous, mixed gradients": {**PLAIN, "action": BOX, "dynamics_share": 0.3, "slow_targets": True},
    "gaussian, dynamics": {"action": BOX, **SMOOTH},
}


def learn(form: str) -> tuple[dict[str, float], str]:
    """Losses of the last of 20 updates with the size of what they made of each part, and a hash of the weights."""
    agent = make(**{"learning_rate": 1e-3, **FORMS[form]})
    before = {name: weights(getattr(agent, name)) for name in ("model", "actor", "critic")}
    make_rows = gaussian_batch if "gaussian" in form else make_batch
    for number in range(20):
        update = agent.update(make_rows(agent, number), Clock(), make_generator(number, "golden"))
    found = {name: float(value) for name, value in update.metrics.items() if "loss" in name or "dream" in name}
    moved = {name: float((weights(getattr(agent, name)) - old).norm()) for name, old in before.items()}
    found |= {f"moved_{name}": value for name, value in moved.items()}
    all_bytes = b"".join(weights(getattr(agent, name)).numpy().tobytes() for name in before)
    return found, hashlib.sha256(all_bytes).hexdigest()


def machine() -> str:
    """What decides which kernels run: the libraries and the processor."""
    facts = processor.facts()
    kind = " ".join(facts.get(key, "?") for key in ("vendor_id", "cpu family", "model", "stepping"))
    flags = hashlib.sha256(facts.get("flags", "").encode()).hexdigest()[:8]
    return f"torch {torch.__version__}, numpy {np.__version__}, {kind}, {flags}"


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Those of a run, whatever other tests have left: sums over two threads are taken in another order."""
    threads, is_exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    backend.configure("cpu", 1, True)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(is_exact)


@pytest.mark.parametrize("form", FORMS)
def test_twenty_updates_give_the_numbers_written_down(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, digest = learn(form)
    numbers, hashes = (json.loads(path.read_text()) if path.exists() else {} for path in (NUMBERS, HASHES))
    if os.environ.get("REVERIE_WRITE_GOLDEN"):
        numbers[form] = found
        hashes.setdefault(machine(), {})[form] = digest
        NUMBERS.write_text(json.dumps(numbers, indent=2) + "\n")
        HASHES.write_text(json.dumps(hashes, indent=2) + "\n")
    assert found == pytest.approx(numbers[form], rel=TOLERANCE, abs=1e-6)
    known = hashes.get(machine(), {}).get(form)
    if known is None:
        with capsys.disabled():  # on stderr, which workers of a parallel run show as well
            print(f"\nno bits of '{form}' are known for {machine()}: only numbers were compared", file=sys.stderr)
    else:
        assert digest == known
