"""What update hooks read from buffers: an algorithm declares ``reads = {hook: read}``, the buffer serves them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Read:
    """Base of all reads; ``rows`` is the number of rows that one read replays (None: all that there are)."""

    @property
    def rows(self) -> int | None:
        return None


@dataclass(frozen=True)
class Rollout(Read):
    """Everything collected since the last read, as ``(N, T + 1)``: the agent has not acted on row T yet."""


@dataclass(frozen=True)
class Episodes(Read):
    """Whole episodes as ``(E, T)``, padded with zeros; ``valid`` marks the real rows.

    A rollout buffer serves the episodes that finished since the last read. A replay buffer serves all complete episodes
    it holds, in the order they ended, or ``count`` of them, drawn independently with equal probability.
    """

    count: int | None = None


@dataclass(frozen=True)
class Transitions(Read):
    """``batch_size`` transitions over ``n`` steps, as ``(B, n + 1)`` rows."""

    batch_size: int
    n: int = 1

    @property
    def rows(self) -> int:
        return self.batch_size


@dataclass(frozen=True)
class Window(Read):
    """``batch_size`` sequences of ``length`` rows. They may cross episode ends, which ``is_first`` marks."""

    batch_size: int
    length: int
    pad_before: int = 0
    pad_after: int = 0
    context: int = 0
    """Rows before each sequence that give its initial state. They are served with it and do not count as replayed."""

    @property
    def rows(self) -> int:
        return self.batch_size * self.length
