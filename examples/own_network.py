"""Give an algorithm a network of your own: a class that maps observations to features.

`reverie new network NAME` makes a project with such a class, a preset and a test.
"""

import torch
from torch import nn

import reverie
from reverie.core.config import ComponentConfig

STEPS = 50_000


class FourierNetwork(nn.Module):
    """Sines and cosines of learned mixtures of the observation, then a hidden layer."""

    class Config(ComponentConfig):
        kind: str = "__main__.FourierNetwork"
        waves: int = 32
        """Number of mixtures."""
        units: int = 64
        """Width of the hidden layer."""

    def __init__(self, config, observations):
        super().__init__()
        inputs = sum(spec.size for spec in observations.values())
        self.mixtures = nn.Linear(inputs, config.waves)
        self.hidden = nn.Linear(2 * config.waves, config.units)
        self.features = config.units  # the algorithm builds its heads on this many features

    def forward(self, observation):
        x = torch.cat([value.flatten(1) for value in observation.values()], 1)  # (B, inputs)
        phase = self.mixtures(x)
        return torch.tanh(self.hidden(torch.cat([phase.sin(), phase.cos()], 1)))  # (B, units)


network = {"algorithm.network.kind": FourierNetwork, "algorithm.network.waves": 48}
run = reverie.train("CartPole-v1:ppo", seed=1, steps=STEPS, overrides=network)
print("final score:", run.status["final_score"])
