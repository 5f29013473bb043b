"""The numpy engine of :class:`.ActorCritic`: the same network forwards and backwards, for fully connected layers.

Its weights and gradients are views of torch's, so either engine sees what the other has changed.
"""

from __future__ import annotations

from typing import Any

from reverie.core.types import Array, Row
from reverie.kernels.products import array_matmul
from reverie.nets.numpy.distributions import NumpyDistribution, has_numpy_form, make_numpy_distribution
from reverie.nets.numpy.mlp import Activations, NumpyInput, NumpyLayer, NumpyMLP, is_plain_mlp, make_numpy_layers


def has_numpy_engine(model: Any) -> bool:
    """Whether the backend and the network allow it."""
    trunks = model.actor_trunk, model.critic_trunk
    has_form = all(is_plain_mlp(trunk) for trunk in trunks) and has_numpy_form(model.action_head)
    return has_form and model.backend.engine == "numpy"


class NumpyActorCritic:
    """Build it after the optimiser, which moves the weights and makes the gradients."""

    def __init__(self, model: Any) -> None:
        self.inputs = NumpyInput(model.actor_trunk.inputs)
        self.action_head = model.action_head
        self.is_shared = model.critic_trunk is model.actor_trunk
        matmul = array_matmul(model.backend.numpy_matmul)
        self.actor_trunk = NumpyMLP(make_numpy_layers(model.actor_trunk.layers, matmul))
        self.critic_trunk = NumpyMLP(make_numpy_layers(model.critic_trunk.layers, matmul))
        self.action_output = NumpyMLP([NumpyLayer(model.action_head.output)])
        self.value_output = NumpyMLP([NumpyLayer(model.value_head)])

    def action_outputs(self, now: Row) -> Array:
        """Outputs of the action head (N, size) for arriving rows."""
        return self.action_output(self.actor_trunk(self.inputs(now)))

    def forward(self, inputs: Array, action: Array) -> tuple[NumpyDistribution, Array, list[Activations]]:
        """The policy at flat inputs (R, width) with the actions taken, the values (R,), and what `backward` needs."""
        actor = self.actor_trunk.forward(inputs)
        critic = actor if self.is_shared else self.critic_trunk.forward(inputs)
        outputs, values = self.action_output.forward(actor[-1]), self.value_output.forward(critic[-1])
        policy = make_numpy_distribution(self.action_head, outputs[-1], action)
        return policy, values[-1][:, 0], [actor, critic, outputs, values]

    def backward(self, output_gradient: Array, value_gradient: Array, kept: list[Activations]) -> None:
        """Write all gradients, given those of the action head's outputs (R, size) and of the values (R,)."""
        actor, critic, outputs, values = kept
        actor_gradient = self.action_output.backward(output_gradient, outputs, wants_input=True)
        critic_gradient = self.value_output.backward(value_gradient[:, None], values, wants_input=True)
        assert actor_gradient is not None
        assert critic_gradient is not None
        if self.is_shared:
            self.actor_trunk.backward(actor_gradient + critic_gradient, actor)
        else:
            self.actor_trunk.backward(actor_gradient, actor)
            self.critic_trunk.backward(critic_gradient, critic)
