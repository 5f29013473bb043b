"""The buffer of on-policy algorithms: the rows collected since the last read. Reading empties it.

Adding a row only keeps a reference to it, because vector envs return new arrays at every step. Rows are stacked when
they are read. An episode read takes the finished episodes and leaves the others for the next read, so that long
episodes are not under-represented. Rows that are not ``valid``, from an env that has finished its episodes and waits
for the others, are stored, but no episode read serves them.

Of the extras named ``carry/*`` only those of the first row are kept, and served as (N, 1, ...): a recurrent network
needs its hidden state at the start of the rollout and computes the others from the rows.
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


class EpisodeSpans(NamedTuple):
    """The columns of episodes in the stored rows (N, T)."""

    finished: list[tuple[int, int, int]]
    """Env, first column, and one past the last column."""
    unfinished: Array
    """First column (N,) of each env's current episode."""


class RolloutBuffer:
    """Keeps rows until they are read once."""

    traits = BufferTraits(serves=(Rollout, Episodes))

    class Config(ComponentConfig):
        """What is stored with each row."""

        kind: str = "rollout"
        """Keeps the rows collected since the last read."""
        policy_version: bool = False
        """Also store policy_version with each row: the number of updates of the weights that chose its action."""

    def __init__(self, config: Config, specs: Specs, num_envs: int) -> None:
        self.config = config
        self.specs = specs
        self.num_envs = num_envs
        self._all_valid = np.ones(num_envs, bool)
        self.clear()

    def clear(self) -> None:
        self._rows: list[Row] = []
        self._carry: Row = {}
        self._begin = np.zeros(self.num_envs, np.int64)  # first column of each env that was not served yet

    def add(self, row: Row) -> None:
        """Store a row of every env. All of them are valid unless the row has a ``valid``."""
        if not self._rows:
            self._carry = {key: row[key] for key in row if key.startswith(CARRY)}
        if self._carry:
            row = {key: row[key] for key in row if key not in self._carry}
        if self.config.policy_version and POLICY_VERSION not in row:
            row = {**row, POLICY_VERSION: np.full(self.num_envs, UNKNOWN_VERSION, np.int64)}
        self._rows.append(row if "valid" in row else {**row, "valid": self._all_valid})

    def extend(self, block: Block) -> None:
        """Store the rows (N, T, ...) of a block, with the same result as adding its vector steps one by one."""
        rows = with_version(block) if self.config.policy_version else block.rows
        for time in range(len(block)):
            self.add({key: values[:, time] for key, values in rows.items()})

    def can_sample(self, read: Read) -> bool:
        if isinstance(read, Rollout):
            return bool(self._rows)
        return isinstance(read, Episodes) and bool(self._rows) and bool(self._spans().finished)

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Row:
        """All rows as (N, T + 1) with ``arriving`` as the last column, or finished episodes as (E, T)."""
        if isinstance(read, Episodes) and read.count is not None:
            raise ConfigError(
                f"A rollout buffer serves all finished episodes, not a sample of {read.count}.",
                "Use a replay buffer in this phase, or read Episodes() without a count.",
            )
        if not isinstance(read, self.traits.serves):
            raise ConfigError(
                f"A rollout buffer cannot serve the read {type(read).__name__}: it serves each row once.",
                "Use a replay buffer in this phase, or an algorithm that reads Rollout or Episodes.",
            )
        if not self.can_sample(read):
            raise TrainingError(
                f"The buffer has no rows for the read {type(read).__name__}.",
                "Collect before the update: rows for Rollout, complete episodes for Episodes.",
            )
        return self._take_rollout(arriving) if isinstance(read, Rollout) else self._take_episodes()

    def write_back(self, values: WriteBack) -> None:
        raise TrainingError(
            f"The algorithm wrote back {', '.join(sorted(values.columns))}, but a rollout buffer has no annotations.",
            "Return no write_back from this hook, or use a replay buffer in this phase.",
        )

    def metrics(self) -> dict[str, float]:
        """None: every row is read exactly once."""
        return {}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the stored rows."""
        rows = len(self._rows) * sum(array.nbytes for array in self._rows[0].values()) if self._rows else 0
        return rows + sum(array.nbytes for array in self._carry.values())

    @staticmethod
    def forecast(config: Config, expected: ExpectedRows) -> Forecast:
        """Memory of the rows between two reads, and of the batch that is stacked from them."""
        carry = sum(array.nbytes // len(array) for key, array in expected.extras.items() if key.startswith(CARRY))
        others = {key: array for key, array in expected.extras.items() if not key.startswith(CARRY)}
        if config.policy_version:
            others[POLICY_VERSION] = np.zeros(1, np.int64)
        rows = 2 * expected.rollout_rows * (row_bytes(expected.specs, others) + np.dtype(bool).itemsize)
        return Forecast(rows + expected.num_envs * carry)

    def __len__(self) -> int:
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
                f"Some collected rows have no column '{error.args[0]}'.",
                "Return the same extras from every call of the algorithm's act.",
            ) from error

    def _take_rollout(self, arriving: Row) -> Row:
        newest = {
            key: arriving[key] if key in arriving else np.zeros_like(array) for key, array in self._rows[-1].items()
        }
        batch = self._stack(arriving=newest | {"valid": np.ones(self.num_envs, bool)})
        # An earlier read of episodes may have served some of these rows.
        batch["valid"] &= np.arange(len(self._rows) + 1) >= self._begin[:, None]
        if batch["valid"].all():
            del batch["valid"]
        batch |= {key: values[:, None] for key, values in self._carry.items()}
        self.clear()
        return batch

    def _take_episodes(self) -> Row:
        spans, rows = self._spans(), self._stack()
        batch = {key: _pad_episodes(values, spans.finished) for key, values in rows.items()}
        lengths = np.array([stop - start for _, start, stop in spans.finished])
        batch["valid"] = np.arange(lengths.max()) < lengths[:, None]
        self._keep_from(spans.unfinished)
        return batch

    def _keep_from(self, columns: Array) -> None:
        oldest = int(columns.min())
        self._rows = self._rows[oldest:]
        self._begin = columns - oldest

    def _spans(self) -> EpisodeSpans:
        """Only complete, valid episodes: without those whose first row was served before or never stored."""
        is_first, valid = (np.stack([row[key] for row in self._rows], axis=1) for key in ("is_first", "valid"))
        last = np.stack([is_last(row) for row in self._rows], axis=1)
        columns = np.arange(last.shape[1])
        start = np.maximum.accumulate(np.where(is_first, columns, -1), axis=1)
        is_end = last & valid & (start >= self._begin[:, None])
        ends = [(int(env), int(column)) for column, env in np.argwhere(is_end.T)]  # in the order they ended
        finished = [(env, int(start[env, column]), column + 1) for env, column in ends]
        is_unfinished = (~last & valid)[:, -1] & (start[:, -1] >= self._begin)
        return EpisodeSpans(finished, np.where(is_unfinished, start[:, -1], last.shape[1]))


def _pad_episodes(values: Array, spans: list[tuple[int, int, int]]) -> Array:
    """Episodes out of a column (N, T, ...) as (E, longest, ...), padded with zeros."""
    longest = max(stop - start for _, start, stop in spans)
    padded = np.zeros((len(spans), longest, *values.shape[2:]), values.dtype)
    for episode, (env, start, stop) in zip(padded, spans, strict=True):
        episode[: stop - start] = values[env, start:stop]
    return padded
