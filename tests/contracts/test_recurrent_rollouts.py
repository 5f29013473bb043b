"""Recurrent on-policy agents: updates start from the same hidden states as acting, and final rows have no effect.

The first test would fail if the carry were stored for the wrong row, or not at all, or not reset when an episode
starts: rollouts here end in the middle of episodes of different lengths, in several envs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.ppo import PPO, PPOConfig
from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.core import registry
from reverie.core.reads import Rollout
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.traits import is_recurrent
from reverie.core.types import Array, Clock, Row
from reverie.training.orchestrator import Orchestrator
from tests.unit.algos.batches import DISCRETE, VECTOR, random_rows

RECURRENT = [kind for kind in registry.kinds("network") if is_recurrent(kind)]
SETTINGS: dict[str, dict[str, Any]] = {"transformer": {"heads": 2, "context": 5}}


def network(kind: str) -> dict[str, Any]:
    return {"kind": kind, "units": 8, "encoder": {"kind": "mlp", "units": [8]}, **SETTINGS.get(kind, {})}


def words(kind: str, shared: bool) -> list[str]:
    settings = str(network(kind)).replace("'", "")
    return [
        "env.kwargs={length: 9, varied: true}", "env.num_envs=3", "env.vector=sync", "normaliser.observation=rolling",
        f"algorithm.network={settings}", f"algorithm.shared_trunk={str(shared).lower()}", "algorithm.batch_size=7",
        "phases.learn.hooks=[{collect: {rows: 21}}, update]", "phases.learn.duration_steps=120",
        "evaluate.final_episodes=0",
        "algorithm.learning_rate=1e-2", "algorithm.epochs=2",
    ]  # fmt: skip


class ActingCheck:
    """Wraps a PPO model: records the outputs of acting and compares them with those at the start of the update."""

    def __init__(self, ppo: PPO) -> None:
        self.outputs: list[Array] = []
        self.largest: list[float] = []
        self.act_outputs, self.evaluate_sequences = ppo.model.act_outputs, ppo.model.evaluate_sequences
        self.head = ppo.model.action_head
        ppo.model.act_outputs, ppo.model.evaluate_sequences = self.record, self.compare  # type: ignore[assignment,method-assign]

    def record(self, now: Row, carry: Any) -> Any:
        outputs, carry, extras = self.act_outputs(now, carry)
        self.outputs.append(outputs)
        return outputs, carry, extras

    def compare(self, batch: Any) -> Any:
        policy, values = self.evaluate_sequences(batch)
        acted = torch.as_tensor(np.stack(self.outputs, 1)).flatten(0, 1).log_softmax(-1)
        self.largest.append(float((policy.log_probs - acted).abs().max()))
        self.outputs.clear()
        return policy, values


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("shared", [True, False])
def test_update_recomputes_the_probabilities_used_for_acting(kind: str, shared: bool) -> None:
    session = build(make_config("Reverie/Counting-v0:ppo", words(kind, shared), seed=3))
    assert isinstance(session.algorithm, PPO)
    check = ActingCheck(session.algorithm)
    Orchestrator(session, build_evaluator(session.config)).run()
    session.close()
    assert len(check.largest) >= 5
    assert max(check.largest) < 1e-4


@pytest.mark.parametrize("kind", RECURRENT)
def test_the_check_detects_a_missing_carry(kind: str) -> None:
    session = build(make_config("Reverie/Counting-v0:ppo", words(kind, True), seed=3))
    assert isinstance(session.algorithm, PPO)
    check = ActingCheck(session.algorithm)
    sample = session.buffers["main"].sample

    def without_carry(read: Rollout, arriving: Row, rng: np.random.Generator) -> Any:
        batch = sample(read, arriving, rng)
        return {key: np.zeros_like(value) if key.startswith("carry/") else value for key, value in batch.items()}

    session.buffers["main"].sample = without_carry  # type: ignore[method-assign,assignment]
    Orchestrator(session, build_evaluator(session.config)).run()
    session.close()
    assert check.largest[0] < 1e-4  # the first rollout starts with the initial hidden state
    assert max(check.largest) > 1e-3


def make_ppo(kind: str, **values: Any) -> PPO:
    settings = {"network": network(kind), "batch_size": 1.0, "epochs": 1, **values}
    return PPO(PPOConfig.model_validate(settings), Specs(VECTOR, DISCRETE), make_generator("test weights"))


def make_batch(ppo: PPO, envs: int = 4, steps: int = 12) -> Row:
    """Rows that start in mid-episode, with a terminated and a truncated episode in each env."""
    batch = random_rows(ppo.specs, envs, steps + 1)
    batch["terminated"][:, 4] = batch["truncated"][:, 8] = True
    batch["is_first"][:, [5, 9]] = True
    rng = make_generator("carry")
    for key, value in ppo.initial_carry(envs).items():
        whole = value.dtype == np.int64
        batch[f"carry/{key}"] = (value + 3 if whole else rng.standard_normal(value.shape, np.float32))[:, None]
    return batch


def weights_after(ppo: PPO, batch: Row) -> torch.Tensor:
    ppo.update(batch, Clock(), make_generator("update"))
    return ppo.optimizer.flat.detach().clone()


@pytest.mark.parametrize("kind", RECURRENT)
def test_ratio_is_one_in_the_first_minibatch(kind: str) -> None:
    ppo = make_ppo(kind)
    metrics = ppo.update(make_batch(ppo), Clock(), make_generator("update")).metrics
    assert float(metrics["kl"]) == pytest.approx(0, abs=1e-6)
    assert float(metrics["clip_fraction"]) == 0


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("shared", [True, False])
def test_final_rows_change_no_gradient(kind: str, shared: bool) -> None:
    make = [make_ppo(kind, shared_trunk=shared, batch_size=0.5) for _ in range(4)]
    batch = make_batch(make[0])
    final = batch["terminated"] | batch["truncated"]
    other = {**batch, "action": np.where(final, (batch["action"] + 1) % 3, batch["action"])}
    terminal = {**batch, "obs": batch["obs"] + 5 * batch["terminated"][..., None].astype(np.float32)}
    truncated = {**batch, "obs": batch["obs"] + 5 * batch["truncated"][..., None].astype(np.float32)}
    plain = weights_after(make[0], batch)
    assert torch.equal(weights_after(make[1], other), plain)
    assert torch.equal(weights_after(make[2], terminal), plain)
    assert not torch.equal(weights_after(make[3], truncated), plain)  # values bootstrap through truncation


@pytest.mark.parametrize("kind", RECURRENT)
def test_minibatches_contain_whole_rollouts_of_some_envs(kind: str) -> None:
    ppo = make_ppo(kind)
    batch = make_batch(ppo, envs=5)
    batch["obs"] = np.broadcast_to(np.arange(5, dtype=np.float32)[:, None, None], batch["obs"].shape).copy()
    tensors = {key: torch.as_tensor(value) for key, value in batch.items()}
    for wanted, counts in ((24, [2, 2, 1]), (30, [2, 2, 1]), (1, [1] * 5), (1000, [5]), (0.4, [2, 2, 1])):
        ppo.config = ppo.config.model_copy(update={"batch_size": wanted})
        rows = ppo._shuffle(ppo.evaluate_rollout(tensors), make_generator("order"))
        parts = list(ppo.model.split(rows, ppo._batch_size(rows)))
        assert [len(part["weights"]) // 12 for part in parts] == counts
        envs = [part["obs"][:, 0].unflatten(0, (-1, 12)) for part in parts]
        assert all((rows == rows[:, :1]).all() for rows in envs)
        order = torch.cat([rows[:, 0] for rows in envs]).long()
        assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
        for key in (key for key in tensors if key.startswith("carry/")):
            found = torch.cat([part[key] for part in parts])
            assert torch.equal(found, tensors[key].squeeze(1)[order])
