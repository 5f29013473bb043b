"""Frame stacks of which only the newest frame is stored.

Other buffers store every stack, or search each sample for episode starts. Here the episode step of a row
(:mod:`reverie.data.derived_columns`) gives the slots of its frames, and only those frames are copied. Samples within
one episode copy even less: consecutive rows share all frames but one, so each frame is copied once and the stacks are
overlapping windows of that copy.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from reverie.core.errors import ConfigError
from reverie.core.types import Array, Row
from reverie.data.columns import ObservedColumns
from reverie.data.rows import newest_frame

if TYPE_CHECKING:
    from reverie.core.specs import ObservationSpec, Specs


def slide_stacks(rows: ObservedColumns, slots: Array, keys: list[str], count: int) -> Row:
    """The stacks of the rows in ``slots`` (B, T), where each sample is consecutive rows of one episode.

    The stacks may overlap in memory: read or copy them, do not write to them.
    """
    first, length = slots[:, :1], slots.shape[1]
    frames = _frames_of(rows, first, count, length)
    return {key: _slide(rows.take(key, frames), length, count) for key in keys}


def gather_stacks(rows: ObservedColumns, slots: Array, keys: list[str], count: int) -> Row:
    """The stacks of the rows in ``slots`` (B, T), for any rows."""
    frames = _frames_of(rows, slots[..., None], count)  # (B, T, count)
    return {key: _join_frames(rows.take(key, frames)) for key in keys}


def _frames_of(rows: ObservedColumns, first: Array, count: int, length: int = 1) -> Array:
    """Slots of all frames in the stacks of ``length`` rows, oldest first, from the slot of the first row (..., 1).

    Near the start of an episode a stack repeats the first frame.
    """
    back = np.maximum(_offsets(count, length), -rows.episode_steps.take(first))
    return rows.slots(first + back * rows.num_envs)


@lru_cache
def _offsets(count: int, length: int) -> Array:
    """Steps from the first of ``length`` rows to all frames in their stacks, oldest first."""
    return np.arange(1 - count, length)


def take_newest_frame(key: str, row: Row, count: int) -> Array:
    """The frame of each stack that is stored. Checks on first rows that the observation really is a stack."""
    frame: Array = newest_frame(row[key], row[key].shape[-1] // count)
    first = row["is_first"]
    if first.any():
        repeated = np.concatenate([frame[first]] * count, axis=-1)
        if not np.array_equal(row[key][first], repeated):
            raise _not_a_stack(key, count)
    return frame


def single_frames(specs: Specs, count: int) -> Specs:
    """The specs of the stored rows: one frame of each stack."""
    leaves = {key: _single_frame(key, spec, count) for key, spec in specs.observations.items()}
    if leaves == specs.observations:
        raise _not_a_stack(", ".join(leaves), count)
    return dataclasses.replace(specs, observations=leaves)


def _single_frame(key: str, spec: ObservationSpec, count: int) -> ObservationSpec:
    if spec.kind == "discrete" or not spec.shape:
        return spec
    if spec.shape[-1] % count:
        raise _not_a_stack(key, count)
    return dataclasses.replace(spec, shape=(*spec.shape[:-1], spec.shape[-1] // count))


def _not_a_stack(key: str, count: int) -> ConfigError:
    return ConfigError(
        f"The observation '{key}' is not a stack of {count} frames made by the frame_stack wrapper.",
        "Set the buffer's stacked_frames to the frames of that wrapper, or to 1 to store whole observations.",
    )


def _slide(frames: Array, length: int, count: int) -> Array:
    """(B, count - 1 + T, ..., C) as (B, T, ..., count * C). Copies only images with several channels."""
    shape = (len(frames), length, *frames.shape[2:-1], count, frames.shape[-1])
    strides = (*frames.strides[:-1], frames.strides[1], frames.strides[-1])
    windows: Array = np.ndarray(shape, frames.dtype, frames, 0, strides)  # 8 us faster than as_strided
    return windows.reshape(*shape[:-2], -1)


def _join_frames(frames: Array) -> Array:
    """(B, T, count, ..., C) as (B, T, ..., count * C)."""
    joined = np.moveaxis(frames, 2, -2)
    return joined.reshape(*joined.shape[:-2], -1)
