"""The layout of rows in time: the only module that shifts, masks or stacks them.

Batches may hold numpy arrays or torch tensors; torch is never imported here. :mod:`reverie.core.types` lists the
columns of a row. Reward and flags are stored with the observation that they arrived with, so a transition out of row t
needs row t + 1. :func:`transitions` pairs the two; no other code writes ``[:, 1:]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reverie.core.types import Array, Batch, Block, Row, is_last

if TYPE_CHECKING:
    from reverie.core.specs import Specs

_FIXED_BYTES = (np.dtype(np.float32).itemsize, *[np.dtype(np.bool_).itemsize] * 3)
"""Sizes of reward, is_first, terminated and truncated in one row."""

POLICY_VERSION = "policy_version"
"""Column with the number of updates of the weights that chose a row's action."""
UNKNOWN_VERSION = -1


class Transitions(NamedTuple):
    """Pairs of consecutive rows. Every mean must use ``weight`` (B, T), which is 0 where a pair is not a transition."""

    now: dict[str, Any]
    then: dict[str, Any]
    weight: Any


def transitions(batch: Batch) -> Transitions:
    """Rows ``(B, T + 1)`` as T transitions: the agent acted in ``now``, its reward and flags arrived in ``then``.

    The weight is 1 unless ``now`` ends its episode, ``then`` starts one (an episode may also be abandoned without a
    final row), or either row is not ``valid``.
    """
    now = {key: value[:, :-1] for key, value in batch.items()}
    then = {key: value[:, 1:] for key, value in batch.items()}
    is_real = ~(is_last(now) | then["is_first"])
    if "valid" in batch:
        is_real = is_real & now["valid"] & then["valid"]
    return Transitions(now, then, _as_float(is_real))


class Sequences(NamedTuple):
    """Sequences of T rows, each with one row of context before it."""

    context: dict[str, Any]
    rows: dict[str, Any]
    weight: Any
    """(B, T): 0 for rows that are not ``valid``. Every mean must use it. None if all rows are valid."""


def with_context(batch: Batch) -> Sequences:
    """Split rows ``(B, T + 1)`` into one row of context and a sequence of T rows.

    The rows of the sequence get a ``previous_action``, which is meaningless in first rows. A row after one that is not
    ``valid`` (padding, or an env that waited for others) is marked ``is_first``.
    """
    context = {key: value[:, 0] for key, value in batch.items()}
    rows = {key: value[:, 1:] for key, value in batch.items()}
    rows["previous_action"] = batch["action"][:, :-1]
    if "valid" not in batch or bool(batch["valid"].all()):
        return Sequences(context, rows, None)
    rows["is_first"] = rows["is_first"] | ~batch["valid"][:, :-1]
    return Sequences(context, rows, _as_float(rows["valid"]))


def newest_frame(obs: Any, channels: int) -> Any:
    """The last frame of a stack, the only one that a buffer stores."""
    return obs[..., -channels:]


def stack_frames(frames: Any, is_first: Any, count: int) -> Any:
    """Stack single frames, oldest first: (B, T, ..., C) becomes (B, T, ..., count * C).

    Near the start of an episode the first frame is repeated, as the env wrapper does. The same happens at column 0,
    where earlier rows are unknown: read ``count - 1`` rows more and drop them.
    """
    index = _frame_indices(_as_numpy(is_first), count)
    stacked = frames[np.arange(len(index))[:, None, None], index]  # (B, T, count, ..., C)
    for axis in range(2, stacked.ndim - 2):
        stacked = stacked.swapaxes(axis, axis + 1)  # move the axis of frames next to the channels
    return stacked.reshape(*stacked.shape[:-2], -1)


def row_bytes(specs: Specs, extras: Mapping[str, Array], wider_than: int = -1) -> int:
    """Bytes per row. ``extras`` are examples of the extras, shape (N, ...).

    Counts only columns with more than ``wider_than`` bytes per row.
    """
    kinds = [(spec.shape, spec.dtype) for spec in specs.observations.values()]
    kinds.append((specs.action.shape, specs.action.dtype))
    widths = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds]
    widths += [array.nbytes // len(array) for array in extras.values()]
    return sum(width for width in (*widths, *_FIXED_BYTES) if width > wider_than)


def with_version(block: Block) -> Row:
    """The rows (N, T, ...) of a block with a column ``policy_version``."""
    return {**block.rows, POLICY_VERSION: np.full(block.rows["is_first"].shape, block.policy_version, np.int64)}


def stack_rows(rows: list[Row], axis: int) -> Row:
    """Stack rows along a new time axis."""
    return {key: np.stack([row[key] for row in rows], axis=axis) for key in rows[0]}


def _frame_indices(is_first: Array, count: int) -> Array:
    """The columns of the ``count`` frames of each row, oldest first: (B, T, count)."""
    columns = np.arange(is_first.shape[1])
    start = np.maximum.accumulate(np.where(is_first, columns, 0), axis=1)  # first column of each row's episode
    ages = np.arange(count - 1, -1, -1)
    indices: Array = np.maximum(columns[:, None] - ages, start[:, :, None])
    return indices


def _as_float(mask: Any) -> Any:
    return mask.float() if hasattr(mask, "float") else mask.astype(np.float32)


def _as_numpy(flags: Any) -> Array:
    return np.asarray(flags.cpu() if hasattr(flags, "cpu") else flags)
