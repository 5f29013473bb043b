"""Interfaces between the parts of a run: protocols and declared traits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from reverie.core.reads import Read
from reverie.core.types import (
    ACTION_KINDS,
    ActionKind,
    Array,
    Batch,
    Block,
    Carry,
    Clock,
    Inspection,
    Mode,
    Observed,
    Row,
    State,
    WriteBack,
)

if TYPE_CHECKING:
    from reverie.core.specs import Specs  # imports gymnasium, which commands without envs do without


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an algorithm needs and can do. Declared on its class: ``traits = Traits(...)``."""

    hooks: tuple[str, ...] = ("update",)
    """Names of its update methods, ``update`` or ``update_<word>``, which phases call."""
    actions: tuple[ActionKind, ...] = ACTION_KINDS
    """Kinds of actions that it can choose."""
    unbounded_actions: bool = True
    """Whether continuous actions may lack finite bounds."""
    on_policy: bool = False
    """Learns only from actions of its current policy: not from a phase's controller, nor from replay."""
    recurrent: bool = False
    """Can train networks with a hidden state."""
    microbatches: bool = False
    """Can split a batch to save memory (``backend.microbatches``)."""
    priorities: bool = False
    """Its updates write priorities back, which a prioritised sampler needs."""
    bfloat16: bool = False
    """Can compute in bfloat16 (``backend.precision``)."""
    numpy_engine: bool = False
    """Its updates of plain networks also exist in numpy (``backend.engine``)."""
    observes: bool = False
    """Its ``act`` knows ``Mode.OBSERVE``: it updates the carry, returns the extras and skips planning. Other algorithms
    get ``Mode.COLLECT`` where a controller chooses the actions."""
    prepares: bool = False
    """Has the method of :class:`Prepares`, which is called when a phase starts."""
    renamed_weights: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Beginnings of names in the policy states of earlier versions, and what replaced them. For ``--init-from``."""

    renamed_metrics: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Metrics of updates in earlier versions, and what they are called now. For runs that those versions began."""

    def current_name(self, weight: str) -> str:
        """Today's name of a weight in a policy state."""
        for old, new in self.renamed_weights.items():
            if weight.startswith(old):
                return new + weight.removeprefix(old)
        return weight

    def current_metric(self, name: str) -> str:
        """Today's name of a metric such as ``update/<metric>``."""
        hook, slash, metric = name.rpartition("/")
        return f"{hook}{slash}{self.renamed_metrics.get(metric, metric)}"


@dataclass(frozen=True, kw_only=True)
class BufferTraits:
    """What a buffer can do. Declared on its class: ``traits = BufferTraits(...)``."""

    serves: tuple[type[Read], ...] = (Read,)
    """The kinds of reads that it answers."""
    replays: bool = False
    """Serves rows more than once, so also rows of older policies, which on-policy algorithms cannot use."""


@runtime_checkable
class Stateful(Protocol):
    """Continues bit for bit when a fresh copy gets ``state()`` through ``load_state``."""

    def state(self) -> State: ...

    def load_state(self, state: State) -> None: ...


class Algorithm(Stateful, Protocol):
    """An agent and how it learns. Built as ``Algorithm(config, specs, rng, backend)``; ``backend`` may be left out.

    * ``reads`` maps each hook to what it reads from the buffer. A hook is a method ``hook(batch, clock, rng) ->
      Update``; whole inner loops run inside one call.
    * ``act`` gets the arriving rows (N, ...) with ``is_first`` and ``previous_action``. It also runs in phases with a
      controller, and may change the algorithm's state.
    * The carry has one entry per env. It comes back from a checkpoint as numpy arrays.
    * Hyperparameters are read from ``self.config`` at each call: a phase may replace it.

    Optional protocols are below: :class:`HasHeldOutLoss`, :class:`KnowsExtras`, :class:`WorldModel`,
    :class:`Inspectable`, :class:`Prepares`.
    """

    traits: ClassVar[Traits]
    config: Any
    reads: Mapping[str, Read]

    def initial_carry(self, num_envs: int) -> Carry: ...

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]: ...

    def policy_state(self) -> State:
        """What acting needs of ``state()``: no optimisers."""
        ...

    def load_policy_state(self, state: State) -> None: ...


@runtime_checkable
class HasHeldOutLoss(Protocol):
    """An algorithm with losses for data that were kept from training; the hook ``validate`` calls it."""

    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> Mapping[str, float]:
        """Losses of the batch as ``hook`` would compute them. Changes nothing."""
        ...


@runtime_checkable
class KnowsExtras(Protocol):
    """An algorithm class that knows the extras of ``act`` before it is built, for the forecast of a buffer's size."""

    @staticmethod
    def extras_of(config: Any) -> Row:
        """Examples (1, ...) of which only shape and dtype count."""
        ...


@runtime_checkable
class WorldModel(Protocol):
    """An algorithm with a model of the env. Evaluations, ``reverie foresee`` and reports compare it with reality.

    Latents are numpy arrays by name. These methods change nothing, and neither does ``act`` of such an algorithm.
    """

    def initial(self, num_envs: int) -> Row:
        """The latents (N, ...) before an episode."""
        ...

    def observe(self, rows: Batch, rng: np.random.Generator) -> Observed:
        """The latents (B, T, ...) of rows (B, T) that begin with an episode and have ``previous_action``."""
        ...

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        """The latents (N, H, ...) after each of the actions (N, H, ...), from ``latents`` (N, ...)."""
        ...

    def predict(self, latents: Row) -> Row:
        """``reward``, ``continuation`` (the probability that the episode goes on) and perhaps ``value``, (...) each."""
        ...


@runtime_checkable
class Decodes(Protocol):
    """A world model with a decoder. It is called only where observations are shown."""

    def decode(self, latents: Row) -> Row:
        """Observations (...) in the units of the env."""
        ...


@runtime_checkable
class Inspectable(Protocol):
    """An algorithm that shows what it computes for given rows."""

    def inspect(
        self, rows: Batch, clock: Clock, rng: np.random.Generator, *, decode: bool = False, dream_steps: int = 0
    ) -> Inspection:
        """Rows (B, T) begin with an episode and have ``previous_action``. All in numpy; changes nothing."""
        ...


@runtime_checkable
class HasActionNetwork(Protocol):
    """An algorithm that acts with one network, which can be exported without the rest of Reverie."""

    def action_network(self) -> Any:
        """A torch module from normalised observations {key: (B, ...)} to the actions that :meth:`Algorithm.act` takes
        in evaluations. None if these depend on a hidden state."""
        ...


class Prepares(Protocol):
    """An algorithm with the trait ``prepares``. It reads the data when a phase starts, for example to find the range of
    the actions."""

    def prepare(self, buffers: Mapping[str, Buffer]) -> None:
        """Called when a phase starts, after stored data were loaded. Not called again after a resume."""
        ...


class Recurrent:
    """Base of networks with a hidden state. An algorithm needs the trait ``recurrent`` to train them."""


@runtime_checkable
class KeepsObservations(Protocol):
    """A wrapper class that says whether it leaves observations as they are; others may change them."""

    keeps_observations: bool


@runtime_checkable
class NeedsPixels(Protocol):
    """A wrapper class that says whether it needs an env that renders pictures; others do not."""

    needs_pixels: bool


class Vector(Stateful, Protocol):
    """Several copies of one env, stepped together. Both calls return the arriving rows, shape (N, ...)."""

    num_envs: int
    specs: Specs
    crashes: int

    def reset(self) -> Row: ...

    def step(self, action: Array, active: Array | None = None) -> Row:
        """Step the envs, or only the ``active`` ones (N,). The others, due for a reset, rest with a blank row."""
        ...

    def check_restored(self, now: Row) -> int:
        """After ``load_state``: truncate episodes whose newest row is not that of ``now``. Returns their number."""
        ...

    def close(self) -> None: ...


class Buffer(Stateful, Protocol):
    """Stores rows and serves reads."""

    traits: ClassVar[BufferTraits]

    def add(self, row: Row) -> None:
        """Store one completed row of every env: observation, action, extras."""
        ...

    def extend(self, block: Block) -> None:
        """Store the rows of a block, with the same result as adding its moments one by one."""
        ...

    def __len__(self) -> int:
        """Rows stored now, over all envs."""
        ...

    def can_sample(self, read: Read) -> bool: ...

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Batch:
        """Serve a read. ``arriving`` is the newest row, which the agent has not acted on yet."""
        ...

    def write_back(self, values: WriteBack) -> None: ...

    def metrics(self) -> dict[str, float]:
        """Usage, such as fill and age of samples. Changes nothing."""
        ...

    def clear(self) -> None: ...


@runtime_checkable
class HasSource(Protocol):
    """A buffer that can load stored episodes."""

    def fill(self) -> Iterator[Row]:
        """Load what its source holds, and give the loaded rows (T, ...) episode by episode."""
        ...


class Controller(Protocol):
    """Overrides the action of an algorithm during a phase (random prefill, a script)."""

    def act(self, now: Row, rng: np.random.Generator) -> Array: ...


class Actor(Protocol):
    """Collects rows with a given version of the policy, in this process or in another."""

    def collect(self, policy_state: State | None, version: int, rows: int) -> Block:
        """``rows`` rows over all envs. Without ``policy_state`` the actor acts with the weights it already has."""
        ...
