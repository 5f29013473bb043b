"""DreamerV3: learn a world model from replay and a policy from its dreams.

Hafner et al. 2023, "Mastering Diverse Domains through World Models", after the state of its code of 2025: one backward
pass through model, policy and value; the value is also learnt on replayed rows, and that gradient reaches the model.

Departures: the learning rate is not 0 at the very first step, choices of the policy get the paper's uniform mix (the
code leaves it out), and while evaluating the policy takes its best action instead of a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie import backend
from reverie.algos.dreamer_config import DreamerConfig
from reverie.controllers.latent_actor import LatentActor, LatentCritic
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.reads import Read, Window
from reverie.core.specs import Specs
from reverie.core.types import (
    NOTE,
    Array,
    Batch,
    Carry,
    Clock,
    Foreseen,
    Mode,
    Row,
    State,
    Update,
    WriteBack,
    is_last,
    observation_keys,
    random_array,
)  # fmt: skip
from reverie.data.rows import transitions, with_context
from reverie.functional.returns import imagined_return, td_lambda_return
from reverie.models.numpy_observer import NumpyObserver, runs_in_numpy
from reverie.models.rssm import Latent, Observed
from reverie.models.world_model import Dream, WorldModel
from reverie.nets.distributions import Distribution
from reverie.nets.laprop import step_together
from reverie.nets.layers import frozen
from reverie.nets.numpy_blocks import NumpyChain
from reverie.nets.part_norms import PartNorms

Tensors = Mapping[str, Tensor]
_LARGEST_TANH = 1 - 1e-6


class Dreamer:
    """An agent for all observations, and for discrete, multi-discrete, bounded continuous and mixed actions."""

    Config = DreamerConfig
    hooks = ("update", "update_world_model", "update_controller")

    def __init__(self, config: DreamerConfig, specs: Specs, rng: np.random.Generator) -> None:
        _check_actions(specs)
        self.config = config
        self.specs = specs
        with backend.seeded(rng):
            model = registry.load("model", config.model.kind)(config.model, specs)
            self.model: WorldModel = model.to(backend.device())
            self.actor = LatentActor(config.actor, model.features, specs.action).to(backend.device())
            self.critic = LatentCritic(config.critic, model.features).to(backend.device())
        scale = registry.load("return_scale", config.return_scale.kind)
        self.return_scale = scale(config.return_scale).to(backend.device())
        optimizer = registry.load("optimizer", config.optimizer.kind)
        self.model_optimizer = optimizer(config.optimizer, self.model.parameters())
        behaviour = [*self.actor.parameters(), *self.critic.value.parameters()]
        self.behaviour_optimizer = optimizer(config.optimizer, behaviour)
        self.observer = NumpyObserver(self.model) if runs_in_numpy(self.model) else None
        self.actor_layers = NumpyChain(*self.actor.layers, self.actor.output) if self.observer else None
        names = ("encoder", "rssm", "decoder", "reward", "continuation")
        self.model_parts = PartNorms({name: getattr(model, name) for name in names})
        self.behaviour_parts = PartNorms({"actor": self.actor, "critic": self.critic.value})

    @property
    def reads(self) -> dict[str, Read]:
        return dict.fromkeys(self.hooks, Window(self.config.batch_size, self.config.batch_length, context=1))

    @staticmethod
    def extras_of(config: DreamerConfig) -> Row:
        rssm = config.model.rssm
        stoch = np.zeros((1, rssm.stoch), np.uint8 if rssm.latents == "categorical" else np.float32)
        return {f"{NOTE}deter": np.zeros((1, rssm.deter), np.float32), f"{NOTE}stoch": stoch}

    @property
    def discount(self) -> float:
        return 1 - 1 / self.config.horizon

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return self._pack(self.model.initial(num_envs))

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        policy, after = self._look(now, carry, rng)
        noise = self._action_noise(rng, len(now["is_first"]))
        action = policy.mode() if mode is Mode.EVALUATE else self._explore(policy.sample(noise), rng)
        return action.cpu().numpy(), after, {f"{NOTE}{key}": value for key, value in after.items()}

    def _look(self, now: Row, carry: Carry, rng: np.random.Generator) -> tuple[Distribution, Carry]:
        """What the policy makes of the arriving rows, and the latent to carry on with."""
        count = len(now["is_first"])
        if self.observer is not None:
            seen = self.observer(now, carry, self.model.rssm.draw_noise(rng, count))
            output = torch.from_numpy(self.actor_layers(seen.features))
            return self.actor.distribution(output), {"deter": seen.deter, "stoch": seen.stoch}
        keys = (*observation_keys(now), "previous_action", "is_first")
        rows = backend.to_tensors({key: now[key][:, None] for key in keys})
        latent = self.model.observe(self._unpack(carry), rows, self._noise(rng, count, 1)).latent
        return self.actor(latent.features[:, 0]), self._pack(Latent(latent.deter[:, 0], latent.stoch[:, 0]))

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Model, policy and value in one backward pass, on rows (B, T + 1) of which the first gives the context."""
        start, rows = self._prepare(batch)
        observed = self.model.observe(start, rows, self._noise(rng, *rows["is_first"].shape))
        losses = self._model_losses(observed, rows)
        behaviour, metrics = self._behaviour_losses(observed, rows, rng)
        losses |= behaviour
        optimizers = (self.model_optimizer, self.behaviour_optimizer)
        parts = self.model_parts + self.behaviour_parts
        norms, watched = self._step(optimizers, losses, self._rates(clock), parts)
        self._follow()
        metrics |= self.model.watch(observed) | watched
        metrics |= {"model_grad_norm": norms[0], "behaviour_grad_norm": norms[1]}
        return Update(_report(losses, metrics), write_back=self._write_back(batch, observed))

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """The model alone, for phases."""
        start, rows = self._prepare(batch)
        observed = self.model.observe(start, rows, self._noise(rng, *rows["is_first"].shape))
        losses = self._model_losses(observed, rows)
        (norm,), watched = self._step([self.model_optimizer], losses, self._rates(clock)[:1], self.model_parts)
        metrics = self.model.watch(observed) | watched | {"model_grad_norm": norm}
        return Update(_report(losses, metrics), write_back=self._write_back(batch, observed))

    def update_controller(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Policy and value alone, for phases; the model stands still."""
        start, rows = self._prepare(batch)
        with torch.no_grad():
            observed = self.model.observe(start, rows, self._noise(rng, *rows["is_first"].shape))
        losses, metrics = self._behaviour_losses(observed, rows, rng)
        optimizers, rates = [self.behaviour_optimizer], self._rates(clock)[1:]
        (norm,), watched = self._step(optimizers, losses, rates, self.behaviour_parts)
        self._follow()
        return Update(_report(losses, {**metrics, **watched, "behaviour_grad_norm": norm}))

    def _model_losses(self, observed: Observed, rows: Tensors) -> dict[str, Tensor]:
        return self.model.losses(observed, rows, self.discount, self.config.free_nats)

    def _behaviour_losses(
        self, observed: Observed, rows: Tensors, rng: np.random.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Losses of policy and value, in dreams from every row and on the rows; and numbers to watch."""
        start = observed.latent.flatten()
        if self.config.dynamics_share:
            dream, slope = self._dream_through(start, rng)
        else:
            dream, slope = self._dream(start, self.config.imagine_steps, rng), None
        losses, returns, metrics = self._dream_losses(dream, slope)
        if self.config.loss_weights.replay_value:
            starts = returns[0].view(rows["is_first"].shape)
            losses["replay_value"] = self._replay_loss(observed.latent.features, rows, starts)
        return losses, metrics

    def _dream_through(self, start: Latent, rng: np.random.Generator) -> tuple[Dream, Tensor]:
        """A dream, and its returns (H, N) with their slope along what the policy did; model and value stand still."""
        steps, count, actions = self.config.imagine_steps, len(start.deter), []
        latent_noise, action_noise = self._noise(rng, steps, count), self._action_noise(rng, steps, count)

        def act(features: Tensor, step: int) -> Tensor:
            policy = self.actor(features.detach())
            actions.append(policy.sample(action_noise[step]).detach())
            return policy.through(action_noise[step])

        with frozen(self.model, self.critic):
            features = self.model.dream(start, act, latent_noise)
            prediction = self.model.predict_through(features[1:])
            critic = self.critic.slow if self.config.slow_targets else self.critic.value
            values = critic(features[1:]).expectation()
            returns = imagined_return(prediction.reward.T, values.T, prediction.continuation.T, self.config.gae_lambda)
        return Dream(features.detach(), torch.stack(actions)), returns.T

    def _dream_losses(
        self, dream: Dream, slope: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        """Losses (H, N), returns (H, N) and metrics; nothing of it reaches the model.

        ``slope`` are the same returns with a gradient, if the policy is to follow it.
        """
        features = dream.features
        value = self.critic(features[:-1])
        with torch.no_grad():
            if self.config.slow_targets:
                expected = self.critic.slow_mean(features)
            else:
                expected = torch.cat([value.mean(), self.critic.mean(features[-1:])])
            prediction = self.model.predict(features)
            reward, going_on = prediction.reward[1:], prediction.continuation
            returns = imagined_return(reward.T, expected[1:].T, going_on[1:].T, self.config.gae_lambda).T
            self.return_scale.update(returns)
            _, scale = self.return_scale()
            advantage = (returns - expected[:-1]) / scale
            weight = going_on.cumprod(0)[:-1]
            slow = self.critic.slow_mean(features[:-1])
        policy = self.actor(features[:-1].flatten(0, 1))
        log_prob = policy.log_prob(dream.actions.flatten(0, 1)).view_as(advantage)
        entropy = policy.entropy().view_as(advantage)
        gain = log_prob * advantage
        if slope is not None:
            gain = torch.lerp(gain, slope / scale, self.config.dynamics_share)
        to_return, to_slow = value.loss(returns, slow)
        losses = {
            "policy": -weight * (gain + self.config.entropy_weight * entropy),
            "value": weight * (to_return + self.config.slow_weight * to_slow),
        }
        metrics = {
            "entropy": entropy.mean(), "advantage_size": advantage.abs().mean(), "dream_reward": reward.mean(),
            "dream_continuation": going_on.mean(), "dream_return": returns.mean(), "dream_value": expected.mean(),
            "return_scale": scale,
        }  # fmt: skip
        return losses, returns, metrics

    def _replay_loss(self, features: Tensor, rows: Tensors, starts: Tensor) -> Tensor:
        """The value's error on the rows themselves (B, T - 1); ``starts`` are returns dreamt from each row (B, T)."""
        now, then, weight = transitions({**rows, "features": features, "dreamt": starts})
        returns = td_lambda_return(
            then["reward"], then["dreamt"], then["terminated"], is_last(then), weight, self.discount,
            self.config.gae_lambda,
        )  # fmt: skip
        seen = now["features"] if self.config.replay_value_gradient else now["features"].detach()
        to_return, to_slow = self.critic(seen).loss(returns, self.critic.slow_mean(seen))
        return weight * (to_return + self.config.slow_weight * to_slow)

    def _step(
        self, optimizers: Sequence[Any], losses: Mapping[str, Tensor], rates: Sequence[float], parts: PartNorms
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        return step_together(optimizers, self._total(losses), rates, parts, self.config.max_grad_norm)

    def _rates(self, clock: Clock) -> list[float]:
        """Step sizes of the model, and of policy and value."""
        behaviour = self.config.behaviour_learning_rate or self.config.learning_rate
        return [self.config.learning_rate.at(clock), behaviour.at(clock)]

    def _follow(self) -> None:
        """Let the slow value follow, if it is time to."""
        if self.behaviour_optimizer.steps % self.config.slow_every == 0:
            self.critic.follow(self.config.slow_rate)

    def _total(self, losses: Mapping[str, Tensor]) -> Tensor:
        weights = self.config.loss_weights
        return torch.stack([getattr(weights, name) * loss.mean() for name, loss in losses.items()]).sum()

    # ---------------------------------------------------------------- looking into the model

    @torch.no_grad()
    def observe(self, batch: Batch, rng: np.random.Generator) -> Latent:
        """The latents (B, T) of rows (B, T + 1) as an update sees them."""
        start, rows = self._prepare(batch)
        return self.model.observe(start, rows, self._noise(rng, *rows["is_first"].shape)).latent

    @torch.no_grad()
    def imagine(self, start: Latent, rng: np.random.Generator, actions: Array | None = None, steps: int = 15) -> Dream:
        """Dream on from N latents: with these actions (H, N, *shape), or ``steps`` with those of the policy."""
        if actions is None:
            return self._dream(start, steps, rng)
        given = torch.as_tensor(actions, device=backend.device())
        uniform = self._noise(rng, *given.shape[:2])
        return self.model.imagine(start, lambda features, step: given[step], uniform)

    def decode(self, latent: Latent | Tensor) -> dict[str, Array]:
        """Latents, or features of a dream, as observations."""
        if isinstance(latent, Tensor):
            latent = self.model.split(latent)
        return {key: value.cpu().numpy() for key, value in self.model.decode(latent).items()}

    @torch.no_grad()
    def foresee(self, batch: Batch, starts: Array, steps: int, rng: np.random.Generator) -> Foreseen:
        """What the model makes of whole rows (B, T), and dreams from N of them with the actions that followed."""
        rows = self._press_rewards(backend.to_tensors(batch))
        shape = rows["is_first"].shape
        observed = self.model.observe(self.model.initial(shape[0]), rows, self._noise(rng, *shape))
        env, time = torch.as_tensor(starts, device=backend.device()).T
        begin = Latent(*(part[env, time] for part in observed.latent))
        actions = rows["action"][env, time + torch.arange(steps, device=backend.device())[:, None]]  # (H, N)
        dream = self.imagine(begin, rng, actions.cpu().numpy())
        losses = {name: float(loss.mean()) for name, loss in self._model_losses(observed, rows).items()}
        return Foreseen(self._show(observed.latent.features), self._show(dream.features[1:].transpose(0, 1)), losses)

    @torch.no_grad()
    def held_out_metrics(self, hook: str, batch: Batch, clock: Clock, rng: np.random.Generator) -> dict[str, float]:
        """The model's losses on data that were kept from training; nothing is known of what came before them."""
        _, rows = self._prepare(batch)
        shape = rows["is_first"].shape
        observed = self.model.observe(self.model.initial(shape[0]), rows, self._noise(rng, *shape))
        return {f"loss_{name}": float(loss.mean()) for name, loss in self._model_losses(observed, rows).items()}

    def _show(self, features: Tensor) -> Row:
        """Features (...) as observations, rewards and the chance to go on."""
        prediction = self.model.predict(features)
        reward = prediction.reward
        if self.config.reward_transform == "tanh":  # back to the size that the env gives
            reward = reward.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
        chance = (prediction.continuation / self.discount).clamp(max=1)
        return {
            **self.decode(features),
            "reward": reward.cpu().numpy(),
            "continuation": chance.cpu().numpy(),
        }

    # ---------------------------------------------------------------- pieces

    def _dream(self, start: Latent, steps: int, rng: np.random.Generator) -> Dream:
        count = len(start.deter)
        uniform, noise = self._noise(rng, steps, count), self._action_noise(rng, steps, count)
        return self.model.imagine(start, lambda features, step: self.actor(features).sample(noise[step]), uniform)

    def _prepare(self, batch: Batch) -> tuple[Latent, dict[str, Tensor]]:
        """Where the stretches start, and their rows (B, T) on the device."""
        context, rows = with_context(backend.to_tensors(batch))
        rows = self._press_rewards(rows)
        notes = {key.removeprefix(NOTE): value for key, value in context.items() if key.startswith(NOTE)}
        if notes and self.config.replay_context:
            return self._unpack(notes), rows
        return self.model.initial(len(context["is_first"])), rows

    def _press_rewards(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**rows, "reward": rows["reward"].tanh()} if self.config.reward_transform == "tanh" else rows

    def _write_back(self, batch: Batch, observed: Observed) -> WriteBack | None:
        """The new latents for the rows they belong to."""
        if "id" not in batch:
            return None
        notes = {f"{NOTE}{key}": value for key, value in self._pack(observed.latent).items()}
        return WriteBack(np.asarray(batch["id"])[:, 1:], notes)

    def _pack(self, latent: Latent) -> Row:
        """A latent as it is stored."""
        return self.model.rssm.pack(latent)

    def _unpack(self, notes: Mapping[str, Any]) -> Latent:
        return self.model.rssm.unpack(backend.to_tensors(notes))

    def _noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        """Noise of the latents."""
        return torch.as_tensor(self.model.rssm.draw_noise(rng, *leading), device=backend.device())

    def _explore(self, action: Tensor, rng: np.random.Generator) -> Tensor:
        """Continuous actions with some noise, if it is wanted."""
        if not self.config.explore_noise or self.specs.action.kind != "continuous":
            return action
        noise = torch.as_tensor(random_array(rng, *action.shape), device=backend.device())
        return (action + self.config.explore_noise * noise).clamp(-1, 1)

    def _action_noise(self, rng: np.random.Generator, *leading: int) -> Tensor:
        return torch.as_tensor(self.actor.draw_noise(rng, *leading), device=backend.device())

    # ---------------------------------------------------------------- memory

    def policy_state(self) -> State:
        return {"model": backend.module_state(self.model), "actor": backend.module_state(self.actor)}

    def load_policy_state(self, state: State) -> None:
        backend.load_module_state(self.model, state["model"])
        backend.load_module_state(self.actor, state["actor"])

    def state(self) -> State:
        return {
            **self.policy_state(),
            "critic": backend.module_state(self.critic),
            "return_scale": backend.module_state(self.return_scale),
            "model_optimizer": self.model_optimizer.state(),
            "behaviour_optimizer": self.behaviour_optimizer.state(),
        }

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        backend.load_module_state(self.critic, state["critic"])
        backend.load_module_state(self.return_scale, state["return_scale"])
        self.model_optimizer.load_state(state["model_optimizer"])
        self.behaviour_optimizer.load_state(state["behaviour_optimizer"])


def _report(losses: Mapping[str, Tensor], metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Means of the losses beside the other numbers."""
    means = {f"loss_{name}": loss.detach().mean() for name, loss in losses.items()}
    return {**means, **{name: value.detach() for name, value in metrics.items()}}


def _check_actions(specs: Specs) -> None:
    if any(part.kind == "continuous" and not part.is_scaled for part in specs.action.parts or (specs.action,)):
        raise ConfigError(
            "Dreamer needs bounded actions; this env's bounds are infinite.",
            "Wrap the env with gymnasium.wrappers.RescaleAction, or try ppo.",
        )
