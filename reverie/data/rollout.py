"""The buffer of on-policy algorithms: what was collected since the last read, emptied by reading.

Adding a row only keeps a reference to it (vectors give fresh arrays each step); rows are put together when
they are read. An episode read takes finished episodes and leaves unfinished ones for the next time, so that
long episodes are not under-represented. Rows that the collector marks as not ``valid`` (an env that has given its
share of episodes and rests until the others have, too) are kept in their slots, but no episode read serves them.

Of extras named ``carry/*`` only those of a rollout's first row are kept, and served as (N, 1, ...): networks with
memory need to know what they remembered when the rollout began, and can work out the rest from its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.contracts import BufferTraits
from reverie.core.errors import ConfigError, TrainingError
from reverie.core.reads import Episodes, Read, Rollout
from reverie.core.types import CARRY, Array, Block, Row, State, WriteBack, is_last
from reverie.data.memory_forecast import ExpectedRows, Forecast
from reverie.data.rows import POLICY_VERSION, UNKNOWN_VERSION, row_bytes, stack_rows, with_version

if TYPE_CHECKING:
    from reverie.core.specs import Specs


class Spans(NamedTuple):
    """Where episodes lie among the kept rows."""

    finished: list[tuple[int, int, int]]
    """Env, first column and the column behind the last one."""
    unfinished: Array
    """Per env the first column of the episode that is still going on."""


class RolloutBuffer:
    """Keeps rows until they are read once."""

    traits = BufferTraits(serves=(Rollout, Episodes))

    class Config(ComponentConfig):
        """What is stored with each row."""

        kind: str = "rollout"
        """Keeps what was collected since the last read."""
        policy_version: bool = False
        """Whether each row also stores policy_version: the updates behind the weights that chose its action."""

    def __init__(self, config: Config, specs: Specs, num_envs: int) -> None:
        self.config = config
        self.specs = specs
        self.num_envs = num_envs
        self.clear()

    def clear(self) -> None:
        self._rows: list[Row] = []
        self._carry: Row = {}
        self._begin = np.zeros(self.num_envs, np.int64)  # per env the first column not served yet

    def add(self, row: Row) -> None:
        """Keep a row of every env; without a ``valid`` of its own all of it counts."""
        carry = {key: row[key] for key in row if key.startswith(CARRY)}
        if carry:
            self._carry = self._carry if self._rows else carry
            row = {key: row[key] for key in row if key not in carry}
        if self.config.policy_version and POLICY_VERSION not in row:
            row = {**row, POLICY_VERSION: np.full(self.num_envs, UNKNOWN_VERSION, np.int64)}
        self._rows.append(row if "valid" in row else {**row, "valid": np.ones(self.num_envs, bool)})

    def extend(self, block: Block) -> None:
        """Keep the rows (N, T, ...) of a block: the same as adding its vector steps one by one."""
        rows = with_version(block) if self.config.policy_version else block.rows
        for time in range(len(block)):
            self.add({key: values[:, time] for key, values in rows.items()})

    def can_sample(self, read: Read) -> bool:
        if isinstance(read, Rollout):
            return bool(self._rows)
        return isinstance(read, Episodes) and bool(self._rows) and bool(self._spans().finished)

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Row:
        """Everything as (N, T + 1) with ``arriving`` as the last column, or finished episodes as (E, T)."""
        if isinstance(read, Episodes) and read.count is not None:
            raise ConfigError(
                f"A rollout buffer serves all finished episodes, not a sample of {read.count}.",
                "Give the phase a replay buffer, or read Episodes() without a count.",
            )
        if not isinstance(read, self.traits.serves):
            raise ConfigError(
                f"A rollout buffer cannot serve the read {type(read).__name__}: it forgets what was read.",
                "Give the phase a replay buffer, or choose an algorithm that reads Rollout or Episodes.",
            )
        if not self.can_sample(read):
            raise TrainingError(
                f"There is nothing for the read {type(read).__name__} yet.",
                "Let the phase collect before the update: rows for Rollout, whole episodes for Episodes.",
            )
        return self._take_rollout(arriving) if isinstance(read, Rollout) else self._take_episodes()

    def write_back(self, values: WriteBack) -> None:
        raise TrainingError(
            f"The algorithm wrote back {', '.join(sorted(values.columns))}; rollouts keep no annotations.",
            "Return no write_back from this hook, or give the phase a buffer that keeps annotations.",
        )

    def metrics(self) -> dict[str, float]:
        """Nothing to tell: every row is read once, at once."""
        return {}

    @property
    def memory_bytes(self) -> int:
        """Bytes of what is kept at the moment."""
        rows = len(self._rows) * sum(array.nbytes for array in self._rows[0].values()) if self._rows else 0
        return rows + sum(array.nbytes for array in self._carry.values())

    @staticmethod
    def forecast(config: Config, expected: ExpectedRows) -> Forecast:
        """Memory between two reads, plus one copy while a batch is assembled."""
        carry = sum(array.nbytes // len(array) for key, array in expected.extras.items() if key.startswith(CARRY))
        others = {key: array for key, array in expected.extras.items() if not key.startswith(CARRY)}
        if config.policy_version:
            others[POLICY_VERSION] = np.zeros(1, np.int64)
        rows = 2 * expected.rollout_rows * (row_bytes(expected.specs, others) + np.dtype(bool).itemsize)
        return Forecast(rows + expected.num_envs * carry)

    def __len__(self) -> int:
        return len(self._rows) * self.num_envs

    @property
    def num_rows(self) -> int:
        """Rows stored now, over all envs."""
        return len(self._rows) * self.num_envs

    def state(self) -> State:
        rows = self._stack(axis=0) if self._rows else {}  # (T, N, ...)
        carry = {key: values.copy() for key, values in self._carry.items()}
        return {"length": len(self._rows), "rows": rows, "begin": self._begin.copy(), "carry": carry}

    def load_state(self, state: State) -> None:
        columns = {key: np.array(values) for key, values in state.get("rows", {}).items()}
        self._rows = [{key: values[t] for key, values in columns.items()} for t in range(state["length"])]
        self._begin = np.array(state["begin"], np.int64)
        self._carry = {key: np.array(values) for key, values in state.get("carry", {}).items()}

    def _stack(self, axis: int = 1, arriving: Row | None = None) -> Row:
        try:
            return stack_rows(self._rows if arriving is None else [*self._rows, arriving], axis)
        except KeyError as error:
            raise TrainingError(
                f"Some of the collected rows have no '{error.args[0]}'.",
                "Let the algorithm's act return the same extras at every call.",
            ) from error

    def _take_rollout(self, arriving: Row) -> Row:
        newest = {
            key: arriving[key] if key in arriving else np.zeros_like(array) for key, array in self._rows[-1].items()
        }
        batch = self._stack(arriving=newest | {"valid": np.ones(self.num_envs, bool)})
        # An episode read that came before may have taken some of these rows.
        batch["valid"] &= np.arange(len(self._rows) + 1) >= self._begin[:, None]
        if batch["valid"].all():
            del batch["valid"]
        batch |= {key: values[:, None] for key, values in self._carry.items()}
        self.clear()
        return batch

    def _take_episodes(self) -> Row:
        spans, rows = self._spans(), self._stack()
        batch = {key: _cut(values, spans.finished) for key, values in rows.items()}
        lengths = np.array([stop - start for _, start, stop in spans.finished])
        batch["valid"] = np.arange(lengths.max()) < lengths[:, None]
        self._keep_from(spans.unfinished)
        return batch

    def _keep_from(self, columns: Array) -> None:
        oldest = int(columns.min())
        self._rows = self._rows[oldest:]
        self._begin = columns - oldest

    def _spans(self) -> Spans:
        """Whole valid episodes only: one whose start was served or never seen is left out."""
        is_first, valid = (np.stack([row[key] for row in self._rows], axis=1) for key in ("is_first", "valid"))
        last = np.stack([is_last(row) for row in self._rows], axis=1)
        columns = np.arange(last.shape[1])
        start = np.maximum.accumulate(np.where(is_first, columns, -1), axis=1)
        whole = last & valid & (start >= self._begin[:, None])
        ends = [(int(env), int(column)) for column, env in np.argwhere(whole.T)]  # in the order they ended
        finished = [(env, int(start[env, column]), column + 1) for env, column in ends]
        going_on = (~last & valid)[:, -1] & (start[:, -1] >= self._begin)
        return Spans(finished, np.where(going_on, start[:, -1], last.shape[1]))


def _cut(values: Array, spans: list[tuple[int, int, int]]) -> Array:
    """Pieces of (N, T, ...) as (E, longest, ...), padded with zeros."""
    longest = max(stop - start for _, start, stop in spans)
    pieces = np.zeros((len(spans), longest, *values.shape[2:]), values.dtype)
    for piece, (env, start, stop) in zip(pieces, spans, strict=True):
        piece[: stop - start] = values[env, start:stop]
    return pieces
