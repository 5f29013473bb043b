"""Exponential moving average of a network's weights (Polyak and Juditsky 1992), for acting in evaluation."""

from __future__ import annotations

import copy

import torch
from torch import nn

from reverie.backend import load_module_state, module_state
from reverie.core.types import State


class EMA:
    """A copy of a network, ``average``. An algorithm that evaluates with it adds its state to the policy state."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = network
        self.average = copy.deepcopy(network).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Call after each gradient step. Buffers such as running statistics are copied."""
        torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - self.decay)
        for average, buffer in zip(self.average.buffers(), self.network.buffers(), strict=True):
            average.copy_(buffer)

    def state(self) -> State:
        return module_state(self.average)

    def load_state(self, state: State) -> None:
        load_module_state(self.average, state)
