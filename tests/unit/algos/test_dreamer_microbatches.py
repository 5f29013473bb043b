"""Dreamer's microbatches: training, metrics and write-back do not depend on how a batch was split."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from reverie.algos.dreamer import Dreamer
from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.core.types import Clock, Row, WriteBack
from tests.unit.algos.batches import BOX, OBSERVATIONS
from tests.unit.algos.test_dreamer import SMALL, make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

SEQUENCES = 5
"""In three microbatches: two of two sequences and one of one."""
GENTLE = {"optimizer": {"kind": "adam", "epsilon": 1.0}}
"""An optimiser that does not amplify the last bits of small gradients."""
PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
"""Untrained two-hot heads multiply the last bits by 5e8."""
PERCENTILE = {"kind": "percentile", "limit": 1e-8, "rate": 0.5}
FORMS: dict[str, dict[str, Any]] = {
    "percentiles": {**PLAIN, "return_scale": PERCENTILE, "bootstrap_from_target": True},
    "deviation": {**PLAIN, "return_scale": {"kind": "deviation", "rate": 0.5}, "max_grad_norm": 0.1},
    "image, mixed gradients": {
        **PLAIN, "action": BOX, "observations": OBSERVATIONS["mixed"], "reparameterised_weight": 0.3,
        "return_scale": PERCENTILE,
    },
    "gaussian, no scale": {"action": BOX, **SMOOTH},
    "padded": {**PLAIN, "return_scale": PERCENTILE},
}  # fmt: skip


class Outcome(NamedTuple):
    agent: Dreamer
    metrics: dict[str, float]
    write_back: WriteBack | None
    most_rows: int
    """Largest number of rows that the encoder got at once."""

    @property
    def gradients(self) -> torch.Tensor:
        return torch.cat([self.agent.model_optimizer.gradient, self.agent.behaviour_optimizer.gradient])


def sequences(agent: Dreamer) -> Row:
    """Rows (5, 6) that all differ."""
    make_two = make_batch if agent.config.model.rssm.latents == "categorical" else gaussian_batch
    batches = [make_two(agent, seed) for seed in range(3)]
    rows = {key: np.concatenate([batch[key] for batch in batches])[:SEQUENCES] for key in batches[0]}
    return rows | {"id": np.arange(SEQUENCES * 6).reshape(SEQUENCES, 6)}


def learn(form: str, hook: str, microbatches: int) -> Outcome:
    agent = make(**{**GENTLE, **FORMS[form]}, backend=Backend(engine="torch", microbatches=microbatches))
    rows: list[int] = []
    agent.model.encoder.layers.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    batch = sequences(agent)
    if form == "padded":
        batch["valid"] = np.arange(6) < np.array([6, 2, 3, 6, 1])[:, None]
    update = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise"))
    return Outcome(agent, {key: float(value) for key, value in update.metrics.items()}, update.write_back, max(rows))


@pytest.mark.parametrize("hook", Dreamer.traits.hooks)
@pytest.mark.parametrize("form", FORMS)
def test_microbatches_add_up(form: str, hook: str) -> None:
    whole, split = learn(form, hook, 1), learn(form, hook, 3)
    assert whole.most_rows == SEQUENCES * 5
    assert split.most_rows == 2 * 5
    size = float(whole.gradients.abs().max())
    assert size > 1e-3
    torch.testing.assert_close(split.gradients, whole.gradients, rtol=1e-3, atol=1e-5 * size)
    for name in ("model", "actor", "critic", "return_scale"):
        found, wanted = (getattr(each.agent, name).state_dict() for each in (split, whole))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert split.metrics == pytest.approx(whole.metrics, rel=1e-3, abs=1e-5)
    assert list(split.metrics) == list(whole.metrics)


@pytest.mark.parametrize("hook", ["update", "update_world_model"])
def test_latents_are_written_back_for_the_rows_of_all_microbatches(hook: str) -> None:
    whole, split = (learn("percentiles", hook, count).write_back for count in (1, 3))
    assert whole is not None
    assert split is not None
    np.testing.assert_array_equal(split.ids, np.arange(SEQUENCES * 6).reshape(SEQUENCES, 6)[:, 1:])
    for key, wanted in whole.columns.items():
        np.testing.assert_allclose(split.columns[key], wanted, rtol=1e-5, atol=1e-6)


def test_one_step_of_optimisers_and_target_critic_for_all_microbatches() -> None:
    agent = learn("percentiles", "update", 5).agent
    assert agent.model_optimizer.steps == agent.behaviour_optimizer.steps == 1
    before = make(**{**GENTLE, **FORMS["percentiles"]}).critic
    moved = weights(before.target).lerp(weights(agent.critic.value), agent.config.target_rate)
    torch.testing.assert_close(weights(agent.critic.target), moved)


def test_there_are_at_most_as_many_microbatches_as_sequences() -> None:
    assert learn("percentiles", "update", 64).most_rows == 5
