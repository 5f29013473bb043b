"""The buffer of off-policy learning: the newest rows of every env, sampled again and again.

Samples follow one env in time. Transitions stay within an episode and never reach over a gap (a new start that
no final row announced); windows run on over ends of episodes, unless they are padded there. Neither reaches over
the write head. Final rows are stored like all others, so nothing is ever put back together from ``info``.

Which samples are drawn is up to a sampler (:mod:`reverie.data.sampler`): a component of its own.

Where observations are stacks of frames, only the newest frame is stored (:mod:`reverie.data.frame_stacks`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import BufferTraits
from reverie.core.errors import ConfigError, TooFewRowsError, TrainingError
from reverie.core.reads import Episodes, Read, Transitions, Window
from reverie.core.types import NOTE, Array, Block, Row, State, WriteBack
from reverie.core.wording import count
from reverie.data.annotations import AnnotationColumns
from reverie.data.columns import ObservedColumns
from reverie.data.derived_columns import EpisodeFlags, EpisodeSteps
from reverie.data.episodes import lay_in_lanes
from reverie.data.file_columns import WIDE_BYTES, ChunkStore
from reverie.data.frame_stacks import gather_stacks, single_frames, slide_stacks, take_newest_frame
from reverie.data.memory_forecast import ExpectedRows, Forecast
from reverie.data.rows import POLICY_VERSION, UNKNOWN_VERSION, row_bytes, with_version
from reverie.data.sample_spans import Span, find_extent, has_legal, legal_blocks
from reverie.data.sampler import Draw, Sampler, UniformSampler

if TYPE_CHECKING:
    from reverie.core.specs import Specs

_FEWEST_CHUNKS = 8
_CHUNK_COPIES = 3
"""How often a chunk of columns in files is in memory at most: the one that grows, and another that a resume reads, as
bytes and as arrays. Writing takes less: what has grown is copied when it is saved."""


@dataclasses.dataclass
class Usage:
    """What was done with a buffer since the run began."""

    added: int = 0
    """Rows over all envs that came in."""
    served: int = 0
    """Rows that reads replayed; a transition counts as one."""
    drawn: Array = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """The rows that the last batch was drawn from, by their ids."""
    newest: int = 0
    """The newest step of the envs at that time."""

    def age(self, num_envs: int) -> float:
        """Rows over all envs that had come after a sampled one, on average over the last batch."""
        return float((self.newest - self.drawn // num_envs).mean()) * num_envs if len(self.drawn) else 0.0


class ReplayBuffer:
    """Keeps the newest rows and serves transitions, windows and whole episodes."""

    traits = BufferTraits(serves=(Transitions, Window, Episodes), replays=True)

    class Config(ComponentConfig):
        """How much is kept, and in which form."""

        kind: str = "replay"
        """Keeps the newest rows for learning again and again."""
        capacity: int = Field(1_000_000, ge=1)
        """Rows over all envs that are kept at least; up to one chunk more are."""
        chunk_rows: int = Field(8192, ge=1)
        """Rows over all envs that are dropped, and written to checkpoints, together; at most an eighth of capacity."""
        storage: Literal["auto", "memory", "disk"] = "auto"
        """Where rows lie: in memory, or their wide columns in files of the run folder; samples are the same. auto takes
        memory if half of what is free will do; it is decided when a run is created."""
        annotation_dtype: Literal["float16", "float32"] = "float32"
        """How floats that the algorithm attaches to rows (latents) are kept; float16 takes half the memory."""
        min_rows: int = Field(1, ge=1)
        """Rows over all envs below which nothing is sampled."""
        sampler: Annotated[ComponentConfig, Component("sampler")] = UniformSampler.Config()
        """How samples are drawn: uniform, prioritised, recency, online or a mixture of them."""
        stacked_frames: int | None = Field(None, ge=1, le=EpisodeSteps.LARGEST + 1)
        """Of how many frames observations are stacks: then each is stored only once. Empty: as many as the frame_stack
        wrapper says, if it is the last to change observations; it is decided when a run is created."""

        policy_version: bool = False
        """Whether each row also stores policy_version: the updates behind the weights that chose its action. -1 for
        rows of a source."""
        source: str | None = None
        """Data that fill the buffer before training: the folder of a dataset, or minari:NAME."""
        holdout: float = Field(0.0, ge=0, lt=1)
        """Share of the source's episodes that are kept from training, for the hook validate."""

        @model_validator(mode="after")
        def _reachable(self) -> ReplayBuffer.Config:
            if self.min_rows > self.capacity:
                raise ValueError("min_rows must not be above capacity, or nothing is ever sampled")
            return self

        @property
        def frames(self) -> int:
            """1 where observations are stored as they are."""
            return self.stacked_frames or 1

        @property
        def derived_bytes(self) -> int:
            """Memory per row of the columns computed from the others."""
            return EpisodeFlags.ROW_BYTES + (EpisodeSteps.ROW_BYTES if self.frames > 1 else 0)

    def __init__(self, config: Config, specs: Specs, num_envs: int, store: ChunkStore | None = None) -> None:
        """``store`` is where rows go if the config's storage is disk."""
        self.config = config
        self.specs = specs
        self.num_envs = num_envs
        self._stored_specs = single_frames(specs, config.frames) if config.frames > 1 else specs
        self._stacked = [
            key for key, spec in self._stored_specs.observations.items() if spec != specs.observations[key]
        ]
        self.rows = ObservedColumns(num_envs, *_chunks(config, num_envs), store if config.storage == "disk" else None)
        self.annotations = AnnotationColumns(self.rows, config.annotation_dtype)
        self.sampler: Sampler = registry.load("sampler", config.sampler.kind)(config.sampler, self.rows)
        self.usage = Usage()
        self._spans: dict[Read, Span] = {}
        self.holdout: ReplayBuffer | None = None
        """What is kept from training, in a buffer of its own."""
        if config.holdout:
            alone = {"holdout": 0.0, "source": None, "sampler": UniformSampler.Config(), "min_rows": 1}
            self.holdout = ReplayBuffer(config.model_copy(update=alone), specs, num_envs, store)
        self._is_filled = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_rows(self) -> int:
        """Rows stored now, over all envs."""
        return len(self.rows)

    def num_samples(self, read: Transitions | Window) -> int:
        """Different samples that a read can get now: what a pass of the shuffled sampler covers."""
        return sum(map(len, legal_blocks(self.rows, self._span(read))))

    def add(self, row: Row, steps: int = 1) -> None:
        """Store a row of every env, or the rows (steps * N, ...) of ``steps`` vector steps within a chunk.

        No sample starts at a row that the collector marks as not ``valid``. Extras named ``note/*`` become annotations,
        so that updates can replace them.
        """
        size = steps * self.num_envs
        row = {"valid": np.ones(size, bool), **row}
        if self.config.policy_version and POLICY_VERSION not in row:
            row[POLICY_VERSION] = np.full(size, UNKNOWN_VERSION, np.int64)
        for key in self._stacked:
            row[key] = take_newest_frame(key, row, self.config.frames)
        notes = {key: row.pop(key) for key in list(row) if key.startswith(NOTE)}
        dropped = self.rows.append(row, steps)
        self.usage.added += size
        if dropped is not None:
            self.annotations.forget(dropped)
        if notes:
            self.annotations.write(self.rows.end * self.num_envs - size + np.arange(size), notes)

    def extend(self, block: Block) -> None:
        """Store the rows (N, T, ...) of a block: the same bits as adding its vector steps one by one."""
        rows = with_version(block) if self.config.policy_version else block.rows
        columns = {key: values.swapaxes(0, 1) for key, values in rows.items()}  # (T, N, ...)
        begin = 0
        while begin < len(block):
            end = min(len(block), begin + self.rows.room_steps)
            pieces = {key: values[begin:end] for key, values in columns.items()}
            self.add({key: piece.reshape(-1, *piece.shape[2:]) for key, piece in pieces.items()}, end - begin)
            begin = end

    def fill(self) -> Iterator[Row]:
        """Add the data of the source, once in a run; hands on the rows that training may see, as they are added."""
        if self.config.source is None or self._is_filled:
            return
        from reverie.data.source import read_episodes

        self._is_filled = True
        source, holdout = self.config.source, self.config.holdout
        if self.holdout is not None:
            for row in lay_in_lanes(read_episodes(source, self.specs, holdout, held_out=True), self.num_envs):
                self.holdout.add(row)
        for row in lay_in_lanes(read_episodes(source, self.specs, holdout, held_out=False), self.num_envs):
            self.add(row)
            yield row
            if self.rows.oldest > 0:
                raise ConfigError(
                    f"The data in '{source}' are more than the {self.config.capacity:,} rows that the buffer keeps.",
                    "Set the buffer's capacity to the rows that `reverie data info` tells.",
                )

    def can_sample(self, read: Read) -> bool:
        if len(self) < self.config.min_rows:
            return False
        if isinstance(read, Episodes):
            return len(self.rows.episodes.find()[0]) > 0
        return isinstance(read, (Transitions, Window)) and has_legal(self.rows, self._span(read))

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Row:
        """Rows (B, T) with their ``id``. Padding repeats the nearest row, with ``valid`` False and the id -1.

        Episodes are padded with zeros instead, as a rollout buffer pads them. With priorities each sample also has its
        ``importance``, the same in all its rows. ``arriving`` is not used: it has no action yet.
        """
        if len(self) < self.config.min_rows:
            raise self._too_few_rows()
        if not isinstance(read, (Transitions, Window)):
            return self._sample_episodes(read, rng)
        span = self._span(read)
        drawn = self.sampler.draw(read.batch_size, span, rng)
        self.usage.served += read.rows
        self.usage.drawn, self.usage.newest = drawn.anchors, self.rows.newest
        return self._read(drawn, span)

    def write_back(self, values: WriteBack) -> None:
        """Later samples show these values under the same names; a ``priority`` is for a sampler that wants it."""
        columns = dict(values.columns)
        if self.sampler.uses_priorities and "priority" in columns:
            ids = values.ids if values.priority_ids is None else values.priority_ids
            self.sampler.write_priorities(ids, columns.pop("priority"))
        self.annotations.write(values.ids, columns)

    def metrics(self) -> dict[str, float]:
        usage = self.usage
        return {
            "fill": min(1.0, len(self) / self.config.capacity),
            "age": usage.age(self.num_envs),
            "samples_per_insert": usage.served / max(1, usage.added),
        }

    def clear(self) -> None:
        self.annotations.clear()
        self.rows.clear()
        self.sampler.clear()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the rows kept at the moment, annotations and held-out rows included."""
        drawing = self.sampler.row_bytes(self.config.sampler)
        held_out = 0 if self.holdout is None else self.holdout.memory_bytes
        each = self.rows.row_bytes + self.config.derived_bytes + self.annotations.row_bytes + drawing
        return len(self) * each + held_out

    @staticmethod
    def forecast(config: Config, expected: ExpectedRows) -> Forecast:
        """What it takes when full: see :mod:`reverie.data.memory_forecast`."""
        specs, num_envs, extras, annotations, _ = expected
        chunk_steps, num_chunks = _chunks(config, num_envs)
        chunk_rows = chunk_steps * num_envs
        rows = num_chunks * chunk_rows
        held_out = int(rows * min(1.0, config.holdout / (1 - config.holdout)))  # in a buffer of the same capacity
        stored = single_frames(specs, config.frames) if config.frames > 1 else specs
        notes = {key: array for key, array in extras.items() if key.startswith(NOTE)}
        extras = {key: array for key, array in extras.items() if key not in notes}
        if config.policy_version:
            extras = {**extras, POLICY_VERSION: np.zeros(1, np.int64)}
        observed = row_bytes(stored, extras) + np.dtype(bool).itemsize  # valid
        wide = row_bytes(stored, extras, WIDE_BYTES) if config.storage == "disk" else 0
        kept = AnnotationColumns.bytes_of({**annotations, **notes}, config.annotation_dtype)
        drawing = registry.load("sampler", config.sampler.kind).row_bytes(config.sampler)
        memory = (rows + held_out) * (observed - wide + config.derived_bytes) + rows * (kept + drawing)
        growing = chunk_rows * (2 if held_out else 1)
        memory += _CHUNK_COPIES * growing * wide
        return Forecast(memory, (rows + held_out) * observed if wide else 0, rows * kept + growing * observed)

    def state(self) -> State:
        held_out = {} if self.holdout is None else {"holdout": self.holdout.state()}
        return {
            "rows": self.rows.state(), "annotations": self.annotations.state(), "sampler": self.sampler.state(),
            "usage": dataclasses.asdict(self.usage), "is_filled": self._is_filled, **held_out,
        }  # fmt: skip

    def load_state(self, state: State) -> None:
        self.rows.load_state(state["rows"])
        self.annotations.load_state(state["annotations"])
        self.sampler.load_state(state["sampler"])
        self.usage = Usage(**state["usage"])
        self._is_filled = bool(state["is_filled"])
        if self.holdout is not None:
            self.holdout.load_state(state["holdout"])

    def _span(self, read: Transitions | Window) -> Span:
        if read not in self._spans:
            self._spans[read] = self._make_span(read)
        return self._spans[read]

    def _make_span(self, read: Transitions | Window) -> Span:
        """The rows of a sample; transitions may be cut short by the end of their episode, to one step at least."""
        history = self.config.frames - 1
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

    def _sample_episodes(self, read: Read, rng: np.random.Generator) -> Row:
        """Complete episodes (E, T): all of them in the order they ended, or ``count`` drawn with equal probability."""
        if not isinstance(read, Episodes):
            raise ConfigError(
                f"A replay buffer cannot serve the read {type(read).__name__}: it does not hand out rows once.",
                "Give the phase a rollout buffer, or choose an algorithm that reads Transitions, Window or Episodes.",
            )
        first_ids, lengths = self.rows.episodes.find()
        if len(first_ids) == 0:
            raise TrainingError(
                f"The buffer holds {count(len(self), 'row')}, but no complete episode.",
                "Collect longer before the update, or raise the buffer's capacity above the length of an episode.",
            )
        if read.count is not None:
            chosen = rng.integers(0, len(first_ids), read.count)
            first_ids, lengths = first_ids[chosen], lengths[chosen]
        self.usage.served += int(lengths.sum())
        self.usage.drawn, self.usage.newest = first_ids, self.rows.newest
        offsets = np.arange(lengths.max())
        is_real = offsets < lengths[:, None]
        ids = first_ids[:, None] + np.minimum(offsets, lengths[:, None] - 1) * self.num_envs
        batch = self._gather(ids, can_slide=False)
        for values in batch.values():
            values[~is_real] = 0
        batch["id"] = np.where(is_real, ids, -1)
        return batch

    def _too_few_rows(self) -> TooFewRowsError:
        more = "Collect more before the update, for example in a phase of its own with controller: random."
        if self.config.source is not None:
            more = f"There are no more data in '{self.config.source}'. Lower the buffer's min_rows."
        held, needed = count(len(self), "row"), self.config.min_rows
        what = f"The buffer holds {held} and is not sampled below {needed} (min_rows)."
        return TooFewRowsError(what, more, len(self))

    def _read(self, drawn: Draw, span: Span) -> Row:
        if span.is_fixed:
            ids = drawn.anchors[:, None] + span.offsets * self.num_envs  # (B, T)
            batch, batch["id"] = self._gather(ids, span.is_within_episode), ids
        else:
            extent = find_extent(self.rows, drawn.anchors, span)
            kept = np.clip(span.offsets, extent.first[:, None], extent.last[:, None])
            is_real = kept == span.offsets
            ids = drawn.anchors[:, None] + kept * self.num_envs
            batch = self._gather(ids, span.is_within_episode and bool(is_real.all()))
            batch["valid"] &= is_real
            batch["id"] = np.where(is_real, ids, -1)
        if drawn.importance is not None:
            batch["importance"] = np.repeat(drawn.importance[:, None], ids.shape[1], axis=1)
        return batch

    def _gather(self, ids: Array, can_slide: bool) -> Row:
        """All columns of these rows (B, T). Stacks ``can_slide`` if each sample is consecutive rows of one episode."""
        if not self._stacked:
            return {**self.rows.gather(ids), **self.annotations.gather(ids)}
        slots = self.rows.slots(ids)
        batch = self.rows.take_rows(slots, [key for key in self.rows.keys if key not in self._stacked])
        stack = slide_stacks if can_slide else gather_stacks
        batch |= stack(self.rows, slots, self._stacked, self.config.frames)
        return batch | self.annotations.gather(ids)


def _chunks(config: ReplayBuffer.Config, num_envs: int) -> tuple[int, int]:
    """Vector steps of a chunk, and how many chunks there are; one of them is being filled."""
    chunk_steps = max(1, min(config.chunk_rows, config.capacity // _FEWEST_CHUNKS) // num_envs)
    return chunk_steps, -(-config.capacity // (chunk_steps * num_envs)) + 1
