"""Twenty updates of every model-free algorithm: what they learn must not change unnoticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.algos.dqn import DQN
from reverie.algos.ppo import PPO
from reverie.algos.qlearning import QLearning
from reverie.algos.reinforce import Reinforce
from reverie.algos.sac import SAC
from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Clock, Mode, Row
from tests.golden.records import check, hash_tree
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    IMAGE,
    INDEX,
    MIXED,
    MULTI_DISCRETE,
    VECTOR,
    column_of,
    random_rows,
)  # fmt: skip

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

MLP = {"network": {"kind": "mlp", "units": (16, 8)}, "learning_rate": 0.01}
GRU = {"network": {"kind": "gru", "units": 8}, "learning_rate": 0.01}
RAINBOW = {
    **MLP, "double": True, "dueling": True, "noisy": True, "n_step": 3, "target_every": 5,
    "head": {"kind": "categorical", "atoms": 11},
}  # fmt: skip
Case = tuple[Any, dict[str, Any], ActionSpec, dict[str, Any]]
CASES: dict[str, Case] = {
    "ppo, discrete": (PPO, VECTOR, DISCRETE, MLP),
    "ppo, continuous": (PPO, VECTOR, BOX, {**MLP, "entropy_weight": 0.1, "value_clip": 0.1}),
    "ppo, mixed observations": (PPO, MIXED, MULTI_DISCRETE, {"learning_rate": 1e-4, "shared_trunk": True, "epochs": 2}),
    "ppo, recurrent": (PPO, VECTOR, DISCRETE, GRU),
    "ppo, state-dependent noise": (PPO, VECTOR, BOX, {**MLP, "state_dependent_noise": True}),
    "dqn": (DQN, VECTOR, DISCRETE, {**MLP, "double": False, "target_every": 5}),
    "dqn, rainbow": (DQN, VECTOR, DISCRETE, RAINBOW),
    "dqn, quantiles": (DQN, VECTOR, DISCRETE, {**MLP, "head": {"kind": "quantile", "quantiles": 7}}),
    "sac, continuous": (SAC, VECTOR, BOX, {"units": (16, 8), "learning_rate": 0.01}),
    "sac, discrete": (SAC, VECTOR, DISCRETE, {"units": (16, 8), "learning_rate": 0.01, "n_step": 3}),
    "sac, images": (SAC, IMAGE, BOX, {"units": (8,), "image_features": 8, "image_shift": 4, "learning_rate": 0.01}),
    "reinforce, returns": (Reinforce, VECTOR, DISCRETE, {**MLP, "targets": "returns"}),
    "reinforce, advantages": (Reinforce, VECTOR, BOX, {**MLP, "targets": "advantages"}),
    "q-learning": (QLearning, INDEX, DISCRETE, {"target": "q"}),
    "sarsa": (QLearning, INDEX, DISCRETE, {"target": "sarsa"}),
}
BY_NUMPY = ("ppo, discrete", "ppo, continuous", "dqn", "sac, continuous")
"""Cases that also have a numpy form: their torch form is recorded under a name of its own."""
NUM_UPDATES = 20
NUM_COMPARABLE = {PPO: 2}
"""After how many updates the numbers are compared, where it is not the last. An update of PPO takes dozens of clipped
steps: a change in the last bit of every weight moves its metrics by 1e-5 after 2 updates, by 0.02 to 6 after 20."""


def make_batch(agent: Any, seed: int) -> Row:
    """Twelve sequences of random rows in which some episodes terminate and some are truncated."""
    length = agent.config.n_step + 1 if isinstance(agent, DQN | SAC) else 9
    rows = random_rows(agent.specs, 12, length, seed)
    rows["terminated"][1, 1] = rows["truncated"][2, 1] = rows["terminated"][3, 0] = True
    if length > 2:
        rows["is_first"][1:3, 2] = rows["is_first"][3, 1] = True
    if isinstance(agent, Reinforce):
        rows["valid"] = np.arange(length) <= make_generator(seed, "lengths").integers(2, length, (12, 1))
    if isinstance(agent, DQN | SAC):
        importance = make_generator(seed, "importance").random((12, 1), dtype=np.float32)
        rows |= {"id": np.arange(12 * length).reshape(12, length), "importance": importance.repeat(length, 1)}
    return rows


def learn(case: str, engine: str = "numpy") -> tuple[dict[str, float], str]:
    """Metrics of the last comparable update, and a hash of the state after 20 updates and of actions chosen with it."""
    kind, observations, action, values = CASES[case]
    given = {} if kind is QLearning else {"backend": Backend(engine=engine)}
    config, rng = kind.Config.model_validate(values), make_generator("golden weights")
    agent = kind(config, Specs(observations, action), rng, **given)
    for number in range(NUM_UPDATES):
        update = agent.update(make_batch(agent, number), Clock(updates=number), make_generator(number, "golden"))
        if number + 1 == NUM_COMPARABLE.get(kind, NUM_UPDATES):
            found = {name: float(value) for name, value in update.metrics.items()}
    now = column_of(random_rows(agent.specs, 12, 1, 99))
    chosen, _, _ = agent.act(now, agent.initial_carry(12), Clock(updates=20), make_generator("act"), Mode.COLLECT)
    return found, hash_tree({"state": agent.state(), "actions": chosen})


@pytest.mark.parametrize("case", CASES)
def test_twenty_updates_give_what_was_recorded(case: str) -> None:
    check("model_free", case, *learn(case))


@pytest.mark.parametrize("case", BY_NUMPY)
def test_twenty_updates_of_the_torch_form_give_what_was_recorded(case: str) -> None:
    check("model_free", f"{case}, torch", *learn(case, "torch"))
