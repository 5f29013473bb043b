"""The part of Dreamer that acts: networks, carry, and its policy in the env and in imagination."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import ImaginationNoise
from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.dreamer_state import with_current_names
from reverie.algos.rssm_agent import RSSMAgent
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.core.types import NOTE, Array, Carry, Clock, Mode, Row, State, random_array
from reverie.models.latent import Decision, Policy
from reverie.models.numpy_observer import NumpyObserver, runs_in_numpy
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.backend_module import place
from reverie.nets.distributions import Distribution
from reverie.nets.numpy.blocks import NumpyChain
from reverie.nets.one_hot import Features


class DreamerAgent(RSSMAgent):
    """World model, actor and critic, and how they act."""

    def __init__(
        self, config: DreamerConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        with seeded(rng):
            model = registry.load("model", config.model.kind)(config.model, specs)
            self.model: RSSMWorldModel = place(model, backend)
            self.actor = place(LatentActor(config.actor, model.features, specs.action), backend)
            self.critic = place(LatentCritic(config.critic, model.features), backend)
        self.has_critic = True
        self.observer: NumpyObserver | None = None
        self.actor_layers: NumpyChain | None = None

    def use_numpy_engine(self) -> None:
        """Act in numpy if the run does so. Call it after the optimisers are made: they move the weights."""
        if runs_in_numpy(self.model, self.backend):
            self.observer = NumpyObserver(self.model)
            self.actor_layers = NumpyChain(*self.actor.layers, self.actor.output)

    @staticmethod
    def extras_of(config: DreamerConfig) -> Row:
        rssm = config.model.rssm
        stoch = np.zeros((1, rssm.stoch), np.uint8 if rssm.latents == "categorical" else np.float32)
        return {f"{NOTE}deter": np.zeros((1, rssm.deter), np.float32), f"{NOTE}stoch": stoch}

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        policy, after = self._observe_row(now, carry, rng)
        noise = self.action_noise(rng, len(now["is_first"]))
        action = policy.mode() if mode is Mode.EVALUATE else self._explore(policy.sample(noise), rng)
        return action.cpu().numpy(), after, {f"{NOTE}{key}": value for key, value in after.items()}

    def _observe_row(self, now: Row, carry: Carry, rng: np.random.Generator) -> tuple[Distribution, Carry]:
        """The policy after the arriving rows (N, ...), and the next carry."""
        count = len(now["is_first"])
        if self.observer is not None and self.actor_layers is not None:
            found = self.observer(now, carry, self.model.rssm.sample_noise(rng, count))
            outputs = torch.from_numpy(self.actor_layers(found.features))
            return self.actor.distribution(outputs), {"deter": found.deter, "stoch": found.stoch}
        latent = self.observe_arriving(now, carry, rng)
        return self.actor(latent.features), self.model.rssm.pack(latent)

    def _explore(self, action: Tensor, rng: np.random.Generator) -> Tensor:
        """Add exploration noise to continuous actions."""
        if not self.config.exploration_noise or self.specs.action.kind != "continuous":
            return action
        noise = self.backend.to_tensor(random_array(rng, *action.shape))
        return (action + self.config.exploration_noise * noise).clamp(-1, 1)

    def action_noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        return self.backend.to_tensor(self.actor.sample_noise(rng, *leading))

    def imagination_noise(self, rng: np.random.Generator, steps: int, count: int) -> ImaginationNoise:
        latent = self.latent_noise(rng, steps, count)
        return ImaginationNoise(latent, self.action_noise(rng, steps, count))

    def sampling_policy(self, noise: Tensor) -> Policy:
        """Samples imagined actions with noise (H, N, A). Its outputs have a gradient, for the policy loss."""
        has_gradient = torch.is_grad_enabled()

        def decide(features: Features, step: int) -> Decision:
            with torch.set_grad_enabled(has_gradient):  # imagination itself runs without gradients
                output = self.actor.compute(features)
            return Decision(self.actor.distribution(output.detach()).sample(noise[step]), output)

        return decide

    def reparameterised_policy(self, noise: Tensor) -> Policy:
        """Like :meth:`sampling_policy`, with differentiable encoded actions."""

        def decide(features: Tensor, step: int) -> Decision:
            output = self.actor.compute(features.detach())
            policy = self.actor.distribution(output)
            return Decision(policy.sample(noise[step]).detach(), output, policy.rsample(noise[step]))

        return decide

    def policy_state(self) -> State:
        return {"model": module_state(self.model), "actor": module_state(self.actor)}

    def load_policy_state(self, state: State) -> None:
        self.has_critic = False  # policies are saved without
        load_module_state(self.model, with_current_names(state["model"]))
        load_module_state(self.actor, state["actor"])
