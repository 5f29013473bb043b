"""``Reverie/Recall-v0``: a task that needs an agent with a hidden state."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array


class RecallEnv(gym.Env[Array, np.int64]):
    """The first observation shows one of several cues. After a delay the agent must choose the action of that cue.

    An observation has one number per cue and a last number that asks for the answer. ``delay`` empty observations come
    between the two. A correct answer gives reward 1, and any answer ends the episode. Earlier actions have no effect,
    so an agent cannot store the cue in the env, and all observations that ask for the answer are equal. So an agent
    without a hidden state is right with probability 1 / ``cues``.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, cues: int = 4, delay: int = 8, render_mode: str | None = None) -> None:
        if cues < 2 or delay < 0:
            raise ValueError(f"cues must be 2 or more and delay 0 or more, not {cues} and {delay}")
        self.cues, self.delay, self.render_mode = cues, delay, render_mode
        self.observation_space = spaces.Box(0, 1, (cues + 1,), np.float32)
        self.action_space = spaces.Discrete(cues)
        self._cue, self._step = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._cue, self._step = int(self.np_random.integers(self.cues)), 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        is_answer = self._step == self.delay + 1
        self._step += 1
        return self._observe(), float(is_answer and action == self._cue), is_answer, False, {}

    def render(self) -> Array:
        """A row of squares, one for each number of the observation: white for 1, black for 0."""
        squares = np.kron(self._observe(), np.ones((32, 32))) * 255
        return np.repeat(squares.astype(np.uint8)[..., None], 3, axis=2)

    def _observe(self) -> Array:
        shown = np.zeros(self.cues + 1, np.float32)
        if self._step == 0:
            shown[self._cue] = 1
        elif self._step == self.delay + 1:
            shown[-1] = 1
        return shown
