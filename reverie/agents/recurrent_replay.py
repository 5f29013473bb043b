"""What algorithms with a replay buffer learn from: single transitions, or sequences for recurrent trunks.

Hausknecht & Stone 2015 ("Deep Recurrent Q-Learning for Partially Observable MDPs") replay sequences from a zero hidden
state. Kapturowski et al. 2019 ("Recurrent Experience Replay in Distributed Reinforcement Learning", R2D2) add burn-in:
the first rows only fill the hidden state. We do both. R2D2 also stores the hidden state that the agent had when it
acted. We do not: stored states grow old, and that of a transformer is thousands of numbers per row.
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
from reverie.core.types import Array, Batch, Carry, Row, WriteBack, observation_keys
from reverie.functional.transition_batch import TransitionBatch, n_step_transitions, sequence_transitions
from reverie.nets.backend_module import BackendModule
from reverie.nets.encoders import Observations
from reverie.nets.networks import make_network

MAX_ERROR_WEIGHT = 0.9
"""Weight of a sequence's largest TD error in its priority, against their mean. Eta of R2D2."""


class SequenceConfig(Config):
    """The sequences that recurrent networks learn from. Other networks ignore it."""

    length: int = Field(32, ge=2)
    """Rows of a sequence, which may cross episode ends. A network learns to use no information that is older than
    this. ``batch_size`` counts sequences."""
    burn_in: int = Field(8, ge=0)
    """The first rows of a sequence. They fill the hidden state, which is zero before them, and are not trained on."""

    @model_validator(mode="after")
    def _has_trained_rows(self) -> SequenceConfig:
        if self.burn_in >= self.length:
            raise ValueError(f"burn_in ({self.burn_in}) must be below length ({self.length}), or nothing is learnt")
        return self


def needs_sequences(network: ComponentConfig | None) -> bool:
    return network is not None and is_recurrent(network.kind)


def check_targets(sequence: SequenceConfig, network: ComponentConfig | None, n_step: int) -> None:
    """Refuse sequences in which no row has a target. Called by the configs that have these settings."""
    trained = sequence.length - sequence.burn_in
    if needs_sequences(network) and trained <= n_step:
        raise ValueError(
            f"no row of a sequence has a target: {sequence.burn_in} of its {sequence.length} rows are burn-in, "
            f"and n_step={n_step} needs more than the {trained} after them; "
            f"set algorithm.sequence.length={sequence.burn_in + n_step + 1} or more"
        )


# ---------------------------------------------------------------- the trunk


class SequenceTrunk(BackendModule):
    """A recurrent trunk with the interface of a plain one: :class:`TransitionBatch` says what its input holds."""

    def __init__(self, network: Any, burn_in: int) -> None:
        super().__init__()
        self.network = network
        self.burn_in = burn_in
        self.features: int = network.features

    def forward(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Features (B * L, F) of the rows where transitions start or, if there is a ``column``, end."""
        obs, is_first = {key: rows[key] for key in observation_keys(rows)}, rows["is_first"]
        hidden = self.backend.to_tensors(self.network.initial_hidden(len(is_first)))
        if self.burn_in:
            with torch.no_grad():
                first = {key: value[:, : self.burn_in] for key, value in obs.items()}
                hidden = self.network.final_hidden(first, is_first[:, : self.burn_in], hidden)
        rest = {key: value[:, self.burn_in :] for key, value in obs.items()}
        features: Tensor = self.network(rest, is_first[:, self.burn_in :], hidden)
        if "column" not in rows:
            return features[:, :-1].flatten(0, 1)
        column = rows["column"].unsqueeze(-1).expand(-1, -1, self.features)
        return features.gather(1, column).flatten(0, 1)


def make_trunk(network: ComponentConfig, observations: Observations, sequence: SequenceConfig) -> Any:
    """The trunk of a config, for the batches of :func:`make_replay`."""
    trunk = make_network(network, observations)
    return SequenceTrunk(trunk, sequence.burn_in) if needs_sequences(network) else trunk


def initial_carry(trunk: Any, num_envs: int) -> Carry:
    """The hidden states before the first row. Empty for plain trunks."""
    return trunk.network.initial_hidden(num_envs) if isinstance(trunk, SequenceTrunk) else {}


@torch.inference_mode()
def encode(trunk: Any, now: Row, carry: Carry, backend: Backend) -> tuple[Tensor, Carry]:
    """Features (N, F) of arriving rows, and the next carry."""
    obs = backend.to_tensors({key: now[key] for key in observation_keys(now)})
    if not isinstance(trunk, SequenceTrunk):
        return trunk(obs), carry
    is_first = backend.to_tensor(now["is_first"])
    features, hidden = trunk.network.step(obs, is_first, backend.to_tensors(carry))
    return features, {key: value.cpu().numpy() for key, value in hidden.items()}


# ---------------------------------------------------------------- batches


class TransitionReplay:
    """Single transitions, for plain trunks."""

    def read(self, batch_size: int, n: int) -> Read:
        return Transitions(batch_size, n)

    def transitions(self, batch: Batch, gamma: float, n: int) -> TransitionBatch:
        return n_step_transitions(batch, gamma)

    def write_priorities(self, batch: Batch, transitions: TransitionBatch, td_errors: Tensor) -> WriteBack:
        """Priorities of the samples (B,) from the absolute TD errors of their transitions (N,)."""
        return WriteBack(batch["id"][:, 0], {"priority": self.priority(transitions, td_errors.cpu().numpy())})

    def priority(self, transitions: TransitionBatch, td_errors: Array) -> Array:
        return td_errors


class SequenceReplay(TransitionReplay):
    """Sequences of rows, for recurrent trunks."""

    def __init__(self, sequence: SequenceConfig) -> None:
        self.sequence = sequence

    def read(self, batch_size: int, n: int) -> Read:
        """``batch_size`` sequences. Burn-in rows do not count as replayed."""
        length, burn_in = self.sequence.length, self.sequence.burn_in
        return Window(batch_size, length - burn_in, context=burn_in)

    def transitions(self, batch: Batch, gamma: float, n: int) -> TransitionBatch:
        return sequence_transitions(batch, gamma, n, self.sequence.burn_in)

    def priority(self, transitions: TransitionBatch, td_errors: Array) -> Array:
        """A mix of the largest and the mean TD error of each sequence."""
        is_valid = transitions.weights > 0
        errors = td_errors.reshape(is_valid.shape) * is_valid
        mean = errors.sum(1) / np.maximum(is_valid.sum(1), 1)
        mixed: Array = MAX_ERROR_WEIGHT * errors.max(1) + (1 - MAX_ERROR_WEIGHT) * mean
        return mixed


def make_replay(network: ComponentConfig | None, sequence: SequenceConfig) -> TransitionReplay:
    return SequenceReplay(sequence) if needs_sequences(network) else TransitionReplay()


def to_tensors(transitions: TransitionBatch, backend: Backend) -> TransitionBatch:
    """All transitions on the device, flat: those of sequences (B, L) become (B * L)."""
    obs, next_obs, *columns = transitions.flatten()
    tensors = backend.to_tensors(dict(zip(TransitionBatch._fields[2:], columns, strict=True)))
    return TransitionBatch(backend.to_tensors(obs), backend.to_tensors(next_obs), **tensors)
