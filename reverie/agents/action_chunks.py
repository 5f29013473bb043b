"""Action chunks: plan several actions at once and execute them one after the other (Zhao et al. 2023).

The queue of planned actions is part of the carry, so an episode continues with the same chunk after a resume. An env
gets a new chunk when its episode starts and when its queue is empty.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reverie.core.specs import ActionSpec
from reverie.core.types import Array, Carry, Row


class ActionChunks:
    """Queues of ``length`` actions, one per env."""

    def __init__(self, length: int, action: ActionSpec) -> None:
        self.length, self.action = length, action

    def initial_carry(self, num_envs: int) -> Carry:
        """Empty queues."""
        queue = np.repeat(self.action.zeros(num_envs)[:, None], self.length, axis=1)  # (N, length, ...)
        return {"queue": queue, "executed": np.full(num_envs, self.length)}

    def next_actions(self, now: Row, carry: Carry, plan: Callable[[Row], Array]) -> tuple[Array, Carry]:
        """Actions (N, ...) for arriving rows, and the next carry.

        ``plan`` gets the rows (M, ...) of the envs that need a chunk, and returns M chunks of at least ``length``
        actions.
        """
        executed = np.where(now["is_first"], self.length, carry["executed"])
        queue, is_empty = np.array(carry["queue"]), executed >= self.length
        if is_empty.any():
            chunks = plan({key: values[is_empty] for key, values in now.items()})
            queue[is_empty], executed[is_empty] = chunks[:, : self.length], 0
        return queue[np.arange(len(queue)), executed], {"queue": queue, "executed": executed + 1}

    def drop(self, carry: Carry) -> Carry:
        """Empty all queues, because somebody else chooses the actions (``Mode.OBSERVE``)."""
        return {**carry, "executed": np.full(len(carry["executed"]), self.length)}
