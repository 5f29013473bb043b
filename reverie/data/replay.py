"""The buffer of off-policy algorithms: the newest rows of every env, sampled again and again.

A sample is consecutive rows of one env. Transitions stay within an episode and never cross a gap, where an episode was
abandoned without a final row. Windows continue across episode ends unless they are padded there. No sample crosses the
write head. Final rows are stored like all others, so nothing is reconstructed from ``info``.

A sampler (:mod:`reverie.data.sampler`) chooses the samples.

Of frame stacks only the newest frame is stored (:mod:`reverie.data.frame_stacks`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from reverie.core import registry
from reverie.core.contracts import BufferTraits
from reverie.core.errors import ConfigError, TooFewRowsError, TrainingError
from reverie.core.reads import Episodes, Read, Transitions, Window
from reverie.core.types import NOTE, Array, Block, Row, State, WriteBack
from reverie.core.wording import count
from reverie.data.annotations import AnnotationColumns
from reverie.data.columns import ObservedColumns
from reverie.data.episodes import episodes_to_rows
from reverie.data.file_columns import ChunkStore
from reverie.data.frame_stacks import gather_stacks, single_frames, slide_stacks, take_newest_frame
from reverie.data.hindsight import Hindsight, check_hindsight
from reverie.data.replay_config import ReplayConfig, forecast_replay
from reverie.data.rows import POLICY_VERSION, UNKNOWN_VERSION, with_version
from reverie.data.sample_spans import Span, find_extent, has_legal, legal_blocks
from reverie.data.sampler import Draw, Sampler, UniformSampler

if TYPE_CHECKING:
    from reverie.core.specs import Specs
    from reverie.envs.goals import Goals


@dataclasses.dataclass
class Usage:
    """How much a buffer was used since the run began."""

    added: int = 0
    """Rows over all envs."""
    served: int = 0
    """Rows in all batches. A transition counts as one row."""
    drawn: Array = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """Anchors of the last batch."""
    newest: int = 0
    """The newest vector step when the last batch was drawn."""

    def age(self, num_envs: int) -> float:
        """Mean number of rows, over all envs, that are newer than a row of the last batch."""
        return float((self.newest - self.drawn // num_envs).mean()) * num_envs if len(self.drawn) else 0.0


class ReplayBuffer:
    """Stores the newest rows and serves transitions, windows and whole episodes."""

    traits = BufferTraits(serves=(Transitions, Window, Episodes), replays=True)

    Config = ReplayConfig
    forecast = staticmethod(forecast_replay)

    def __init__(
        self,
        config: ReplayConfig,
        specs: Specs,
        num_envs: int,
        store: ChunkStore | None = None,
        goals: Goals | None = None,
    ) -> None:
        """``store`` receives the chunks if the config's storage is disk. ``goals`` are needed for hindsight."""
        self.config = config
        self.specs = specs
        self.num_envs = num_envs
        self._stored_specs = single_frames(specs, config.frames) if config.frames > 1 else specs
        self._stacked = [
            key for key, spec in self._stored_specs.observations.items() if spec != specs.observations[key]
        ]
        self.rows = ObservedColumns(num_envs, *config.chunks(num_envs), store if config.storage == "disk" else None)
        self.annotations = AnnotationColumns(self.rows, config.annotation_dtype)
        self.sampler: Sampler = registry.load("sampler", config.sampler.kind)(config.sampler, self.rows)
        self.hindsight: Hindsight | None = None
        if config.hindsight is not None:
            assert goals is not None, "hindsight needs the goals of the env"
            self.hindsight = Hindsight(config.hindsight, goals, self.rows)
        self.usage = Usage()
        self._spans: dict[Read, Span] = {}
        self.holdout: ReplayBuffer | None = None
        """A second buffer with the held-out episodes."""
        if config.holdout:
            changes = {"holdout": 0.0, "source": None, "sampler": UniformSampler.Config(), "min_rows": 1}
            self.holdout = ReplayBuffer(config.model_copy(update=changes), specs, num_envs, store, goals)
        self._is_filled = False

    def __len__(self) -> int:
        return len(self.rows)

    def num_samples(self, read: Transitions | Window) -> int:
        """Number of legal samples: what one pass of the shuffled sampler covers."""
        return sum(map(len, legal_blocks(self.rows, self._span(read))))

    def add(self, row: Row, steps: int = 1) -> None:
        """Store a row of every env, or the rows (steps * N, ...) of several vector steps within one chunk.

        Rows are valid unless they come with a ``valid``. No sample starts at an invalid row. Extras named ``note/*``
        become annotations, which updates can overwrite.
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
            self.annotations.reset(dropped)
        if notes:
            self.annotations.write(self.rows.end * self.num_envs - size + np.arange(size), notes)

    def extend(self, block: Block) -> None:
        """Store the rows (N, T, ...) of a block, with the same result as adding its vector steps one by one."""
        rows = with_version(block) if self.config.policy_version else block.rows
        columns = {key: values.swapaxes(0, 1) for key, values in rows.items()}  # (T, N, ...)
        begin = 0
        while begin < len(block):
            end = min(len(block), begin + self.rows.free_steps)
            pieces = {key: values[begin:end] for key, values in columns.items()}
            self.add({key: piece.reshape(-1, *piece.shape[2:]) for key, piece in pieces.items()}, end - begin)
            begin = end

    def fill(self) -> Iterator[Row]:
        """Add the episodes of the source, once in a run. Yields the rows that are not held out as they are added."""
        if self.config.source is None or self._is_filled:
            return
        from reverie.data.source import read_episodes

        self._is_filled = True
        source, holdout = self.config.source, self.config.holdout
        if self.holdout is not None:
            for row in episodes_to_rows(read_episodes(source, self.specs, holdout, held_out=True), self.num_envs):
                self.holdout.add(row)
        for row in episodes_to_rows(read_episodes(source, self.specs, holdout, held_out=False), self.num_envs):
            self.add(row)
            yield row
            if self.rows.oldest > 0:
                raise ConfigError(
                    f"The data in '{source}' do not fit into the buffer's capacity of {self.config.capacity:,} rows.",
                    f"Set the buffer's capacity to the number of rows that `reverie data info {source}` shows.",
                )

    def can_sample(self, read: Read) -> bool:
        if len(self) < self.config.min_rows:
            return False
        if isinstance(read, Episodes):
            return len(self.rows.episodes.find()[0]) > 0
        return isinstance(read, (Transitions, Window)) and has_legal(self.rows, self._span(read))

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Row:
        """Rows (B, T) with their ``id``. Padding repeats the nearest row, with ``valid`` False and the id -1.

        Whole episodes are padded with zeros instead, as in a rollout buffer. With priorities, every row of a sample has
        its ``importance``. ``arriving`` is not used, because it has no action yet.
        """
        if len(self) < self.config.min_rows:
            raise self._too_few_rows()
        if self.hindsight is not None:
            check_hindsight("", read)
        if not isinstance(read, (Transitions, Window)):
            return self._sample_episodes(read, rng)
        span = self._span(read)
        drawn = self.sampler.draw(read.batch_size, span, rng)
        self.usage.served += read.rows
        self.usage.drawn, self.usage.newest = drawn.anchors, self.rows.newest
        batch = self._read(drawn, span)
        if self.hindsight is not None:
            self.hindsight.relabel(batch, rng)
        return batch

    def write_back(self, values: WriteBack) -> None:
        """Set annotations of rows. A column ``priority`` goes to the sampler if it uses priorities."""
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
        """Bytes of the stored rows with annotations, sampler and held-out rows."""
        sampler = self.sampler.row_bytes(self.config.sampler)
        held_out = 0 if self.holdout is None else self.holdout.memory_bytes
        row = self.rows.row_bytes + self.config.derived_bytes + self.annotations.row_bytes + sampler
        return len(self) * row + held_out

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
        """The span of a read. An episode's end may shorten n-step transitions, to one step at least."""
        history = self.config.frames - 1
        if isinstance(read, Transitions):
            return Span(0, read.n, read.n - 1, history=history)
        if read.pad_before + read.pad_after >= read.length:
            raise ConfigError(
                f"A window of {read.length} rows cannot have {read.pad_before} + {read.pad_after} rows of padding.",
                "Read longer windows, or lower pad_before or pad_after.",
            )
        is_padded = read.pad_before + read.pad_after > 0
        after = read.length + read.context - 1 - read.pad_before
        return Span(read.pad_before, after, read.pad_after, is_padded, read.context, history)

    def _sample_episodes(self, read: Read, rng: np.random.Generator) -> Row:
        """Complete episodes (E, T): all of them in the order they ended, or ``count`` drawn with equal probability."""
        if not isinstance(read, Episodes):
            raise ConfigError(
                f"A replay buffer cannot serve the read {type(read).__name__}: it serves rows more than once.",
                "Use a rollout buffer in this phase, or an algorithm that reads Transitions, Window or Episodes.",
            )
        first_ids, lengths = self.rows.episodes.find()
        if len(first_ids) == 0:
            raise TrainingError(
                f"The buffer holds {count(len(self), 'row')}, but no complete episode.",
                "Collect more before the update, or raise the buffer's capacity above the length of an episode.",
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
        advice = "Collect more before the update, for example in an earlier phase with controller: random."
        if self.config.source is not None:
            advice = f"'{self.config.source}' has no more rows. Lower the buffer's min_rows."
        what = f"The buffer holds {count(len(self), 'row')}, but sampling needs {self.config.min_rows:,} (min_rows)."
        return TooFewRowsError(what, advice, len(self))

    def _read(self, drawn: Draw, span: Span) -> Row:
        if span.is_fixed:
            ids = drawn.anchors[:, None] + span.offsets * self.num_envs  # (B, T)
            batch, batch["id"] = self._gather(ids, span.is_within_episode), ids
        else:
            extent = find_extent(self.rows, drawn.anchors, span)
            offsets = np.clip(span.offsets, extent.first[:, None], extent.last[:, None])
            is_real = offsets == span.offsets
            ids = drawn.anchors[:, None] + offsets * self.num_envs
            batch = self._gather(ids, span.is_within_episode and bool(is_real.all()))
            batch["valid"] &= is_real
            batch["id"] = np.where(is_real, ids, -1)
        if drawn.importance is not None:
            batch["importance"] = np.repeat(drawn.importance[:, None], ids.shape[1], axis=1)
        return batch

    def _gather(self, ids: Array, can_slide: bool) -> Row:
        """All columns of these rows (B, T). ``can_slide`` if each sample is consecutive rows of one episode."""
        if not self._stacked:
            return {**self.rows.gather(ids), **self.annotations.gather(ids)}
        slots = self.rows.slots(ids)
        batch = self.rows.take_rows(slots, [key for key in self.rows.keys if key not in self._stacked])
        stack = slide_stacks if can_slide else gather_stacks
        batch |= stack(self.rows, slots, self._stacked, self.config.frames)
        return batch | self.annotations.gather(ids)
