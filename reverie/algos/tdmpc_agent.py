"""The part of TD-MPC and TD-MPC2 that acts: networks, and plans made with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.agents.noisy_policy import NoisyPolicy
from reverie.agents.policy_prior import PolicyPrior
from reverie.algos.tdmpc2_config import TDMPC2Config
from reverie.algos.tdmpc_config import TDMPCConfig
from reverie.backend import DEFAULT, Backend, load_module_state, module_state, seeded
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.core.types import Array, Carry, Clock, Mode, Row, State, observation_keys, random_array
from reverie.functional.horizon import discount_of
from reverie.models.latent_mlp import LatentMLP
from reverie.models.told import TOLD
from reverie.nets.backend_module import to_backend
from reverie.nets.q_ensemble import QEnsemble
from reverie.nets.twin_values import TwinValues
from reverie.planners.acting import PLAN, Lookahead, plan_acting
from reverie.planners.model_returns import Outcome, predicted_return
from reverie.planners.planner import Planner

BLOCK_ROWS = 1024
"""Candidates that are scored at a time on a CPU, so that a layer's output stays in the processor's cache."""


class ScoreNoise(NamedTuple):
    """What a score draws: noise for the actions after the horizon, and which Q-functions value them."""

    final: Tensor  # (I, N, C, W)
    pairs: Sequence[tuple[int, ...]]  # (I)


class Networks(NamedTuple):
    """The networks of an agent."""

    model: Any
    critics: Any
    policy: Any


class TDMPCAgent:
    """World model, Q-functions and policy, and how they act."""

    model: LatentMLP | TOLD
    critics: QEnsemble | TwinValues
    policy: PolicyPrior | NoisyPolicy

    def __init__(
        self, config: TDMPC2Config | TDMPCConfig, specs: Specs, rng: np.random.Generator, backend: Backend = DEFAULT
    ) -> None:
        self.config: Any = config
        self.specs = specs
        self.backend = backend
        with seeded(rng):
            self.model, self.critics, self.policy = (to_backend(part, backend) for part in self.make_networks())
        planner = registry.load("planner", config.planner.kind)(config.planner, specs.action)
        self.planner: Planner | None = planner if isinstance(planner, Planner) else None

    def make_networks(self) -> Networks:
        """World model, Q-functions and policy, before they are moved to a device."""
        raise NotImplementedError

    def q_values(self, latent: Tensor, action: Tensor, members: Sequence[int] | None = None) -> Tensor:
        """Values (Q, N) of actions (N, W)."""
        raise NotImplementedError

    def final_values(self, latent: Tensor, action: Tensor, members: Sequence[int]) -> Tensor:
        """What is expected (N) after the horizon of a plan, from the Q-functions ``members``."""
        raise NotImplementedError

    @property
    def gamma(self) -> float:
        """The discount."""
        config = self.config
        if config.gamma != "auto":
            return float(config.gamma)
        steps = self.specs.max_episode_steps
        if steps is None:
            return float(config.gamma_high)
        return discount_of(steps, config.gamma_low, config.gamma_high)

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return {} if self.planner is None else {PLAN: self.planner.initial_carry(num_envs)}

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        count = len(now["is_first"])
        if mode is Mode.OBSERVE:  # a controller acts, so no plan is needed
            return self.specs.action.zeros(count), self.initial_carry(count), {}
        if self.planner is None:
            policy = self.policy(self._encode(now))
            action = policy.mode() if mode is Mode.EVALUATE else policy.sample(self.noise(rng, count))
            return action.cpu().numpy(), {}, {}
        found = plan_acting(
            self.planner, lambda envs: self.look_ahead(now, envs, rng), now, carry[PLAN], clock, rng
        )  # fmt: skip
        if found.plan is not None and mode is not Mode.EVALUATE:
            noise = found.plan.proposal.std[0] * self.noise(rng, len(found.envs))
            noisy = self.planner.actions.decode((found.plan.action + noise).clamp(-1, 1))
            found.action[found.envs] = noisy.cpu().numpy()
        return found.action, {PLAN: found.plans}, found.extras

    def look_ahead(self, now: Row, envs: Array, rng: np.random.Generator) -> Lookahead:
        """What plans for some of the envs need."""
        latent = self._encode({key: values[envs] for key, values in now.items()})
        candidates = self.propose(latent, rng)
        drawn = self.score_noise(rng, len(envs))
        return Lookahead(
            lambda actions, iteration: self.score(latent, actions, drawn, iteration), self.backend.device, candidates
        )  # fmt: skip

    def _encode(self, now: Row) -> Tensor:
        return self.model.encode(self.backend.to_tensors({key: now[key] for key in observation_keys(now)}))

    def noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        """Standard normal noise (*leading, W) for actions."""
        return self.backend.to_tensor(random_array(rng, *leading, self.specs.action.width))

    # ---------------------------------------------------------------- planning, without gradient

    def propose(self, latent: Tensor, rng: np.random.Generator) -> Tensor | None:
        """Candidates (H, N, P, W) by the policy, which acts in the model from latents (N, L)."""
        assert self.planner is not None
        config = self.planner.config
        samples, horizon = config.policy_samples, config.horizon
        if not samples:
            return None
        latent = latent.repeat_interleave(samples, 0)  # (N * P, L)
        actions = []
        for step, noise in enumerate(self.noise(rng, horizon, len(latent))):
            actions.append(self.policy(latent).rsample(noise))
            if step < horizon - 1:
                latent = self.model.next(latent, actions[-1])
        return torch.stack(actions).view(horizon, -1, samples, actions[0].shape[-1])

    def score_noise(self, rng: np.random.Generator, num_envs: int) -> ScoreNoise:
        """All noise that :meth:`score` needs for one plan."""
        assert self.planner is not None
        config = self.planner.config
        final = self.noise(rng, config.iterations, num_envs, config.samples)
        return ScoreNoise(final, [self.critics.sample_pair(rng) for _ in range(config.iterations)])

    def score(self, latent: Tensor, candidates: Tensor, drawn: ScoreNoise, iteration: int) -> Tensor:
        """Predicted returns (N, C) of candidates (H, N, C, W) from latents (N, L)."""
        samples = candidates.shape[2]
        size = max(1, BLOCK_ROWS // samples) if candidates.device.type == "cpu" else len(latent)
        blocks = zip(latent.split(size), candidates.split(size, 1), drawn.final[iteration].split(size), strict=True)
        pair = drawn.pairs[iteration]
        scores = [
            predicted_return(*self.imagine_returns(start, actions.flatten(1, 2), noise.flatten(0, 1), pair))
            for start, actions, noise in blocks
        ]
        return torch.cat(scores).view(-1, samples)

    def imagine_returns(self, start: Tensor, actions: Tensor, noise: Tensor, pair: Sequence[int]) -> Outcome:
        """What actions (H, N * C, W) lead to from latents (N, L), with the policy's value after the last of them."""
        rewards, continues = [], []
        latent, reward = self.model.step_shared(start, actions[0])
        for step in range(len(actions)):
            if step:
                latent, reward = self.model.step(latent, actions[step])
            rewards.append(reward)
            continues.append(self.gamma * (self.model.continuation(latent) >= 0.5))
        final = self.policy(latent).rsample(noise)
        return Outcome(torch.stack(rewards), torch.stack(continues), self.final_values(latent, final, pair))

    # ---------------------------------------------------------------- state

    def policy_state(self) -> State:
        """The Q-functions belong to it: plans need them."""
        return {name: module_state(getattr(self, name)) for name in ("model", "critics", "policy")}

    def load_policy_state(self, state: State) -> None:
        for name in ("model", "critics", "policy"):
            load_module_state(getattr(self, name), state[name])
