"""Trunks that remember (:mod:`reverie.nets.memory`) for algorithms that learn from a replay buffer.

Hausknecht & Stone 2015 ("Deep Recurrent Q-Learning for Partially Observable MDPs") replay stretches of rows from an
empty memory; Kapturowski et al. 2019 ("Recurrent Experience Replay in Distributed Reinforcement Learning", R2D2) let
the first rows only fill it. So it is here: a window starts with an empty memory, its first ``burn_in`` rows are seen
without gradients, and the rows behind them are learnt from. R2D2 also stores the memory of the time when it acted. We
do not: it is as old as its row, and that of a transformer is thousands of numbers a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from reverie.backend import Backend
from reverie.core.config import ComponentConfig, Config
from reverie.core.reads import Read, Transitions, Window
from reverie.core.traits import is_recurrent
from reverie.core.types import Array, Batch, Carry, Row, observation_keys
from reverie.functional.steps import Steps, n_step_transitions, window_transitions
from reverie.nets.backend_module import BackendModule
from reverie.nets.encoders import Observations
from reverie.nets.networks import make_network

LARGEST_SHARE = 0.9
"""How much the largest error of a window counts in its priority beside their mean: eta of R2D2."""


class SequenceConfig(Config):
    """What networks with memory learn from: windows of rows that follow each other. Others take no notice of it."""

    length: int = Field(32, ge=2)
    """Rows of a window, which runs on over ends of episodes. Let it hold what has to be remembered: learning sees no
    further back. ``batch_size`` counts windows."""
    burn_in: int = Field(8, ge=0)
    """The first rows of a window, which only fill the memory, empty before them; nothing is learnt from them."""

    @model_validator(mode="after")
    def _leaves_something(self) -> SequenceConfig:
        if self.burn_in >= self.length:
            raise ValueError(f"burn_in ({self.burn_in}) must be below length ({self.length}), or nothing is learnt")
        return self


def has_memory(network: ComponentConfig | None) -> bool:
    return network is not None and is_recurrent(network.kind)


def check_targets(sequence: SequenceConfig, network: ComponentConfig | None, n_step: int) -> None:
    """Refuse windows without any row whose target lies in them; called by the configs that have these settings."""
    learnt = sequence.length - sequence.burn_in
    if has_memory(network) and learnt <= n_step:
        raise ValueError(
            f"no row of a window has a target: of its {sequence.length} rows {sequence.burn_in} only fill the memory, "
            f"and n_step={n_step} needs more than the {learnt} behind them; "
            f"set algorithm.sequence.length={sequence.burn_in + n_step + 1} or more"
        )


# ---------------------------------------------------------------- the trunk


class WindowTrunk(BackendModule):
    """A trunk with memory that takes windows as plain trunks take rows: see :class:`Steps` for what they hold."""

    def __init__(self, network: Any, burn_in: int) -> None:
        super().__init__()
        self.network = network
        self.burn_in = burn_in
        self.features: int = network.features

    def forward(self, windows: Mapping[str, Tensor]) -> Tensor:
        """Features (B * L, F) of the rows that steps start from or, where there is a ``column``, end at."""
        observation, is_first = {key: windows[key] for key in observation_keys(windows)}, windows["is_first"]
        memory = self.backend.to_tensors(self.network.initial_memory(len(is_first)))
        if self.burn_in:
            with torch.no_grad():
                first = {key: value[:, : self.burn_in] for key, value in observation.items()}
                memory = self.network.remember(first, is_first[:, : self.burn_in], memory)
        rest = {key: value[:, self.burn_in :] for key, value in observation.items()}
        features = self.network(rest, is_first[:, self.burn_in :], memory)
        if "column" not in windows:
            return features[:, :-1].flatten(0, 1)
        column = windows["column"].unsqueeze(-1).expand(-1, -1, self.features)
        return features.gather(1, column).flatten(0, 1)


def make_trunk(network: ComponentConfig, observations: Observations, sequence: SequenceConfig) -> Any:
    """The trunk of a config, ready for what :func:`make_replay` serves."""
    trunk = make_network(network, observations)
    return WindowTrunk(trunk, sequence.burn_in) if has_memory(network) else trunk


def initial_carry(trunk: Any, num_envs: int) -> Carry:
    """What envs remember before their first row: nothing at all if the trunk does not."""
    return trunk.network.initial_memory(num_envs) if isinstance(trunk, WindowTrunk) else {}


@torch.inference_mode()
def look(trunk: Any, now: Row, carry: Carry, backend: Backend) -> tuple[Tensor, Carry]:
    """Features (N, F) of arriving rows, and the carry behind them."""
    observation = backend.to_tensors({key: now[key] for key in observation_keys(now)})
    if not isinstance(trunk, WindowTrunk):
        return trunk(observation), carry
    is_first = backend.to_tensor(now["is_first"])
    features, memory = trunk.network.step(observation, is_first, backend.to_tensors(carry))
    return features, {key: value.cpu().numpy() for key, value in memory.items()}


# ---------------------------------------------------------------- what is replayed


class StepReplay:
    """Single transitions, for networks that see one row at a time."""

    def read(self, batch_size: int, n: int) -> Read:
        return Transitions(batch_size, n)

    def steps(self, batch: Batch, gamma: float, n: int) -> Steps:
        return n_step_transitions(batch, gamma)

    def priority(self, steps: Steps, surprise: Array) -> Array:
        """What a buffer should take as priority of the samples (B,) whose steps were so far off."""
        return surprise


class WindowReplay:
    """Windows of rows, for networks with memory."""

    def __init__(self, sequence: SequenceConfig) -> None:
        self.sequence = sequence

    def read(self, batch_size: int, n: int) -> Read:
        """``batch_size`` windows; the rows that fill the memory do not count as replayed."""
        length, burn_in = self.sequence.length, self.sequence.burn_in
        return Window(batch_size, length - burn_in, context=burn_in)

    def steps(self, batch: Batch, gamma: float, n: int) -> Steps:
        return window_transitions(batch, gamma, n, self.sequence.burn_in)

    def priority(self, steps: Steps, surprise: Array) -> Array:
        """Of whole windows: the largest error and the mean of all, mixed."""
        counts = steps.weight > 0
        errors = surprise.reshape(counts.shape) * counts
        mean = errors.sum(1) / np.maximum(counts.sum(1), 1)
        mixed: Array = LARGEST_SHARE * errors.max(1) + (1 - LARGEST_SHARE) * mean
        return mixed


def make_replay(network: ComponentConfig | None, sequence: SequenceConfig) -> StepReplay | WindowReplay:
    """What fits the trunk."""
    return WindowReplay(sequence) if has_memory(network) else StepReplay()
