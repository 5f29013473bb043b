"""Stacks of frames of which only the newest frame is stored.

Other buffers store every stack whole, or search each sample for episode starts. Here each row has its episode step
(:mod:`reverie.data.derived_columns`), which gives the slots of its frames, and only those frames are copied. Samples
within one episode copy even less: neighbouring rows have all frames but one in common, so each frame is copied once and
the stacks are overlapping windows of that copy.
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
    """The stacks of rows (B, T) that follow each other, each sample within one episode, by their slots in the ring.

    What is returned may overlap itself in memory: it is to be read, or copied, and not to be written into.
    """
    first, length = slots[:, :1], slots.shape[1]
    frames = _frames_of(rows, first, count, length)
    return {key: _slide(rows.take(key, frames), length, count) for key in keys}


def gather_stacks(rows: ObservedColumns, slots: Array, keys: list[str], count: int) -> Row:
    """The stacks of any rows (B, T), each made by itself."""
    frames = _frames_of(rows, slots[..., None], count)  # (B, T, count)
    return {key: _join_frames(rows.take(key, frames)) for key in keys}


def _frames_of(rows: ObservedColumns, first: Array, count: int, length: int = 1) -> Array:
    """The slots of all frames that ``length`` rows show, oldest first; ``first`` is where the first row lies (..., 1).

    Before its episode starts, a stack repeats the first frame.
    """
    back = np.maximum(_offsets(count, length), -rows.episode_steps.take(first))
    return rows.slots(first + back * rows.num_envs)


@lru_cache
def _offsets(count: int, length: int) -> Array:
    """From the first of ``length`` rows to all frames of their stacks, oldest first."""
    return np.arange(1 - count, length)


def take_newest_frame(key: str, row: Row, count: int) -> Array:
    """What is stored of a stack. First rows repeat one frame, which shows whether it is a stack at all."""
    frame: Array = newest_frame(row[key], row[key].shape[-1] // count)
    first = row["is_first"]
    if first.any():
        repeated = np.concatenate([frame[first]] * count, axis=-1)
        if not np.array_equal(row[key][first], repeated):
            raise _no_stack(key, count)
    return frame


def single_frames(specs: Specs, count: int) -> Specs:
    """The specs of what is stored: one frame of each stack."""
    leaves = {key: _single_frame(key, spec, count) for key, spec in specs.observations.items()}
    if leaves == specs.observations:
        raise _no_stack(", ".join(leaves), count)
    return dataclasses.replace(specs, observations=leaves)


def _single_frame(key: str, spec: ObservationSpec, count: int) -> ObservationSpec:
    if spec.kind == "discrete" or not spec.shape:
        return spec
    if spec.shape[-1] % count:
        raise _no_stack(key, count)
    return dataclasses.replace(spec, shape=(*spec.shape[:-1], spec.shape[-1] // count))


def _no_stack(key: str, count: int) -> ConfigError:
    return ConfigError(
        f"The observation '{key}' is no stack of {count} frames as the frame_stack wrapper makes it.",
        "Set the buffer's stacked_frames to the frames of that wrapper, or to 1 to store observations as they are.",
    )


def _slide(frames: Array, length: int, count: int) -> Array:
    """(B, count - 1 + T, ..., C) as (B, T, ..., count * C); copies only images of several channels."""
    shape = (len(frames), length, *frames.shape[2:-1], count, frames.shape[-1])
    strides = (*frames.strides[:-1], frames.strides[1], frames.strides[-1])
    windows: Array = np.ndarray(shape, frames.dtype, frames, 0, strides)  # as_strided took 8 us for the same
    return windows.reshape(*shape[:-2], -1)


def _join_frames(frames: Array) -> Array:
    """(B, T, count, ..., C) as (B, T, ..., count * C)."""
    joined = np.moveaxis(frames, 2, -2)
    return joined.reshape(*joined.shape[:-2], -1)
