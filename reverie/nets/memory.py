"""Trunks that remember what their env showed before, and what they promise beyond plain trunks.

A memory is a dict of arrays or tensors with one entry per env. It is made by ``initial_memory``, moved on by one row
with ``step`` while acting, and given to ``forward`` together with all rows of a stretch while learning; both must come
to the same features. Where ``is_first`` is set, nothing from before that row may reach the features.
``remember`` is for rows of which only the memory behind them is wanted.
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
Memory = dict[str, Tensor]


class MemoryConfig(ComponentConfig):
    """A trunk with memory behind an encoder."""

    units: int = Field(64, ge=1)
    """Width of the memory and of the features. Of a list, as size presets give it, the last entry counts."""
    encoder: Annotated[ComponentConfig, Component("network")] = AutoNetwork.Config()
    """The network in front of the memory, which sees one row at a time."""

    @field_validator("units", mode="before")
    @classmethod
    def _last_width(cls, value: Any) -> Any:
        return value[-1] if isinstance(value, (list, tuple)) and value else value


class MemoryNetwork(nn.Module, Recurrent):
    """Base of the trunks with memory."""

    def __init__(self, config: MemoryConfig, observations: Observations) -> None:
        super().__init__()
        self.encoder = make_network(config.encoder, observations)
        self.features = config.units

    def initial_memory(self, count: int) -> dict[str, Array]:
        """What ``count`` envs remember before their first row."""
        raise NotImplementedError

    def step(self, observation: Tensors, is_first: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Features (B, F) of one row of each env, and the memory behind it; ``memory`` itself stays as it is."""
        raise NotImplementedError

    def forward(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Tensor:
        """Features (B, T, F) of rows (B, T) that follow each other; ``memory`` is the one before the first of them."""
        raise NotImplementedError

    def remember(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Memory:
        """The memory behind rows (B, T) that follow each other. Row by row; a network may know a quicker way."""
        for column in range(is_first.shape[1]):
            row = {key: value[:, column] for key, value in observation.items()}
            _, memory = self.step(row, is_first[:, column], memory)
        return memory

    def encode(self, observation: Tensors, shape: torch.Size) -> Tensor:
        """Encoded rows (B, T, E) of observations (B, T, ...)."""
        flat = {key: value.flatten(0, 1) for key, value in observation.items()}
        encoded: Tensor = self.encoder(flat).unflatten(0, shape)
        return encoded
