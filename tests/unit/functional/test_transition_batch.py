"""Transitions of sequences, worked by hand and against a loop over rows. Microbatches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.functional.transition_batch import TransitionBatch, n_step_transitions, sequence_transitions, split


def make_sequence(rewards: list[float], **flags: list[int]) -> Row:
    """One sequence with row numbers as observations. Flags name the rows that have them."""
    length = len(rewards)
    batch = {
        "obs": np.arange(length, dtype=np.float32)[None, :, None],
        "action": 100 + np.arange(length)[None],
        "reward": np.array([rewards], np.float32),
        **{name: np.zeros((1, length), bool) for name in ("is_first", "terminated", "truncated")},
    }
    for name, rows in flags.items():
        batch[name][:, rows] = True
    return batch


def test_transitions_of_a_sequence_by_hand() -> None:
    """Two steps, gamma 0.5, one burn-in row. Row 4 is truncated, row 5 starts an episode.

    =====  ===========  =======  ========
    row    reward       ends at  discount
    =====  ===========  =======  ========
    1      2 + 0.5 * 3  3        0.25
    2      3 + 0.5 * 4  4        0.25
    3      4            4        0.5       bootstraps through the truncation, after one step
    4      none: the action of a final row is unused
    5      6 + 0.5 * 7  7        0.25
    6      none: the sequence ends after one step
    =====  ===========  =======  ========
    """
    batch = make_sequence([9, 1, 2, 3, 4, 0, 6, 7], truncated=[4], is_first=[0, 5])
    transitions = sequence_transitions(batch, 0.5, 2, burn_in=1)
    assert transitions.actions.tolist() == [[101, 102, 103, 104, 105, 106]]
    assert (transitions.weights * 4).tolist() == [[1, 1, 1, 0, 1, 0]]
    valid = transitions.weights[0] > 0
    assert transitions.rewards[0][valid].tolist() == [3.5, 5, 4, 9.5]
    assert (1 + transitions.next_obs["column"])[0][valid].tolist() == [3, 4, 4, 7]
    assert transitions.discounts[0][valid].tolist() == [0.25, 0.25, 0.5, 0.25]
    assert transitions.obs.keys() == {"obs", "is_first"}
    assert transitions.obs["obs"].shape == transitions.next_obs["obs"].shape == (1, 8, 1)


def test_the_discount_of_a_terminal_transition_is_zero() -> None:
    batch = make_sequence([9, 1, 2, 3, 4, 0], terminated=[4], is_first=[5])
    transitions = sequence_transitions(batch, 0.5, 3, burn_in=0)
    assert transitions.weights[0].nonzero()[0].tolist() == [0, 1, 2, 3]
    assert transitions.rewards[0, :4].tolist() == [1 + 1 + 0.75, 2 + 1.5 + 1, 3 + 2, 4]
    assert transitions.discounts[0, :4].tolist() == [0.125, 0, 0, 0]


def transition_from(batch: Row, sample: int, row: int, gamma: float, n: int) -> tuple[float, int, float] | None:
    """Reward, last row and discount of the transition from a row. None if it does not fit into the sequence."""
    flags = {name: batch[name][sample] for name in ("is_first", "terminated", "truncated", "valid")}
    reward, last = 0.0, row
    for count in range(n):
        if flags["terminated"][last] or flags["truncated"][last]:
            return (reward, last, 0.0 if flags["terminated"][last] else gamma**count) if count else None
        is_outside = last + 1 == len(flags["valid"]) or not flags["valid"][last : last + 2].all()
        if is_outside or flags["is_first"][last + 1]:
            return None
        last += 1
        reward += gamma**count * float(batch["reward"][sample, last])
    return reward, last, 0.0 if flags["terminated"][last] else gamma**n


def random_sequences(seed: int, count: int = 40, length: int = 13) -> Row:
    """With terminated and truncated rows, first rows without a final row before them, and padding."""
    rng = make_generator(seed, "windows")
    shape = (count, length)
    ended, kind = rng.random(shape) < 0.2, rng.random(shape) < 0.5
    follows = np.concatenate([rng.random((count, 1)) < 0.5, ended[:, :-1]], axis=1)
    return {
        "obs": rng.standard_normal((*shape, 2), dtype=np.float32), "action": rng.integers(0, 3, shape),
        "reward": rng.standard_normal(shape, dtype=np.float32), "terminated": ended & kind, "truncated": ended & ~kind,
        "is_first": follows | (rng.random(shape) < 0.05), "valid": rng.random(shape) > 0.05,
        "importance": np.repeat(rng.random((count, 1), dtype=np.float32), length, 1),
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("burn_in", [0, 4])
def test_sequences_equal_a_loop_over_rows(n: int, burn_in: int) -> None:
    batch = random_sequences(10 * n + burn_in)
    transitions = sequence_transitions(batch, 0.9, n, burn_in)
    count, length = transitions.weights.shape
    assert length == batch["reward"].shape[1] - burn_in - 1
    found: list[Any] = [
        transition_from(batch, sample, burn_in + row, 0.9, n) for sample in range(count) for row in range(length)
    ]  # fmt: skip
    is_valid = np.array([step is not None for step in found]).reshape(count, length)
    assert 0.2 < is_valid.mean() < 0.95
    np.testing.assert_array_equal(transitions.weights > 0, is_valid)
    np.testing.assert_allclose(transitions.weights, is_valid / is_valid.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        transitions.importance_weights, transitions.weights * batch["importance"][:, :1], rtol=1e-6
    )
    reward, last, discount = np.array([step for step in found if step is not None]).T
    np.testing.assert_allclose(transitions.rewards[is_valid], reward, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal((transitions.next_obs["column"] + burn_in)[is_valid], last)
    np.testing.assert_allclose(transitions.discounts[is_valid], discount, rtol=1e-6)
    assert transitions.next_obs["column"].min() >= 0
    assert transitions.next_obs["column"].max() <= length


def test_a_sequence_with_one_transition_equals_a_single_sample() -> None:
    batch = {key: value[:, :4] for key, value in random_sequences(3).items()}
    batch["is_first"][:] = batch["terminated"][:] = batch["truncated"][:] = False
    batch["valid"][:] = True
    one, many = n_step_transitions(batch, 0.9), sequence_transitions(batch, 0.9, 3, 0)
    np.testing.assert_allclose(many.rewards[:, 0], one.rewards, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(many.discounts[:, 0], one.discounts, rtol=1e-6)
    np.testing.assert_allclose(many.importance_weights[:, 0], one.importance_weights, rtol=1e-6)
    assert (many.weights[:, 1:] == 0).all()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_microbatches_keep_all_transitions_of_a_sample(size: int) -> None:
    flat = sequence_transitions(random_sequences(4, count=5, length=7), 0.9, 2, burn_in=1).flatten()
    tensors = TransitionBatch(
        *({key: torch.as_tensor(value) for key, value in obs.items()} for obs in flat[:2]),
        *map(torch.as_tensor, flat[2:]),
    )
    assert tensors.actions.shape == (25, 1)  # 5 transitions of each sequence
    microbatches = split(tensors, size)
    assert [len(part.obs["obs"]) for part in microbatches] == {2: [2, 2, 1], 3: [3, 2], 5: [5]}[size]
    assert [len(part.weights) for part in microbatches] == [5 * len(part.obs["obs"]) for part in microbatches]
    for index in range(2, len(tensors)):
        assert torch.equal(torch.cat([part[index] for part in microbatches]), tensors[index])
    for name in ("obs", "next_obs"):
        for key, value in getattr(tensors, name).items():
            assert torch.equal(torch.cat([getattr(part, name)[key] for part in microbatches]), value)
