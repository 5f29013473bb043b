"""The network of DQN: a trunk and a head with values per action. :mod:`.numpy_q_network` has it in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from reverie.agents.recurrent_replay import make_trunk
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.nets.q_heads import NoisyLinear


class QNetwork(nn.Module):
    """Outputs (B, A, K): the head says how K numbers describe the value of an action."""

    def __init__(self, config: Any, specs: Specs) -> None:
        super().__init__()
        self.trunk = make_trunk(config.network, specs.observations, config.sequence)
        head = registry.load("q_head", config.head.kind)
        self.head = head(config.head, self.trunk.features, specs.action.size, config.dueling, config.noisy)
        self.noisy_layers = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        outputs: Tensor = self.head(self.trunk(obs))
        return outputs

    def sample_noise(self, rng: np.random.Generator | None) -> None:
        """New noise for noisy layers, or none without a generator."""
        for layer in self.noisy_layers:
            layer.sample_noise(rng)
