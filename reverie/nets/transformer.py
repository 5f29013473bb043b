"""A causal transformer trunk: each row attends to at most ``context`` earlier rows of its episode.

Layers are pre-norm (Xiong et al. 2020), positions rotary (Su et al. 2021) and therefore relative. Attention is a band,
computed in blocks of ``context`` rows, so cost and memory grow linearly with the length of a rollout. The hidden state
is the keys and values of the last ``context`` rows, as Transformer-XL (Dai et al. 2019) keeps them between segments.
Here a segment is a rollout. They were computed while acting, with the weights of that time, and get no gradient.
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
from reverie.nets.recurrent import Hidden, RecurrentConfig, RecurrentNetwork, Tensors


class TransformerConfig(RecurrentConfig):
    """A causal transformer."""

    kind: str = "transformer"
    layers: int = Field(2, ge=1)
    """Number of layers."""
    heads: int = Field(4, ge=1)
    """Attention heads. Each gets ``units / heads`` columns."""
    context: int = Field(32, ge=1)
    """Earlier rows that each layer attends to. Acting keeps the keys and values of this many rows per env."""
    expansion: int = Field(4, ge=1)
    """Width of the hidden feedforward layers, in multiples of ``units``."""
    activation: Activation = "gelu"
    """Activation of the feedforward layers."""

    @model_validator(mode="after")
    def _divisible(self) -> TransformerConfig:
        if self.units % (2 * self.heads):
            raise ValueError(f"units ({self.units}) must be a multiple of twice the heads ({self.heads})")
        return self


class Transformer(RecurrentNetwork):
    """Encoder, layers and a final norm."""

    Config = TransformerConfig

    def __init__(self, config: TransformerConfig, observations: Observations) -> None:
        super().__init__(config, observations)
        self.context = config.context
        self.inputs = nn.Linear(self.encoder.features, config.units)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.units)

    def initial_hidden(self, count: int) -> dict[str, Array]:
        shape = (count, len(self.layers), 2, self.context, self.features)
        return {"cache": np.zeros(shape, np.float32), "age": np.zeros(count, np.int64)}

    def forward(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Tensor:
        return self._run(self.encode(observation, is_first.shape), is_first, hidden)[0]

    def step(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        is_first = is_first.unsqueeze(1)
        features, newest = self._run(self.encoder(observation).unsqueeze(1), is_first, hidden)
        return features.squeeze(1), self._next_hidden(newest, is_first, hidden)

    def final_hidden(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Hidden:
        _, newest = self._run(self.encode(observation, is_first.shape), is_first, hidden)
        return self._next_hidden(newest, is_first, hidden)

    def _next_hidden(self, newest: list[Tensor], is_first: Tensor, hidden: Hidden) -> Hidden:
        """The cached keys and values, and how many of them belong to the current episode."""
        length = is_first.shape[1]
        kept = torch.stack(newest, 1)[:, :, :, -self.context :]
        cache = torch.cat([hidden["cache"][:, :, :, length:], kept], 3)
        remaining = length - torch.arange(length, device=is_first.device)  # rows from each row to the end
        since_first = torch.where(is_first, remaining, self.context).amin(1)
        age = torch.where(is_first.any(1), since_first, hidden["age"] + length)
        return {"cache": cache, "age": age.clamp(max=self.context)}

    def _run(self, encoded: Tensor, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, list[Tensor]]:
        """Features (B, T, F), and each layer's keys and values (B, 2, T, F)."""
        mask = self._mask(is_first, hidden["age"])
        x, kept = self.inputs(encoded), []
        for layer, cache in zip(self.layers, hidden["cache"].unbind(1), strict=True):
            x, newest = layer(x, cache, mask)
            kept.append(newest)
        return self.norm(x), kept

    def _mask(self, is_first: Tensor, age: Tensor) -> Tensor:
        """Mask (B * blocks, 1, rows, keys): a row attends to itself and ``context`` earlier rows of its episode."""
        slots = torch.arange(self.context, device=age.device)
        known = torch.where(slots >= self.context - age.unsqueeze(1), 0, -1)  # -1: empty slot
        episode = torch.cat([known, is_first.long().cumsum(1)], 1)
        rows, blocks = block_sizes(is_first.shape[1], self.context)
        episode = _pad_rows(episode.unsqueeze(-1), self.context + rows * blocks).squeeze(-1)
        of_keys = episode.unfold(1, self.context + rows, rows)  # (B, blocks, K)
        of_rows = of_keys[:, :, self.context :]
        distance = self.context + torch.arange(rows, device=age.device).unsqueeze(1) - torch.arange(
            self.context + rows, device=age.device
        )  # fmt: skip
        near = (distance >= 0) & (distance <= self.context)
        return (near & (of_rows.unsqueeze(-1) == of_keys.unsqueeze(-2))).flatten(0, 1).unsqueeze(1)


class Layer(nn.Module):
    """Attention and feedforward layers, each added to its input."""

    rotations: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        units, wide = config.units, config.expansion * config.units
        self.heads, self.context = config.heads, config.context
        self.before_attention, self.before_feedforward = nn.LayerNorm(units), nn.LayerNorm(units)
        self.inputs, self.output = nn.Linear(units, 3 * units), nn.Linear(units, units)
        widen, narrow = nn.Linear(units, wide), nn.Linear(wide, units)
        self.feedforward = nn.Sequential(widen, make_activation(config.activation), narrow)
        with torch.no_grad():  # so that the residual stream starts with the variance of its input
            for last in (self.output, narrow):
                last.weight /= math.sqrt(2 * config.layers)
        rotations = make_rotations(2 * config.context, units // config.heads)
        self.register_buffer("rotations", rotations, persistent=False)

    def forward(self, x: Tensor, cache: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.inputs(self.before_attention(x)).chunk(3, -1)
        newest = torch.stack([key, value], 1)  # (B, 2, T, F)
        x = x + self.output(self._attend(query, torch.cat([cache, newest], 2), mask))
        return x + self.feedforward(self.before_feedforward(x)), newest

    def _attend(self, query: Tensor, stored: Tensor, mask: Tensor) -> Tensor:
        """Attention of rows (B, T, F) to the keys and values (B, 2, context + T, F), block by block."""
        length = query.shape[1]
        rows, blocks = block_sizes(length, self.context)
        query = _pad_rows(query, rows * blocks).unflatten(1, (blocks, rows)).flatten(0, 1)
        windows = _pad_rows(stored.flatten(0, 1), self.context + rows * blocks).unfold(1, self.context + rows, rows)
        key, value = windows.movedim(-1, 2).unflatten(0, (-1, 2)).unbind(1)  # (B, blocks, K, F)
        query, key, value = (self._split(part) for part in (query, key.flatten(0, 1), value.flatten(0, 1)))
        rotations = self.rotations[:, : self.context + rows]
        query, key = rotate(query, rotations[:, self.context :]), rotate(key, rotations)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined: Tensor = attended.transpose(1, 2).flatten(2).unflatten(0, (-1, blocks)).flatten(1, 2)
        return joined[:, :length]

    def _split(self, x: Tensor) -> Tensor:
        by_head: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, rows, F / heads)
        return by_head


def block_sizes(length: int, context: int) -> tuple[int, int]:
    """Rows per block and the number of blocks."""
    rows = min(length, context)
    return rows, math.ceil(length / rows)


def make_rotations(positions: int, width: int) -> Tensor:
    """Cosines and sines (2, positions, width / 2) of the angles by which each position rotates pairs of columns."""
    speeds = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(positions).float(), speeds)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate pairs of columns of x (..., positions, width): columns i and i + width / 2."""
    cosine, sine = rotations
    one, two = x.chunk(2, -1)
    return torch.cat([one * cosine - two * sine, one * sine + two * cosine], -1)


def _pad_rows(x: Tensor, length: int) -> Tensor:
    """Rows (B, T, F), padded with zeros to (B, length, F)."""
    return F.pad(x, (0, 0, 0, length - x.shape[1])) if length > x.shape[1] else x
