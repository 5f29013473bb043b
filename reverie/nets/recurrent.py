"""Recurrent trunks: what they do beyond plain trunks.

A hidden state is a dict of arrays or tensors with one entry per env. ``initial_hidden`` makes it. While acting,
``step`` updates it with one row. While learning, ``forward`` gets it with all rows of a sequence. Both must compute the
same features. Where ``is_first`` is set, nothing from before that row may reach the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from reverie.core.config import Component, ComponentConfig
from reverie.core.contracts import Recurrent
from reverie.core.types import Array
from reverie.nets.encoders import AutoNetwork, Observations
from reverie.nets.networks import make_network

Tensors = Mapping[str, Tensor]
Hidden = dict[str, Tensor]


class RecurrentConfig(ComponentConfig):
    """A recurrent trunk after an encoder."""

    units: int = Field(64, ge=1)
    """Width of the hidden state and of the features. Size presets give a list, of which the last entry counts."""
    encoder: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The network before the recurrent one. It gets one row at a time."""

    @field_validator("units", mode="before")
    @classmethod
    def _last_width(cls, value: Any) -> Any:
        return value[-1] if isinstance(value, (list, tuple)) and value else value


class RecurrentNetwork(nn.Module, Recurrent):
    """Base of recurrent trunks."""

    def __init__(self, config: RecurrentConfig, observations: Observations) -> None:
        super().__init__()
        self.encoder = make_network(config.encoder, observations)
        self.features = config.units

    def initial_hidden(self, count: int) -> dict[str, Array]:
        """The hidden state of ``count`` envs before their first row."""
        raise NotImplementedError("write initial_hidden(count), called initial_memory in earlier versions")

    def step(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Features (B, F) of one row of each env, and the next hidden state. ``hidden`` is not changed."""
        raise NotImplementedError

    def forward(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Tensor:
        """Features (B, T, F) of sequences (B, T). ``hidden`` is the state before their first rows."""
        raise NotImplementedError

    def final_hidden(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Hidden:
        """The hidden state after sequences (B, T). Subclasses may compute it faster."""
        for column in range(is_first.shape[1]):
            row = {key: value[:, column] for key, value in observation.items()}
            _, hidden = self.step(row, is_first[:, column], hidden)
        return hidden

    def encode(self, observation: Tensors, shape: torch.Size) -> Tensor:
        """Encoded rows (B, T, E) of observations (B, T, ...)."""
        flat = {key: value.flatten(0, 1) for key, value in observation.items()}
        encoded: Tensor = self.encoder(flat).unflatten(0, shape)
        return encoded
