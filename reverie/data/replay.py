"""The buffer of off-policy learning: the newest rows of every env, sampled again and again.

Samples follow one env in time. Transitions stay within an episode and never reach over a gap (a new start that
no final row announced); windows run on over ends of episodes, unless they are padded there. Neither reaches over
the write head. Final rows are stored like all others, so nothing is ever put back together from ``info``.

Which samples are drawn is up to a sampler (:mod:`reverie.data.sampler`): a component of its own.

Where observations are stacks of frames, usually either every stack is stored whole or the buffer rebuilds them
by its own rules. Here only the newest frame is stored, and the rule of :mod:`reverie.data.rows` is applied to row
ids, so that a sample copies just the frames it shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Read, Transitions, Window
from reverie.core.types import NOTE, Array, Row, State, WriteBack
from reverie.data.columns import AnnotationColumns, ObservedColumns
from reverie.data.rows import newest_frame, row_bytes, stack_frames
from reverie.data.sampler import Draw, Sampler, UniformSampler
from reverie.data.spans import Span, find_extent, has_legal

if TYPE_CHECKING:
    from reverie.core.specs import ObservationSpec, Specs

_FEWEST_CHUNKS = 8


@dataclasses.dataclass
class Usage:
    """What was done with a buffer since the run began."""

    added: int = 0
    """Rows over all envs that came in."""
    served: int = 0
    """Rows that reads replayed; a transition counts as one."""
    age: float = 0.0
    """Rows over all envs that came after a sampled one, on average over the last batch."""


class ReplayBuffer:
    """Keeps the newest rows and serves transitions and windows."""

    class Config(ComponentConfig):
        """How much is kept, and in which form."""

        kind: str = "replay"
        """Keeps the newest rows for learning again and again."""
        capacity: int = Field(1_000_000, ge=1)
        """Rows over all envs that are kept at least; up to one chunk more are."""
        chunk_rows: int = Field(8192, ge=1)
        """Rows over all envs that are dropped, and written to checkpoints, together; at most an eighth of capacity."""
        annotation_dtype: Literal["float16", "float32"] = "float32"
        """How floats that the algorithm attaches to rows (latents) are kept; float16 takes half the memory."""
        min_rows: int = Field(1, ge=1)
        """Rows over all envs below which nothing is sampled."""
        sampler: Annotated[ComponentConfig, Component("sampler")] = UniformSampler.Config()
        """How samples are drawn: uniform, prioritised, recency, online or a mixture of them."""
        stacked_frames: int = Field(1, ge=1)
        """The frames of the frame_stack wrapper, if there is one around the env: then each is stored only once."""

        @model_validator(mode="after")
        def _reachable(self) -> ReplayBuffer.Config:
            if self.min_rows > self.capacity:
                raise ValueError("min_rows must not be above capacity, or nothing is ever sampled")
            return self

    def __init__(self, config: Config, specs: Specs, num_envs: int) -> None:
        self.config = config
        self.specs = specs
        self.num_envs = num_envs
        self._stored_specs = _single_frames(specs, config.stacked_frames) if config.stacked_frames > 1 else specs
        self._stacked = [
            key for key, spec in self._stored_specs.observations.items() if spec != specs.observations[key]
        ]
        chunk_steps = max(1, min(config.chunk_rows, config.capacity // _FEWEST_CHUNKS) // num_envs)
        num_chunks = -(-config.capacity // (chunk_steps * num_envs)) + 1  # one of them is being filled
        self.rows = ObservedColumns(num_envs, chunk_steps, num_chunks)
        self.annotations = AnnotationColumns(self.rows, config.annotation_dtype)
        self.sampler: Sampler = registry.load("sampler", config.sampler.kind)(config.sampler, self.rows)
        self.usage = Usage()

    def __len__(self) -> int:
        """Rows kept, over all envs."""
        return len(self.rows)

    def add(self, row: Row) -> None:
        """Store a row of every env; where the collector marks it as not ``valid``, no sample starts.

        Extras named ``note/*`` become annotations, so that updates can replace them.
        """
        row = {"valid": np.ones(self.num_envs, bool), **row}
        for key in self._stacked:
            row[key] = self._newest_frame(key, row)
        notes = {key: row.pop(key) for key in list(row) if key.startswith(NOTE)}
        dropped = self.rows.append(row)
        self.usage.added += self.num_envs
        if dropped is not None:
            self.annotations.forget(dropped)
        if notes:
            self.annotations.write(self.rows.newest * self.num_envs + np.arange(self.num_envs), notes)

    def can_sample(self, read: Read) -> bool:
        if not isinstance(read, (Transitions, Window)) or len(self) < self.config.min_rows:
            return False
        return has_legal(self.rows, self._span(read))

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Row:
        """Rows (B, T) with their ``id``. Padding repeats the nearest row, with ``valid`` False and the id -1.

        With priorities each sample also has its ``importance``, the same in all its rows. ``arriving`` is no part of
        it: it has no action yet.
        """
        if not isinstance(read, (Transitions, Window)):
            raise ConfigError(
                f"A replay buffer cannot serve the read {type(read).__name__}: it does not hand out rows once.",
                "Give the phase a rollout buffer, or choose an algorithm that reads Transitions or Window.",
            )
        if len(self) < self.config.min_rows:
            raise TrainingError(
                f"The buffer holds {len(self)} rows and is not sampled below {self.config.min_rows} (min_rows).",
                "Collect more before the update, for instance in a phase of its own with controller: random.",
            )
        span = self._span(read)
        drawn = self.sampler.draw(read.batch_size, span, rng)
        self.usage.served += read.rows
        self.usage.age = float(np.mean(self.rows.newest - drawn.anchors // self.num_envs)) * self.num_envs
        return self._read(drawn, span)

    def write_back(self, values: WriteBack) -> None:
        """Later samples show these values under the same names; a ``priority`` is for a sampler that wants it."""
        columns = dict(values.columns)
        if self.sampler.uses_priorities and "priority" in columns:
            self.sampler.write_priorities(values.ids, columns.pop("priority"))
        self.annotations.write(values.ids, columns)

    def metrics(self) -> dict[str, float]:
        usage = self.usage
        return {
            "fill": min(1.0, len(self) / self.config.capacity),
            "age": usage.age,
            "samples_per_insert": usage.served / max(1, usage.added),
        }

    def clear(self) -> None:
        self.annotations.clear()
        self.rows.clear()
        self.sampler.clear()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the rows kept at the moment, annotations included."""
        return len(self) * (self.rows.row_bytes + self.annotations.row_bytes + self.sampler.row_bytes)

    def forecast_bytes(self, extras: Mapping[str, Array], annotations: Mapping[str, Array]) -> int:
        """Bytes when full; both are examples, shape (N, ...), of what is kept beside the env's own entries."""
        annotations = {**annotations, **{key: array for key, array in extras.items() if key.startswith(NOTE)}}
        extras = {key: array for key, array in extras.items() if not key.startswith(NOTE)}
        one_row = row_bytes(self._stored_specs, extras) + np.dtype(bool).itemsize + self.sampler.row_bytes  # valid
        return self.rows.capacity_rows * (one_row + self.annotations.bytes_of(annotations))

    def state(self) -> State:
        return {
            "rows": self.rows.state(), "annotations": self.annotations.state(), "sampler": self.sampler.state(),
            "usage": dataclasses.asdict(self.usage),
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self.rows.load_state(state["rows"])
        self.annotations.load_state(state["annotations"])
        self.sampler.load_state(state["sampler"])
        self.usage = Usage(**state["usage"])

    def _span(self, read: Transitions | Window) -> Span:
        """The rows of a sample; transitions may be cut short by the end of their episode, to one step at least."""
        history = self.config.stacked_frames - 1
        if isinstance(read, Transitions):
            return Span(0, read.n, read.n - 1, history=history)
        if read.pad_before + read.pad_after >= read.length:
            raise ConfigError(
                f"A window of {read.length} rows cannot have {read.pad_before} + {read.pad_after} rows of padding.",
                "Let the algorithm read longer windows or pad them less.",
            )
        is_padded = read.pad_before + read.pad_after > 0
        after = read.length + read.context - 1 - read.pad_before
        return Span(read.pad_before, after, read.pad_after, is_padded, read.context, history)

    def _read(self, drawn: Draw, span: Span) -> Row:
        anchors = drawn.anchors
        extent = find_extent(self.rows, anchors, span)
        kept = np.clip(span.offsets, extent.first[:, None], extent.last[:, None])  # (B, T)
        is_real = kept == span.offsets
        ids = anchors[:, None] + kept * self.num_envs
        batch = self.rows.gather(ids, [key for key in self.rows.keys if key not in self._stacked])
        batch |= self._gather_stacks(ids) if self._stacked else {}
        batch |= self.annotations.gather(ids)
        batch["valid"] &= is_real
        batch["id"] = np.where(is_real, ids, -1)
        if drawn.importance is not None:
            batch["importance"] = np.repeat(drawn.importance[:, None], ids.shape[1], axis=1)
        return batch

    def _gather_stacks(self, ids: Array) -> Row:
        """The stacked observations of rows: stacks of ids are made first, then only those frames are read."""
        count = self.config.stacked_frames
        past = ids.reshape(-1, 1) - np.arange(count - 1, -1, -1) * self.num_envs  # (B * T, count), oldest first
        is_first = self.rows.gather(past, ["is_first"])["is_first"]
        stacks = stack_frames(past[..., None], is_first, count)[:, -1]  # the ids of each row's frames
        frames = self.rows.gather(stacks.reshape(*ids.shape, count), self._stacked)  # (B, T, count, ..., C)
        return {key: _join_frames(values) for key, values in frames.items()}

    def _newest_frame(self, key: str, row: Row) -> Array:
        """What is stored of a stack. First rows repeat one frame, which shows whether it is a stack at all."""
        frame: Array = newest_frame(row[key], self._stored_specs.observations[key].shape[-1])
        first = row["is_first"]
        if first.any():
            repeated = np.concatenate([frame[first]] * self.config.stacked_frames, axis=-1)
            if not np.array_equal(row[key][first], repeated):
                raise _no_stack(key, self.config.stacked_frames)
        return frame


def _single_frames(specs: Specs, count: int) -> Specs:
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


def _join_frames(frames: Array) -> Array:
    """(B, T, count, ..., C) as (B, T, ..., count * C)."""
    joined = np.moveaxis(frames, 2, -2)
    return joined.reshape(*joined.shape[:-2], -1)
