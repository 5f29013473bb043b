"""Scaling of continuous actions to the range that a dataset uses.

Part of the policy state: a policy that was saved without it would act on another scale.
"""

from __future__ import annotations

import numpy as np

from reverie.core.specs import ActionSpec
from reverie.core.types import Array, Batch, State, is_last


class ActionScaling:
    """Maps the range of each action dimension to [-1, 1]. The range is [-1, 1] itself before :meth:`fit`."""

    def __init__(self, action: ActionSpec) -> None:
        self.low, self.high = np.full(action.shape, -1, np.float32), np.full(action.shape, 1, np.float32)

    def fit(self, episodes: Batch) -> None:
        """Take the range from episodes (E, T). Actions of final rows and of padding do not count."""
        actions = np.asarray(episodes["action"])[episodes["valid"] & ~is_last(episodes)]
        if len(actions):
            self.low, self.high = actions.min(0), actions.max(0)

    def scale(self, action: Array) -> Array:
        """From the dataset's range to [-1, 1]. Dimensions that never change become 0."""
        width = self.high - self.low
        scaled: Array = np.where(width > 0, 2 * (action - self.low) / np.where(width > 0, width, 1) - 1, 0)
        return scaled.astype(np.float32)

    def unscale(self, scaled: Array) -> Array:
        """From [-1, 1] to the dataset's range. Values beyond it are clipped."""
        action: Array = self.low + (np.clip(scaled, -1, 1) + 1) / 2 * (self.high - self.low)
        return action.astype(np.float32)

    def state(self) -> State:
        return {"low": self.low.copy(), "high": self.high.copy()}

    def load_state(self, state: State) -> None:
        self.low, self.high = state["low"].copy(), state["high"].copy()
