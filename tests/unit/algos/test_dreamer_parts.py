"""Dreamer's batches in parts: nothing of what is learnt, told or written back depends on how a batch was cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from reverie import backend
from reverie.algos.dreamer import Dreamer
from reverie.core.rng import make_generator
from reverie.core.types import Clock, Row, WriteBack
from tests.unit.algos.batches import BOX, OBSERVATIONS
from tests.unit.algos.test_dreamer import SMALL, make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

STRETCHES = 5
"""In three parts: two of two and one of one."""
GENTLE = {"optimizer": {"kind": "adam", "epsilon": 1.0}}
"""A rule that does not blow up the last bits of small gradients."""
PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
"""Two-hot heads that have hardly learnt multiply the last bits by 5e8."""
PERCENTILE = {"kind": "percentile", "limit": 1e-8, "rate": 0.5}
FORMS: dict[str, dict[str, Any]] = {
    "percentiles": {**PLAIN, "return_scale": PERCENTILE, "slow_targets": True},
    "deviation": {**PLAIN, "return_scale": {"kind": "deviation", "rate": 0.5}, "max_grad_norm": 0.1},
    "image, mixed gradients": {
        **PLAIN, "action": BOX, "observations": OBSERVATIONS["mixed"], "dynamics_share": 0.3,
        "return_scale": PERCENTILE,
    },
    "gaussian, no scale": {"action": BOX, **SMOOTH},
    "padded": {**PLAIN, "return_scale": PERCENTILE},
}  # fmt: skip


class Learnt(NamedTuple):
    agent: Dreamer
    metrics: dict[str, float]
    write_back: WriteBack | None
    most_rows: int
    """That the decoder was given at once."""

    @property
    def gradients(self) -> torch.Tensor:
        return torch.cat([self.agent.model_optimizer.gradient, self.agent.behaviour_optimizer.gradient])


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    backend.configure("cpu", torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


def stretches(agent: Dreamer) -> Row:
    """Rows (5, 6) that all differ."""
    make_two = make_batch if agent.config.model.rssm.latents == "categorical" else gaussian_batch
    batches = [make_two(agent, seed) for seed in range(3)]
    rows = {key: np.concatenate([batch[key] for batch in batches])[:STRETCHES] for key in batches[0]}
    return rows | {"id": np.arange(STRETCHES * 6).reshape(STRETCHES, 6)}


def learn(form: str, hook: str, microbatches: int) -> Learnt:
    backend.configure("cpu", 1, torch.are_deterministic_algorithms_enabled(), "numpy", microbatches)
    agent = make(**{**GENTLE, **FORMS[form]})
    rows: list[int] = []
    agent.model.encoder.layers.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    batch = stretches(agent)
    if form == "padded":
        batch["valid"] = np.arange(6) < np.array([6, 2, 3, 6, 1])[:, None]
    update = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise"))
    return Learnt(agent, {key: float(value) for key, value in update.metrics.items()}, update.write_back, max(rows))


@pytest.mark.parametrize("hook", Dreamer.hooks)
@pytest.mark.parametrize("form", FORMS)
def test_parts_add_up(form: str, hook: str) -> None:
    whole, cut = learn(form, hook, 1), learn(form, hook, 3)
    assert whole.most_rows == STRETCHES * 5
    assert cut.most_rows == 2 * 5
    size = float(whole.gradients.abs().max())
    assert size > 1e-3
    torch.testing.assert_close(cut.gradients, whole.gradients, rtol=1e-3, atol=1e-5 * size)
    for name in ("model", "actor", "critic", "return_scale"):
        found, wanted = (getattr(each.agent, name).state_dict() for each in (cut, whole))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert cut.metrics == pytest.approx(whole.metrics, rel=1e-3, abs=1e-5)
    assert list(cut.metrics) == list(whole.metrics)


@pytest.mark.parametrize("hook", ["update", "update_world_model"])
def test_latents_are_written_back_for_the_rows_of_all_parts(hook: str) -> None:
    whole, cut = (learn("percentiles", hook, parts).write_back for parts in (1, 3))
    assert whole is not None
    assert cut is not None
    np.testing.assert_array_equal(cut.ids, np.arange(STRETCHES * 6).reshape(STRETCHES, 6)[:, 1:])
    for key, wanted in whole.columns.items():
        np.testing.assert_allclose(cut.columns[key], wanted, rtol=1e-5, atol=1e-6)


def test_one_step_and_one_move_of_the_slow_value_for_all_parts() -> None:
    agent = learn("percentiles", "update", 5).agent
    assert agent.model_optimizer.steps == agent.behaviour_optimizer.steps == 1
    before = make(**{**GENTLE, **FORMS["percentiles"]}).critic
    moved = weights(before.slow).lerp(weights(agent.critic.value), agent.config.slow_rate)
    torch.testing.assert_close(weights(agent.critic.slow), moved)


def test_more_parts_than_stretches_are_as_many_as_there_are() -> None:
    assert learn("percentiles", "update", 64).most_rows == 5
