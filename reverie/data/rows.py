"""The layout of rows in time: the only place that shifts, masks or stacks them.

Batches may hold numpy arrays or torch tensors; torch is never imported here. What a row holds is told in
:mod:`reverie.core.types`. Reward and flags lie in the row they arrive in, so the transition out of row t
needs row t + 1; :func:`transitions` is where the two meet, and nobody else writes ``[:, 1:]``.
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
"""Reward, is_first, terminated and truncated of one row."""

POLICY_VERSION = "policy_version"
"""The column of rows that say how many updates are behind the weights that chose their action."""
UNKNOWN_VERSION = -1


class Transitions(NamedTuple):
    """Pairs of neighbouring rows; ``weight`` (B, T) is 0 where a pair is none and belongs into every mean."""

    now: dict[str, Any]
    then: dict[str, Any]
    weight: Any


def transitions(batch: Batch) -> Transitions:
    """Rows ``(B, T + 1)`` as T steps: in ``now`` the agent acted, in ``then`` it got reward and flags.

    A pair counts (weight 1) unless ``now`` ended its episode, ``then`` starts one (rows lie beside each other
    that never followed each other, as after a reset in mid-episode) or either is padding (``valid``).
    """
    now = {key: value[:, :-1] for key, value in batch.items()}
    then = {key: value[:, 1:] for key, value in batch.items()}
    real = ~(is_last(now) | then["is_first"])
    if "valid" in batch:
        real = real & now["valid"] & then["valid"]
    return Transitions(now, then, _as_float(real))


class Sequences(NamedTuple):
    """Sequences of T rows, each behind a row of context."""

    context: dict[str, Any]
    rows: dict[str, Any]
    weight: Any
    """(B, T): 0 for rows that are not ``valid``; it belongs into every mean. None where all rows count."""


def with_context(batch: Batch) -> Sequences:
    """Rows ``(B, T + 1)`` as the first one of each sequence and the T that follow it.

    These have the ``previous_action`` that led to them; in a first row of an episode it means nothing. A row behind one
    that is not ``valid`` (padding, or an env that waits for others) counts as first: it does not follow from it.
    """
    context = {key: value[:, 0] for key, value in batch.items()}
    rows = {key: value[:, 1:] for key, value in batch.items()}
    rows["previous_action"] = batch["action"][:, :-1]
    if "valid" not in batch or bool(batch["valid"].all()):
        return Sequences(context, rows, None)
    rows["is_first"] = rows["is_first"] | ~batch["valid"][:, :-1]
    return Sequences(context, rows, _as_float(rows["valid"]))


def newest_frame(obs: Any, channels: int) -> Any:
    """The last frame of a stack: what a buffer has to store."""
    return obs[..., -channels:]


def stack_frames(frames: Any, is_first: Any, count: int) -> Any:
    """Stacks of frames from single ones, oldest first: (B, T, ..., C) becomes (B, T, ..., count * C).

    Where a stack would reach behind the start of its episode the first frame is repeated, as the env wrapper
    does. Rows before column 0 are unknown and padded in the same way: read ``count - 1`` more, drop them.
    """
    index = _frame_indices(_as_numpy(is_first), count)
    stacked = frames[np.arange(len(index))[:, None, None], index]  # (B, T, count, ..., C)
    for axis in range(2, stacked.ndim - 2):
        stacked = stacked.swapaxes(axis, axis + 1)  # carries the count to the channels
    return stacked.reshape(*stacked.shape[:-2], -1)


def row_bytes(specs: Specs, extras: Mapping[str, Array], wider_than: int = -1) -> int:
    """Bytes that one row of one env takes; ``extras`` is an example of what else is kept, shape (N, ...).

    Only columns of more than ``wider_than`` bytes a row count.
    """
    kinds = [(spec.shape, spec.dtype) for spec in specs.observations.values()]
    kinds.append((specs.action.shape, specs.action.dtype))
    widths = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds]
    widths += [array.nbytes // len(array) for array in extras.values()]
    return sum(width for width in (*widths, *_FIXED_BYTES) if width > wider_than)


def with_version(block: Block) -> Row:
    """The rows (N, T, ...) of a block, with its policy version as a column."""
    return {**block.rows, POLICY_VERSION: np.full(block.rows["is_first"].shape, block.policy_version, np.int64)}


def stack_rows(rows: list[Row], axis: int) -> Row:
    """Rows of one moment each, with a new time axis."""
    return {key: np.stack([row[key] for row in rows], axis=axis) for key in rows[0]}


def _frame_indices(is_first: Array, count: int) -> Array:
    """For each row the columns of its ``count`` frames, oldest first: (B, T, count)."""
    columns = np.arange(is_first.shape[1])
    start = np.maximum.accumulate(np.where(is_first, columns, 0), axis=1)  # of each row's episode
    ages = np.arange(count - 1, -1, -1)
    indices: Array = np.maximum(columns[:, None] - ages, start[:, :, None])
    return indices


def _as_float(mask: Any) -> Any:
    return mask.float() if hasattr(mask, "float") else mask.astype(np.float32)


def _as_numpy(flags: Any) -> Array:
    return np.asarray(flags.cpu() if hasattr(flags, "cpu") else flags)
