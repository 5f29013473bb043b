"""Behaviour cloning of action chunks: a toy algorithm with a queue in its carry, scaled actions and EMA weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from reverie.agents.action_chunks import ActionChunks
from reverie.agents.action_scaling import ActionScaling
from reverie.backend import load_module_state, module_state, seeded
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Episodes, Read, Window
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update
from reverie.nets.ema import EMA
from reverie.nets.optim import Adam, Loss


class ToyChunks:
    """Predicts the next ``chunk`` actions from one observation."""

    class Config(ComponentConfig):
        """Sizes."""

        kind: str = "tests.toy_chunks.ToyChunks"
        """This class."""
        chunk: int = 4
        """Actions that are planned at once."""

    traits = Traits(actions=("continuous",), observes=True, prepares=True)

    def __init__(self, config: Config, specs: Specs, rng: np.random.Generator) -> None:
        self.config: Any = config
        self.chunks = ActionChunks(config.chunk, specs.action)
        self.scaling = ActionScaling(specs.action)
        self.shape = specs.action.shape
        with seeded(rng):
            self.network = nn.Linear(specs.observations["obs"].shape[0], config.chunk * specs.action.size)
        self.optimizer = Adam(Adam.Config(), self.network.parameters())
        self.ema = EMA(self.network, decay=0.9)

    @property
    def reads(self) -> Mapping[str, Read]:
        return {"update": Window(16, self.config.chunk)}

    def initial_carry(self, num_envs: int) -> Carry:
        return self.chunks.initial_carry(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        if mode is Mode.OBSERVE:
            return np.zeros((len(now["is_first"]), *self.shape), np.float32), self.chunks.drop(carry), {}
        network = self.ema.average if mode is Mode.EVALUATE else self.network
        action, carry = self.chunks.next_actions(now, carry, lambda rows: self.plan(network, rows))
        return action, carry, {}

    @torch.no_grad()
    def plan(self, network: nn.Module, rows: Row) -> Array:
        """Chunks (M, chunk, ...) in the env's scale."""
        scaled = network(torch.as_tensor(rows["obs"])).numpy()
        return self.scaling.unscale(scaled.reshape(len(scaled), -1, *self.shape))

    def prepare(self, buffers: Mapping[str, Any]) -> None:
        """Read the range of the actions from the episodes that the buffer holds when a phase starts."""
        if buffers["main"].can_sample(Episodes()):
            self.scaling.fit(buffers["main"].sample(Episodes(), {}, make_generator("unused")))

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        result = self.optimizer.minimise(self.loss, [batch], 1e-2)
        self.ema.update()
        return Update(result.metrics)

    def loss(self, batch: Batch) -> Loss:
        """Squared error of the actions (B, chunk) that follow the first row in the same episode."""
        actions = torch.as_tensor(self.scaling.scale(batch["action"]))
        is_later = np.cumsum(batch["is_first"][:, 1:], 1) > 0  # belongs to another episode
        is_final = batch["terminated"] | batch["truncated"]
        weight = torch.as_tensor(~is_final & ~np.pad(is_later, ((0, 0), (1, 0))), dtype=torch.float32)
        predicted = self.network(torch.as_tensor(batch["obs"][:, 0])).view_as(actions)
        error = ((predicted - actions).square().mean(-1) * weight).sum() / weight.sum().clamp(min=1)
        return Loss(error, {"loss": error})

    def policy_state(self) -> State:
        return {"network": module_state(self.network), "ema": self.ema.state(), "action_scaling": self.scaling.state()}

    def load_policy_state(self, state: State) -> None:
        load_module_state(self.network, state["network"])
        self.ema.load_state(state["ema"])
        self.scaling.load_state(state["action_scaling"])

    def state(self) -> State:
        return {**self.policy_state(), "optimizer": self.optimizer.state()}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.optimizer.load_state(state["optimizer"])
