"""A causal transformer trunk: each row looks back at earlier rows of its episode, at most ``context`` of them.

Layers are pre-norm (Xiong et al. 2020), positions rotary (Su et al. 2021) and therefore relative. Attention is a band,
computed in blocks of ``context`` rows, so cost and memory grow linearly with a rollout. The memory is the keys and
values of the last ``context`` rows: what Transformer-XL (Dai et al. 2019) does between segments, here between
rollouts. Like a recurrent state it stems from the weights that acted, and no gradient flows into it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from reverie.core.types import Array
from reverie.nets.encoders import Observations
from reverie.nets.layers import Activation, make_activation
from reverie.nets.memory import Memory, MemoryConfig, MemoryNetwork, Tensors


class TransformerConfig(MemoryConfig):
    """A causal transformer."""

    kind: str = "transformer"
    layers: int = Field(2, ge=1)
    """How many layers follow each other."""
    heads: int = Field(4, ge=1)
    """Attention heads; they share the units among them."""
    context: int = Field(32, ge=1)
    """How many earlier rows each layer can look back at; acting keeps as many keys and values per env."""
    expansion: int = Field(4, ge=1)
    """How many times wider than ``units`` the hidden layer of each feedforward part is."""
    activation: Activation = "gelu"
    """In the feedforward parts."""

    @model_validator(mode="after")
    def _divisible(self) -> TransformerConfig:
        if self.units % (2 * self.heads):
            raise ValueError(f"units ({self.units}) must be a multiple of twice the heads ({self.heads})")
        return self


class Transformer(MemoryNetwork):
    """Encoder, layers, a last norm."""

    Config = TransformerConfig

    def __init__(self, config: TransformerConfig, observations: Observations) -> None:
        super().__init__(config, observations)
        self.context = config.context
        self.inputs = nn.Linear(self.encoder.features, config.units)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.units)

    def initial_memory(self, count: int) -> dict[str, Array]:
        shape = (count, len(self.layers), 2, self.context, self.features)
        return {"cache": np.zeros(shape, np.float32), "age": np.zeros(count, np.int64)}

    def forward(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Tensor:
        return self._run(self.encode(observation, is_first.shape), is_first, memory)[0]

    def step(self, observation: Tensors, is_first: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        is_first = is_first.unsqueeze(1)
        features, newest = self._run(self.encoder(observation).unsqueeze(1), is_first, memory)
        return features.squeeze(1), self._behind(newest, is_first, memory)

    def remember(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Memory:
        _, newest = self._run(self.encode(observation, is_first.shape), is_first, memory)
        return self._behind(newest, is_first, memory)

    def _behind(self, newest: list[Tensor], is_first: Tensor, memory: Memory) -> Memory:
        """The last keys and values, and how many of them belong to the episode that goes on."""
        length = is_first.shape[1]
        kept = torch.stack(newest, 1)[:, :, :, -self.context :]
        cache = torch.cat([memory["cache"][:, :, :, length:], kept], 3)
        since = length - torch.arange(length, device=is_first.device)  # rows from each one on
        own = torch.where(is_first, since, self.context).amin(1)
        age = torch.where(is_first.any(1), own, memory["age"] + length)
        return {"cache": cache, "age": age.clamp(max=self.context)}

    def _run(self, encoded: Tensor, is_first: Tensor, memory: Memory) -> tuple[Tensor, list[Tensor]]:
        """Features (B, T, F), and of each layer the keys and values (B, 2, T, F)."""
        mask = self._mask(is_first, memory["age"])
        x, kept = self.inputs(encoded), []
        for layer, cache in zip(self.layers, memory["cache"].unbind(1), strict=True):
            x, newest = layer(x, cache, mask)
            kept.append(newest)
        return self.norm(x), kept

    def _mask(self, is_first: Tensor, age: Tensor) -> Tensor:
        """What a row may look at (B * blocks, 1, rows, keys): itself and ``context`` rows before it in its episode."""
        slots = torch.arange(self.context, device=age.device)
        known = torch.where(slots >= self.context - age.unsqueeze(1), 0, -1)  # -1: nothing lies there
        episode = torch.cat([known, is_first.long().cumsum(1)], 1)
        rows, blocks = block_sizes(is_first.shape[1], self.context)
        episode = _pad_rows(episode.unsqueeze(-1), self.context + rows * blocks).squeeze(-1)
        theirs = episode.unfold(1, self.context + rows, rows)  # (B, blocks, K)
        own = theirs[:, :, self.context :]
        distance = self.context + torch.arange(rows, device=age.device).unsqueeze(1) - torch.arange(
            self.context + rows, device=age.device
        )  # fmt: skip
        near = (distance >= 0) & (distance <= self.context)
        return (near & (own.unsqueeze(-1) == theirs.unsqueeze(-2))).flatten(0, 1).unsqueeze(1)


class Layer(nn.Module):
    """Attention and a feedforward part, each added to its input."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        units, wide = config.units, config.expansion * config.units
        self.heads, self.context = config.heads, config.context
        self.before_attention, self.before_feedforward = nn.LayerNorm(units), nn.LayerNorm(units)
        self.inputs, self.output = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.feedforward = nn.Sequential(nn.Linear(units, wide), make_activation(config.activation))
        self.feedforward.append(nn.Linear(wide, units))
        with torch.no_grad():  # so that the sum over all layers starts out as wide as its input
            for last in (self.output, self.feedforward[-1]):
                last.weight /= math.sqrt(2 * config.layers)
        rotations = make_rotations(2 * config.context, units // config.heads)
        self.register_buffer("rotations", rotations, persistent=False)

    def forward(self, x: Tensor, cache: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.inputs(self.before_attention(x)).chunk(3, -1)
        newest = torch.stack([key, value], 1)  # (B, 2, T, F)
        seen = self._attend(query, torch.cat([cache, newest], 2), mask)
        x = x + self.output(seen)
        return x + self.feedforward(self.before_feedforward(x)), newest

    def _attend(self, query: Tensor, seen: Tensor, mask: Tensor) -> Tensor:
        """What rows (B, T, F) make of the keys and values (B, 2, context + T, F), block by block."""
        length = query.shape[1]
        rows, blocks = block_sizes(length, self.context)
        query = _pad_rows(query, rows * blocks).unflatten(1, (blocks, rows)).flatten(0, 1)
        windows = _pad_rows(seen.flatten(0, 1), self.context + rows * blocks).unfold(1, self.context + rows, rows)
        key, value = windows.movedim(-1, 2).unflatten(0, (-1, 2)).unbind(1)  # (B, blocks, K, F)
        query, key, value = (self._split(part) for part in (query, key.flatten(0, 1), value.flatten(0, 1)))
        places = self.rotations[:, : self.context + rows]
        query, key = rotate(query, places[:, self.context :]), rotate(key, places)
        answer = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined = answer.transpose(1, 2).flatten(2).unflatten(0, (-1, blocks)).flatten(1, 2)
        return joined[:, :length]

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, rows, F / heads)


def block_sizes(length: int, context: int) -> tuple[int, int]:
    """Rows per block and the number of blocks."""
    rows = min(length, context)
    return rows, math.ceil(length / rows)


def make_rotations(places: int, width: int) -> Tensor:
    """Cosines and sines (2, places, width / 2) of the angles by which each place turns pairs of numbers."""
    speeds = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(places).float(), speeds)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Turn the two halves of x (..., places, width) against each other."""
    cosine, sine = rotations
    one, two = x.chunk(2, -1)
    return torch.cat([one * cosine - two * sine, one * sine + two * cosine], -1)


def _pad_rows(x: Tensor, length: int) -> Tensor:
    """Rows (B, T, F) with zeros behind them."""
    return F.pad(x, (0, 0, 0, length - x.shape[1])) if length > x.shape[1] else x
