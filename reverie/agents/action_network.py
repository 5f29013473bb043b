"""From observations to the action that an agent takes in evaluations, as one torch module: what an export contains."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from reverie.agents.q_network import QNetwork


class MostLikelyAction(nn.Module):
    """The mode of a policy. ``shape`` is that of an action, if the policy's modes are flat."""

    def __init__(self, encoder: nn.Module, policy: nn.Module, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.policy = policy
        self.shape = shape

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        mode: Tensor = self.policy(self.encoder(observation)).mode()
        return mode if self.shape is None else mode.reshape(-1, *self.shape)


class GreedyAction(nn.Module):
    """The action with the highest value."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        values: Tensor = self.network.head.values(self.network(observation))
        return values.argmax(-1)
