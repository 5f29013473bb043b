"""The part of Dreamer that acts: networks, carry, and its policy in the env and in imagination."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import ImaginationNoise
from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.dreamer_state import with_current_names
from reverie.algos.rssm_planning import RSSMPlanning
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.errors import RunError
from reverie.core.specs import Specs
from reverie.core.types import NOTE, Array, Carry, Clock, Mode, Row, State, random_array
from reverie.models.latent import Decision, Latent, Policy
from reverie.models.numpy_observer import NumpyObserver, runs_in_numpy
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.backend_module import to_backend
from reverie.nets.distributions import Distribution
from reverie.nets.numpy.blocks import NumpyChain
from reverie.nets.one_hot import Features
from reverie.planners.acting import PLAN
from reverie.planners.model_returns import Outcome, repeat_each


class DreamerAgent(RSSMPlanning):
    """World model, actor and critic, and how they act."""

    config: DreamerConfig

    def __init__(
        self, config: DreamerConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        self.config = config
        self.specs = specs
        self.backend = backend
        self.make_planner()  # refuses actions that it cannot plan
        with seeded(rng):
            model = registry.load("model", config.model.kind)(config.model, specs)
            self.model: RSSMWorldModel = to_backend(model, backend)
            self.actor = to_backend(LatentActor(config.actor, model.features, specs.action), backend)
            self.critic = to_backend(LatentCritic(config.critic, model.features), backend)
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
        extras, planner = {f"{NOTE}{key}": value for key, value in after.items()}, self.make_planner()
        if planner is not None:
            latent = self.model.rssm.unpack(self.backend.to_tensors(after))
            found = self.plan_actions(planner, latent, now, carry[PLAN], clock, rng, mode)
            planned = torch.from_numpy(found.action)
            action = self._explore(planned, rng) if mode is Mode.COLLECT else planned
            return action.numpy(), {**after, PLAN: found.plans}, extras | found.extras
        noise = self.action_noise(rng, len(now["is_first"]))
        action = policy.mode() if mode is Mode.EVALUATE else self._explore(policy.sample(noise), rng)
        return action.cpu().numpy(), after, extras

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
        noise = torch.from_numpy(random_array(rng, *action.shape)).to(action.device)
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

    # ---------------------------------------------------------------- planning

    def outcome(self, features: Features) -> Outcome:
        """Rewards, discounted continuation, and the critic's value of the last state."""
        return Outcome(*self.model.predict(features[1:]), self.critic.mean(features[-1]))

    def policy_candidates(self, latent: Latent, rng: np.random.Generator) -> Tensor | None:
        planner: Any = self.config.planner
        count, samples = len(latent.deter), planner.policy_samples
        if not samples:
            return None
        noise = self.imagination_noise(rng, planner.horizon, count * samples)
        policy = self.sampling_policy(noise.action)
        imagined = self.model.imagine(repeat_each(latent, samples), policy, noise.latent)
        candidates: Tensor = self.model.action_input(imagined.actions).clamp(-1, 1).unflatten(1, (count, samples))
        return candidates

    # ---------------------------------------------------------------- state

    def policy_state(self) -> State:
        """With a planner, also the critic, which values the last states of plans."""
        found = {"model": module_state(self.model), "actor": module_state(self.actor)}
        return found if self.make_planner() is None else {**found, "value": module_state(self.critic.value)}

    def load_policy_state(self, state: State) -> None:
        self.has_critic = "value" in state  # other policies are saved without
        load_module_state(self.model, with_current_names(state["model"]))
        load_module_state(self.actor, state["actor"])
        if self.has_critic:
            load_module_state(self.critic.value, state["value"])
        elif self.make_planner() is not None and "critic" not in state:
            raise RunError(
                "These weights hold no critic, which values the last states of plans.",
                "Act with the policy (algorithm.planner=none), or continue the run itself.",
            )
