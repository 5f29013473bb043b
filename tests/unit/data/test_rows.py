from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.data.rows import (
    newest_frame,
    row_bytes,
    stack_frames,
    stack_rows,
    transitions,
    with_context,
)
from reverie.envs.config import EnvConfig
from reverie.envs.vector import SyncVector


def flags(*columns: int, length: int = 6) -> np.ndarray:
    """One stream of bools, true at these columns."""
    return np.isin(np.arange(length), columns)[None]


def as_tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(array) for key, array in batch.items()}


def make_batch(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """Rows 0-2 end by termination, rows 3-4 by truncation, row 5 starts anew."""
    batch = {
        "obs": np.arange(6, dtype=np.float32)[None, :, None],
        "is_first": flags(0, 3, 5),
        "terminated": flags(2),
        "truncated": flags(4),
    }
    return batch | changes


@pytest.mark.parametrize("convert", [dict, as_tensors], ids=["numpy", "torch"])
def test_transitions_pair_neighbours_and_leave_out_final_rows(convert: Any) -> None:
    now, then, weight = transitions(convert(make_batch()))
    assert now["obs"].ravel().tolist() == [0, 1, 2, 3, 4]
    assert then["obs"].ravel().tolist() == [1, 2, 3, 4, 5]
    assert weight.tolist() == [[1, 1, 0, 1, 0]]
    assert str(weight.dtype) in ("float32", "torch.float32")


def test_a_row_that_starts_afresh_parts_its_neighbours() -> None:
    batch = make_batch(is_first=flags(0, 2), terminated=flags(), truncated=flags())
    assert transitions(batch).weight.tolist() == [[1, 0, 1, 1, 1]]


def test_padding_has_no_weight_on_either_side() -> None:
    never = {"terminated": flags(), "truncated": flags(), "is_first": flags(0)}
    ends_early = transitions(make_batch(**never, valid=flags(0, 1, 2, 3)))
    assert ends_early.weight.tolist() == [[1, 1, 1, 0, 0]]
    starts_late = transitions(make_batch(**never, valid=flags(2, 3, 4, 5)))
    assert starts_late.weight.tolist() == [[0, 0, 1, 1, 1]]


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_stacks_repeat_the_first_frame_of_an_episode(convert: Any) -> None:
    frames = convert(np.array([[[1], [2], [3], [4], [5]]]))
    stacks = stack_frames(frames, convert(flags(0, 3, length=5)), count=3)
    assert stacks.tolist() == [[[1, 1, 1], [1, 1, 2], [1, 2, 3], [4, 4, 4], [4, 4, 5]]]


def test_stacks_before_the_first_known_row_are_padded() -> None:
    frames = np.array([[[7], [8]]])
    assert stack_frames(frames, flags(length=2), count=2).tolist() == [[[7, 7], [7, 8]]]


def test_channels_of_a_frame_stay_together() -> None:
    frames = np.arange(2 * 3 * 2 * 2 * 2).reshape(2, 3, 2, 2, 2)  # (B, T, H, W, C)
    stacks = stack_frames(frames, np.array([[True, False, False]] * 2), count=2)
    assert stacks.shape == (2, 3, 2, 2, 4)
    np.testing.assert_array_equal(stacks[:, 2], np.concatenate([frames[:, 1], frames[:, 2]], axis=-1))
    np.testing.assert_array_equal(newest_frame(stacks, channels=2), frames)


@pytest.mark.parametrize("observation", ["image", "vector"])
def test_stacks_equal_what_the_env_wrapper_gave(observation: str) -> None:
    config = EnvConfig.model_validate(
        {
            "id": "Reverie/Counting-v0",
            "kwargs": {"observation": observation, "length": 4, "varied": True},
            "wrappers": [{"kind": "frame_stack", "frames": 3}],
        }
    )
    vector = SyncVector(config, 5, "collect", 2)
    rows = [vector.reset()]
    rows += [vector.step(np.array([step % 4, (step + 1) % 4])) for step in range(20)]
    batch = stack_rows(rows, axis=1)
    assert batch["is_first"].sum() > 4
    channels = batch["obs"].shape[-1] // 3
    stored = newest_frame(batch["obs"], channels)
    np.testing.assert_array_equal(stack_frames(stored, batch["is_first"], count=3), batch["obs"])


def test_row_bytes() -> None:
    image = ObservationSpec((8, 8, 3), "uint8", "image")  # 192
    vector = ObservationSpec((5,), "float32", "vector")  # 20
    index = ObservationSpec((), "int64", "discrete", (4,))  # 8
    specs = Specs({"obs/0": image, "obs/1": vector, "obs/2": index}, ActionSpec("continuous", (2,), "float32"))
    extras = {"log_prob": np.zeros(7, np.float32), "latent": np.zeros((7, 3), np.float16)}  # 4 + 6
    assert row_bytes(specs, extras) == 192 + 20 + 8 + 8 + 7 + 4 + 6


def test_context_is_the_row_before_and_brings_the_action_that_led_on() -> None:
    batch = {"action": np.array([[1, 2, 3]]), "obs": np.array([[10, 20, 30]])}
    context, rows, weight = with_context(batch)
    assert weight is None
    assert {key: value.tolist() for key, value in context.items()} == {"action": [1], "obs": [10]}
    assert rows["obs"].tolist() == [[20, 30]]
    assert rows["previous_action"].tolist() == [[1, 2]]
    assert rows["action"].tolist() == [[2, 3]]


@pytest.mark.parametrize("convert", [dict, as_tensors])
def test_rows_that_are_not_valid_have_no_weight_and_are_followed_by_first_rows(convert: Any) -> None:
    valid = np.array([[True, True, False, False, True, True], [True] * 6])
    batch = {"action": np.zeros((2, 6)), "is_first": np.zeros((2, 6), bool), "valid": valid}
    _, rows, weight = with_context(convert(batch))
    assert weight.tolist() == [[1, 0, 0, 1, 1], [1] * 5]
    assert rows["is_first"].tolist() == [[False, False, True, True, False], [False] * 5]
    all_valid = {**batch, "valid": np.ones_like(valid)}
    assert with_context(convert(all_valid)).weight is None
