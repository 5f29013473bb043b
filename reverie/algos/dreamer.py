"""DreamerV3: learn a world model from replay and a policy from its dreams.

Hafner et al. 2023, "Mastering Diverse Domains through World Models", after the state of its code of 2025: one backward
pass through model, policy and value; the value is also learnt on replayed rows, and that gradient reaches the model.

Departures: the learning rate is not 0 at the very first step, choices of the policy get the paper's uniform mix (the
code leaves it out), while evaluating the policy takes its best action instead of a sample, and the decoder's images
start at the mean brightness of the first batch instead of at a half (``images_start``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie import backend
from reverie.agents.latent_actor import LatentActor, LatentCritic
from reverie.algos.dreamer_batch import Part, join, latent_noise, mean_of, prepare, weigh, write_back
from reverie.algos.dreamer_behaviour import Behaviour
from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.dreamer_looks import Looks
from reverie.core import registry
from reverie.core.errors import ConfigError, RunError
from reverie.core.reads import Read, Window
from reverie.core.specs import Specs
from reverie.core.types import (
    NOTE,
    Array,
    Batch,
    Carry,
    Clock,
    Mode,
    Row,
    State,
    Update,
    observation_keys,
    random_array,
)  # fmt: skip
from reverie.models.numpy_observer import NumpyObserver, runs_in_numpy
from reverie.models.rssm import Latent, Observed
from reverie.models.world_model import WorldModel
from reverie.nets.distributions import Distribution
from reverie.nets.laprop import step_together
from reverie.nets.numpy.blocks import NumpyChain
from reverie.nets.part_norms import PartNorms
from reverie.nets.scaling import NoScale

STORED_LATENTS = 2
"""The form of latents in carries and replay. In form 1 the first class was 0, which also stood for none."""


class Told(NamedTuple):
    """What a look at some rows tells: losses per row or step of a dream, and means to watch."""

    observed: Observed
    losses: dict[str, Tensor]
    metrics: dict[str, Tensor]


Look = Callable[[Part], Told]


class Dreamer(Looks):
    """An agent for all observations, and for discrete, multi-discrete, bounded continuous and mixed actions."""

    Config = DreamerConfig
    hooks = ("update", "update_world_model", "update_controller")
    uses_microbatches = True
    uses_priorities = True
    uses_bfloat16 = True

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
    def behaviour(self) -> Behaviour:
        """Policy and value with the settings of this moment: phases may change them."""
        return Behaviour(self.config, self.model, self.actor, self.critic, self.return_scale)

    # ---------------------------------------------------------------- acting

    def initial_carry(self, num_envs: int) -> Carry:
        return self._pack(self.model.initial(num_envs))

    @torch.inference_mode()
    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        policy, after = self._look(now, carry, rng)
        noise = self.behaviour.action_noise(rng, len(now["is_first"]))
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
        before = self.model.rssm.unpack(backend.to_tensors(carry))
        latent = self.model.observe(before, rows, latent_noise(self.model, rng, count, 1)).latent
        return self.actor(latent.features[:, 0]), self._pack(Latent(latent.deter[:, 0], latent.stoch[:, 0]))

    def _explore(self, action: Tensor, rng: np.random.Generator) -> Tensor:
        """Continuous actions with some noise, if it is wanted."""
        if not self.config.explore_noise or self.specs.action.kind != "continuous":
            return action
        noise = torch.as_tensor(random_array(rng, *action.shape), device=backend.device())
        return (action + self.config.explore_noise * noise).clamp(-1, 1)

    def _pack(self, latent: Latent) -> Row:
        """A latent as it is stored."""
        return self.model.rssm.pack(latent)

    # ---------------------------------------------------------------- learning

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Model, policy and value in one backward pass, on rows (B, T + 1) of which the first gives the context."""
        surprise: list[Tensor] = []

        def look(part: Part) -> Told:
            observed, losses = self._judge_model(part, surprise)  # first: it decides in which order gradients add up
            behaviour, metrics = self.behaviour.losses(observed.latent, part)
            return Told(observed, losses | behaviour, metrics)

        parts = self._cut(batch, rng)
        self._take_in_returns(parts)
        observed, metrics = self._learn(parts, look, ("model", "behaviour"), clock)
        self._follow()
        return Update(metrics, write_back=write_back(batch, observed, self.model, surprise))

    def update_world_model(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """The model alone, for phases."""
        surprise: list[Tensor] = []

        def look(part: Part) -> Told:
            return Told(*self._judge_model(part, surprise), {})

        observed, metrics = self._learn(self._cut(batch, rng, dreams=False), look, ("model",), clock)
        return Update(metrics, write_back=write_back(batch, observed, self.model, surprise))

    def update_controller(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Policy and value alone, for phases; the model stands still."""

        def look(part: Part) -> Told:
            with torch.no_grad():
                observed = self._observe(part)
            return Told(observed, *self.behaviour.losses(observed.latent, part))

        parts = self._cut(batch, rng)
        self._take_in_returns(parts)
        _, metrics = self._learn(parts, look, ("behaviour",), clock)
        self._follow()
        return Update(metrics)

    def _cut(self, batch: Batch, rng: np.random.Generator, dreams: bool = True) -> list[Part]:
        """The batch in as many parts as the backend wants; what is drawn does not depend on their number."""
        start, rows = prepare(batch, self.model, self.config)
        count, length = rows["is_first"].shape
        noise = latent_noise(self.model, rng, count, length)
        drawn = self.behaviour.draw_noise(rng, self.config.imagine_steps, count * length) if dreams else None
        return Part(start, rows, noise, drawn).cut()

    def _observe(self, part: Part) -> Observed:
        return self.model.observe(part.start, part.rows, part.noise)

    def _judge_model(self, part: Part, surprise: list[Tensor]) -> tuple[Observed, dict[str, Tensor]]:
        """What the model observes, and its losses per row; all of them together (B, T) are added to ``surprise``."""
        observed = self._observe(part)
        losses, weights = self.model_losses(observed, part.rows), self.config.loss_weights
        surprise.append(torch.stack([getattr(weights, name) * loss.detach() for name, loss in losses.items()]).sum(0))
        return observed, weigh(losses, part.rows)

    @torch.no_grad()
    def _take_in_returns(self, parts: Sequence[Part]) -> None:
        """Show the scale of returns those of all parts, before any part learns from them.

        Of a batch in one piece it learns on the way. With more this takes another look at each, without gradients.
        """
        if len(parts) == 1 or isinstance(self.return_scale, NoScale):
            return
        returns = [self.behaviour.returns(self._observe(part).latent, part) for part in parts]
        self.return_scale.update(torch.cat(returns, 1))

    def _learn(
        self, parts: Sequence[Part], look: Look, names: Sequence[str], clock: Clock
    ) -> tuple[Observed, dict[str, Tensor]]:
        """One step of the named optimisers on what all parts tell; what was observed, and the metrics."""
        seen: list[Observed] = []
        reports: list[dict[str, Tensor]] = []

        def losses() -> Iterator[Tensor]:
            for part in parts:
                told = look(part)
                seen.append(told.observed.detach())
                reports.append(_report(told))
                yield part.share * self._total(told.losses)

        if "model" in names and self.model_optimizer.steps == 0 and self.config.images_start == "mean":
            self.model.decoder.start_at_mean([part.rows for part in parts])
        optimizers = [getattr(self, f"{name}_optimizer") for name in names]
        watched = sum((getattr(self, f"{name}_parts") for name in names), PartNorms({}))
        rates = [self._rate(name, clock) for name in names]
        norms, found = step_together(optimizers, losses(), rates, watched, self.config.max_grad_norm)
        metrics, observed = mean_of(reports, [part.share for part in parts]), join(seen)
        if "model" in names:
            metrics |= self.model.watch(_counted(observed, parts))
        grad_norms = {f"{name}_grad_norm": norm for name, norm in zip(names, norms, strict=True)}
        return observed, metrics | found | grad_norms

    def _rate(self, name: str, clock: Clock) -> float:
        """Step size of the model, or of policy and value."""
        own = self.config.behaviour_learning_rate if name == "behaviour" else None
        return (own or self.config.learning_rate).at(clock)

    def _follow(self) -> None:
        """Let the slow value follow, if it is time to."""
        if self.behaviour_optimizer.steps % self.config.slow_every == 0:
            self.critic.follow(self.config.slow_rate)

    def _total(self, losses: dict[str, Tensor]) -> Tensor:
        weights = self.config.loss_weights
        return torch.stack([getattr(weights, name) * loss.mean() for name, loss in losses.items()]).sum()

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
            "stored_latents": STORED_LATENTS,
        }

    def load_state(self, state: State) -> None:
        if self.config.model.rssm.latents == "categorical" and state.get("stored_latents", 1) != STORED_LATENTS:
            raise RunError(
                "The checkpoint keeps latents in replay in another form, in which they would be read as other ones.",
                "Start a new run with --init-from, which takes over the weights of this one.",
            )
        self.load_policy_state(state)
        backend.load_module_state(self.critic, state["critic"])
        backend.load_module_state(self.return_scale, state["return_scale"])
        self.model_optimizer.load_state(state["model_optimizer"])
        self.behaviour_optimizer.load_state(state["behaviour_optimizer"])


def _counted(observed: Observed, parts: Sequence[Part]) -> Observed:
    """What was observed in rows that count: all of it, or one sequence of the rest."""
    if "weight" not in parts[0].rows:
        return observed
    counts = torch.cat([part.rows["weight"] for part in parts]) > 0
    latent, posterior = observed
    return Observed(Latent(*(values[counts][None] for values in latent)), posterior[counts][None])


def _report(told: Told) -> dict[str, Tensor]:
    """Means of the losses beside the other numbers."""
    means = {f"loss_{name}": loss.detach().mean() for name, loss in told.losses.items()}
    return {**means, **{name: value.detach() for name, value in told.metrics.items()}}


def _check_actions(specs: Specs) -> None:
    if any(part.kind == "continuous" and not part.is_scaled for part in specs.action.parts or (specs.action,)):
        raise ConfigError(
            "Dreamer needs bounded actions; this env's bounds are infinite.",
            "Wrap the env with gymnasium.wrappers.RescaleAction, or try ppo.",
        )
