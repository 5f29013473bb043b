"""What the parts promise each other. Nothing here is inherited for behaviour, except a few defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from reverie.core.reads import Read
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Block, Carry, Clock, Mode, Row, State, WriteBack


@runtime_checkable
class Stateful(Protocol):
    """Has memory: what ``state`` returns, given to ``load_state`` of a fresh one, continues bit for bit."""

    def state(self) -> State: ...

    def load_state(self, state: State) -> None: ...


class Algorithm(Stateful, Protocol):
    """An agent and how it learns. Built as ``Algorithm(config, specs, rng)``.

    * ``reads`` maps each hook (``update`` or ``update_<word>``) to what it wants from the buffer; a hook is a
      method ``hook(batch, clock, rng) -> Update``. Whole inner loops live inside one call.
    * ``act`` gets the arriving row with ``is_first`` and ``previous_action``. It always runs, also in phases with a
      controller, and may change the algorithm's state.
    * Optional: ``observes = True`` if ``act`` knows ``Mode.OBSERVE``: it updates the carry, returns the extras and
      skips what only chooses the action, such as planning. Algorithms without it get ``Mode.COLLECT`` there.
    * ``carry`` is the memory within an episode, one entry per env. It comes back from a checkpoint as numpy.
    * Hyperparameters are read from ``self.config`` at each call: a phase may replace it.
    * Optional: ``is_on_policy = True`` if it must learn from actions that it chose itself; then no rows of a phase's
      controller may reach its updates.
    * Optional: ``held_out_metrics(hook, batch, clock, rng) -> metrics`` judges a batch that was kept from training, as
      the hook would learn from it, and changes nothing.
    * Optional: ``extras_of(config) -> Row``, a static method that gives examples (1, ...) of what ``act`` keeps with
      each row, so that the memory of buffers can be foretold before anything is built.
    * Optional, for world models: ``foresee(rows, starts, steps, rng) -> Foreseen`` follows rows (B, T) that begin with
      episodes and have ``previous_action``, and dreams on from N of them, ``starts`` (N, 2) of env and time. It
      changes nothing, and neither does ``act`` of such an algorithm.
    """

    config: Any
    reads: Mapping[str, Read]

    def initial_carry(self, num_envs: int) -> Carry: ...

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]: ...

    def policy_state(self) -> State:
        """The part of ``state()`` that acting needs: no optimisers."""
        ...

    def load_policy_state(self, state: State) -> None: ...


class Vector(Stateful, Protocol):
    """Several copies of one env, stepped together. Both calls return the arriving rows, shape (N, ...)."""

    num_envs: int
    specs: Specs
    crashes: int

    def reset(self) -> Row: ...

    def step(self, action: Array, active: Array | None = None) -> Row:
        """Step the envs, or only the ``active`` ones (N,): the others, all due for a reset, rest with a blank row."""
        ...

    def expect(self, now: Row) -> int:
        """After a restore: cut episodes that do not show ``now``, the rows the agent saw last; how many those are."""
        ...

    def close(self) -> None: ...


class Buffer(Stateful, Protocol):
    """Keeps rows and serves reads.

    Optional: ``serves``, a tuple of the kinds of reads that it can answer, so that a run with another is refused before
    it begins; a subclass that answers more names them, too.
    """

    @property
    def num_rows(self) -> int:
        """Rows stored now, over all envs."""
        ...

    def add(self, row: Row) -> None:
        """Store one completed row of every env: what arrived, the action and the extras."""
        ...

    def extend(self, block: Block) -> None:
        """Store the rows of a block: the same as adding its moments one by one."""
        ...

    def __len__(self) -> int:
        """Rows stored now, over all envs."""
        ...

    def can_sample(self, read: Read) -> bool: ...

    def sample(self, read: Read, arriving: Row, rng: np.random.Generator) -> Batch:
        """Serve a read; ``arriving`` is the newest row, not acted on yet."""
        ...

    def write_back(self, values: WriteBack) -> None: ...

    def metrics(self) -> dict[str, float]:
        """How it is being used; asking changes nothing."""
        ...

    def clear(self) -> None: ...


@runtime_checkable
class Prepares(Protocol):
    """An algorithm that looks at the data when a phase starts, for example to find the range of the actions."""

    def prepare(self, buffers: Mapping[str, Buffer]) -> None:
        """Called once when a phase starts, after stored data were loaded; not again after a resume."""
        ...


class Controller(Protocol):
    """Overrides the action of an algorithm during a phase (random prefill, a script)."""

    def act(self, now: Row, rng: np.random.Generator) -> Array: ...


class Actor(Protocol):
    """Collects rows with a given version of the policy, in this process or in another."""

    def collect(self, policy_state: State | None, version: int, rows: int) -> Block:
        """``rows`` rows over all envs. Without ``policy_state`` the actor acts with the weights it already has."""
        ...
