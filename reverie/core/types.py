"""Values that parts exchange.

A *row* is what one env shows at one moment and the action that the agent chose. In code, a row of a vector of N envs is
a flat dict of arrays with leading axis N:

==================  =====================================================================
``obs``             the observation; for Dict and Tuple spaces one key per leaf (``obs/camera``, ``obs/0``)
``reward``          float32, arrived together with the observation
``is_first``        bool, the row starts an episode (its reward is 0)
``terminated``      bool, the episode ended here in an absorbing state: nothing to bootstrap from
``truncated``       bool, the episode was cut off here: values bootstrap through it
``action``          what the agent chose after this observation; unused in the final row of an episode
``log/*``           numbers from the env's ``info`` (regret, success) that no agent sees
*extras*            what the algorithm stores with the row
``note/*``          extras that updates may replace later by a write-back (latents)
``carry/*``         extras kept only for the first row of a rollout: the carry at its start
``act_metrics``     numbers about acting (the value of a plan): recorded, never stored
==================  =====================================================================

A *batch* is the same dict with axes ``(B, T, ...)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Row = dict[str, Array]
Batch = Mapping[str, Any]
Carry = dict[str, Any]
State = dict[str, Any]
"""What ``state()`` returns: nested dicts whose leaves are arrays, numbers, strings, bools, None, lists of them, or
:class:`Sealed` arrays."""

ActionKind = Literal["discrete", "continuous", "multi_discrete", "multi_binary", "mixed"]
ACTION_KINDS: tuple[ActionKind, ...] = get_args(ActionKind)

CARRY = "carry/"
NOTE = "note/"
"""Begins the names of extras that updates may replace."""
ACT_METRICS = "act_metrics"
"""The extra with numbers about acting: a structured array (N,). They are recorded as ``collect/<name>``, not stored."""
ARRIVING = ("reward", "is_first", "terminated", "truncated")


class Mode(StrEnum):
    """What ``act`` is called for."""

    COLLECT = "collect"
    """Explore: the rows will be learned from."""
    EVALUATE = "evaluate"
    """Choose the best action."""
    OBSERVE = "observe"
    """Update the carry and return the extras; a controller chooses the action and the returned one is ignored."""


class Clock(NamedTuple):
    """How far the run is. Schedules are functions of it."""

    env_steps: int = 0
    updates: int = 0
    cycles: int = 0
    horizon_steps: int = 0


@dataclass(frozen=True)
class WriteBack:
    """Values that an update returns to the buffer: ``columns[name][i]`` belongs to the row ``ids[i]``."""

    ids: Array
    columns: Mapping[str, Array]
    priority_ids: Array | None = None
    """The rows of the column ``priority``, if not ``ids``: a sample is drawn by its anchor row."""


@dataclass(frozen=True)
class Update:
    """Result of a hook: scalar metrics, the number of gradient steps, values for the buffer."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    write_back: WriteBack | None = None


@dataclass(frozen=True)
class Block:
    """Rows (N, T, ...) of N envs in order of time, collected with one version of a policy."""

    rows: Row
    """Completed rows: what arrived, the actions, the extras. ``valid`` (N, T) is False where an env rested."""
    arriving: Row
    """The rows (N, ...) that arrived last and were not acted on yet, with ``previous_action``."""
    policy_version: int = 0
    """Updates behind the weights that acted."""

    def __len__(self) -> int:
        """T: rows of each env."""
        return int(self.rows["is_first"].shape[1])

    def moments(self) -> Iterator[Row]:
        """The rows (N, ...) of one moment after the other, as ``Buffer.add`` takes them."""
        for time in range(len(self)):
            yield {key: values[:, time] for key, values in self.rows.items()}


@dataclass(frozen=True)
class Observed:
    """Result of observing rows (B, T) with a world model."""

    latents: Row
    """Arrays (B, T, ...) by name: the state of the model after each row."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """The model's mean losses on these rows."""


@dataclass(frozen=True)
class Inspection:
    """What an agent computes for rows (B, T), in numpy. What it does not have is None or empty."""

    policy: Row
    """The action distribution: ``mode`` (B, T, *shape); ``probs`` (B, T, sum of classes) of discrete actions; ``std``
    (B, T, A) of continuous ones, before any tanh; ``q_values`` (B, T, actions)."""
    value: Array | None = None
    """(B, T)."""
    latents: Row = field(default_factory=dict)
    """(B, T, ...) by name."""
    decoded: Row = field(default_factory=dict)
    """Observations (B, T, ...) that the latents stand for; only on request."""
    dream: Row = field(default_factory=dict)
    """Imagination from the last row with the policy's actions, (B, H, ...): ``action``, predictions, ``latent/<name>``
    and, on request, decoded observations."""


class Sealed:
    """Arrays in a state that never change again. Checkpoints write them once and share the file."""

    def __init__(self, name: str, arrays: Row) -> None:
        self.name = name
        self._arrays = arrays

    @property
    def arrays(self) -> Row:
        """The arrays by name. Subclasses with files read them again at each access."""
        return self._arrays

    @cached_property
    def digest(self) -> str:
        """A hash of the content."""
        return digest_arrays(self.arrays)


def digest_arrays(arrays: Mapping[str, Array]) -> str:
    """A hash of names, types, shapes and content."""
    total = blake2b(digest_size=16)
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        total.update(f"{key} {array.dtype} {array.shape}".encode())
        total.update(array.data)
    return total.hexdigest()


def observation_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys of a row or batch that hold observations, in order."""
    return [key for key in row if key == "obs" or key.startswith("obs/")]


def is_last(row: Mapping[str, Any]) -> Any:
    """Where an episode ended, for arrays and tensors alike."""
    return row["terminated"] | row["truncated"]


def random_array(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal float32 numbers: the noise that enters networks."""
    return rng.standard_normal(shape, dtype=np.float32)
