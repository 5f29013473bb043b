"""Variants of Dreamer: their components, where their gradients go, and that the presets learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dreamer import Dreamer
from reverie.algos.dreamer_batch import prepare
from reverie.api import make_config
from reverie.core.rng import make_generator
from reverie.core.types import NOTE, Clock, Mode
from tests.unit.algos.batches import BOX, DISCRETE, column_of, random_rows
from tests.unit.algos.test_dreamer import ACTIONS, SMALL, all_weights, learn, make, make_batch, weights

GAUSSIAN = {**SMALL["model"], "rssm": {**SMALL["model"]["rssm"], "latents": "gaussian"}}
NORMAL = {**GAUSSIAN, "reward": {"units": 6, "output": "normal"}}
SMOOTH: dict[str, Any] = {
    "model": NORMAL, "critic": {"layers": 1, "units": 6, "output": "normal"}, "reparameterised_weight": 1.0,
    "entropy_weight": 0.0, "return_scale": {"kind": "none"}, "bootstrap_from_target": True,
    "actor": {"layers": 1, "units": 6, "output_scale": 1.0, "distribution": "tanh_normal"},
}  # fmt: skip


def gaussian_batch(agent: Dreamer, seed: int = 0) -> Any:
    batch = make_batch(agent, seed)
    batch["note/stoch"] = make_generator(seed, "stoch").standard_normal((2, 6, 3)).astype(np.float32)
    return batch


def only_the_policy(agent: Dreamer) -> None:
    none = dict.fromkeys(type(agent.config.loss_weights).model_fields, 0.0)
    chosen = type(agent.config.loss_weights)(**{**none, "policy": 1.0})
    agent.config = agent.config.model_copy(update={"loss_weights": chosen})


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("action", ACTIONS)
def test_reparameterised_gradients_train_the_actor_only(action: str, weight: float) -> None:
    agent = make(ACTIONS[action], reparameterised_weight=weight, entropy_weight=0.0)
    only_the_policy(agent)
    agent.update(make_batch(agent), Clock(), make_generator(1, "noise"))
    assert (agent.model_optimizer.gradient == 0).all()
    assert all((parameter.grad == 0).all() for parameter in agent.critic.value.parameters())
    assert all((parameter.grad != 0).any() for parameter in agent.actor.parameters())
    assert all(each.requires_grad for each in (*agent.model.parameters(), *agent.critic.value.parameters()))
    assert not any(parameter.requires_grad for parameter in agent.critic.target.parameters())


@pytest.mark.parametrize("action", ACTIONS)
def test_auto_reparameterises_continuous_actions_only(action: str) -> None:
    automatic, chosen = (
        make(ACTIONS[action], reparameterised_weight=weight) for weight in ("auto", 1.0 if action == "box" else 0.0)
    )
    learn(automatic, make_batch(automatic))
    learn(chosen, make_batch(chosen))
    assert torch.equal(weights(automatic.actor), weights(chosen.actor))


def test_the_model_learns_the_same_with_either_policy_gradient() -> None:
    plain, sloped = make(replay_value_gradient=False), make(replay_value_gradient=False, reparameterised_weight=1.0)
    learn(plain, make_batch(plain))
    learn(sloped, make_batch(sloped))
    assert torch.equal(weights(plain.model), weights(sloped.model))
    assert not torch.equal(weights(plain.actor), weights(sloped.actor))


def test_the_reparameterised_gradient_equals_finite_differences() -> None:
    """With smooth latents, actions and heads, and one step: later inputs of the policy are detached."""
    agent = make(BOX, **SMOOTH, imagine_steps=1)
    for module in (agent.model, agent.actor, agent.critic):
        module.double()
    start = agent.observe_batch(gaussian_batch_double(agent), make_generator(2)).flatten()

    def mean_return() -> torch.Tensor:
        noise = agent.imagination_noise(make_generator(3), 1, len(start.deter))
        returns = agent.imagine_for_policy(start, noise)[1]
        assert returns is not None
        return returns.mean()

    bias = agent.actor.output.bias
    (slope,) = torch.autograd.grad(mean_return(), bias)
    for index in range(len(bias)):
        with torch.no_grad():
            bias[index] += 1e-5
            above = mean_return()
            bias[index] -= 2e-5
            below = mean_return()
            bias[index] += 1e-5
        assert float(slope[index]) == pytest.approx(float((above - below) / 2e-5), rel=1e-3, abs=1e-7)


def gaussian_batch_double(agent: Dreamer) -> Any:
    batch = gaussian_batch(agent)
    return {key: value.astype(np.float64) if value.dtype == np.float32 else value for key, value in batch.items()}


@pytest.mark.parametrize("action", ["discrete", "box"])
def test_gaussian_latents_learn_act_and_are_stored(action: str) -> None:
    agent = make(ACTIONS[action], model=GAUSSIAN)
    before = all_weights(agent)
    update = agent.update(gaussian_batch(agent), Clock(), make_generator(1, "noise"))
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    assert update.write_back is not None
    assert update.write_back.columns["note/stoch"].dtype == np.float32
    assert not torch.equal(before, all_weights(agent))
    now = column_of(random_rows(agent.specs, 3, 1))
    now["previous_action"] = now.pop("action")
    given, carry, _ = agent.act(now, agent.initial_carry(3), Clock(), make_generator(0), Mode.COLLECT)
    assert given.shape == now["previous_action"].shape
    assert carry["stoch"].shape == (3, 3)


def test_normal_heads_are_half_the_squared_error() -> None:
    agent = make(model=NORMAL, critic=SMOOTH["critic"])
    head = agent.model.reward(torch.ones(2, agent.model.features))
    (loss,) = head.loss(torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(loss, 0.5 * (head.mean() - torch.tensor([1.0, 3.0])).square())


def test_rewards_can_be_squashed_by_tanh() -> None:
    agent = make(reward_transform="tanh")
    _, rows = prepare(make_batch(agent), agent.model, agent.config, agent.backend)
    np.testing.assert_allclose(rows["reward"], np.tanh(make_batch(agent)["reward"][:, 1:]), rtol=1e-6)


def test_the_target_critic_may_move_rarely_and_give_the_values() -> None:
    agent = make(target_every=3, target_rate=1.0)
    target = weights(agent.critic.target)
    for count in range(1, 4):
        learn(agent, make_batch(agent))
        assert torch.equal(weights(agent.critic.target), target) == (count < 3)
    assert torch.equal(weights(agent.critic.target), weights(agent.critic.value))
    plain, other = make(), make(bootstrap_from_target=True)
    batches = [each.make_sequences(make_batch(each), make_generator(3), ("behaviour",)) for each in (plain, other)]
    returns = [each.imagined_returns(batch) for each, batch in zip((plain, other), batches, strict=True)]
    assert (returns[0] - returns[1]).abs().max() > 0.1


def test_noise_is_added_while_collecting_only() -> None:
    now = column_of(random_rows(make(BOX).specs, 50, 1))
    now["previous_action"] = now.pop("action")
    acts = {}
    for noise in (0.0, 0.5):
        agent = make(BOX, exploration_noise=noise, actor={"layers": 1, "units": 6, "min_std": 1e-3, "max_std": 1.1e-3})
        for mode in Mode:
            acts[noise, mode] = agent.act(now, agent.initial_carry(50), Clock(), make_generator(0), mode)[0]
    np.testing.assert_array_equal(acts[0.0, Mode.EVALUATE], acts[0.5, Mode.EVALUATE])
    difference = acts[0.5, Mode.COLLECT] - acts[0.0, Mode.COLLECT]
    assert 0.2 < difference.std() < 0.6
    assert np.abs(acts[0.5, Mode.COLLECT]).max() <= 1


def test_policy_and_value_may_learn_at_another_rate_and_be_clipped_as_a_whole() -> None:
    adam = {"kind": "adam", "epsilon": 1.0}
    still = make(optimizer=adam, behaviour_learning_rate=0.0)
    model, behaviour = weights(still.model), weights(still.actor, still.critic.value)
    learn(still, make_batch(still))
    assert torch.equal(weights(still.actor, still.critic.value), behaviour)
    assert not torch.equal(weights(still.model), model)
    clipped = make(optimizer=adam, max_grad_norm=1e-3)
    learn(clipped, make_batch(clipped))
    for optimizer in (clipped.model_optimizer, clipped.behaviour_optimizer):
        assert float(torch.linalg.vector_norm(optimizer.gradient)) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("form", ["dreamer_v1", "dreamer_v2"])
@pytest.mark.parametrize("action", [DISCRETE, BOX], ids=["discrete", "box"])
def test_every_form_learns_its_model(form: str, action: Any) -> None:
    """The same rows again and again: losses fall."""
    config: Any = make_config(f"CartPole-v1:{form}", ["debug", "env.vector=sync", "backend.device=cpu"]).algorithm
    settings = {**config.model_dump(), "learning_rate": 1e-2, "batch_size": 2, "batch_length": 5}
    settings["model"]["rssm"] |= {"deter": 32, "hidden": 16, "stoch": 8, "classes": 4}
    for module in ("encoder", "decoder", "reward", "continuation"):
        settings["model"][module]["units"] = 16
    specs = make(action).specs
    agent = Dreamer(Dreamer.Config.model_validate(settings), specs, make_generator(0, "weights"))
    rows = {key: value for key, value in make_batch(make(action)).items() if not key.startswith("note/")}
    found = [agent.update_world_model(rows, Clock(), make_generator(seed)).metrics for seed in range(80)]
    for name in ("loss_reconstruction", "loss_reward"):
        first, last = (np.mean([float(entry[name]) for entry in part]) for part in (found[:5], found[-5:]))
        assert last < 0.5 * first, name
    both = agent.update(rows, Clock(), make_generator(0)).metrics
    assert all(np.isfinite(float(value)) for value in both.values())


@pytest.mark.parametrize("model", [SMALL["model"], GAUSSIAN])
def test_extras_are_known_before_anything_is_built(model: Any) -> None:
    agent = make(model=model)
    kept = {f"{NOTE}{key}": (value.shape, value.dtype) for key, value in agent.initial_carry(1).items()}
    assert {key: (value.shape, value.dtype) for key, value in Dreamer.extras_of(agent.config).items()} == kept


def test_predictions_undo_the_reward_transform() -> None:
    agent = make(reward_transform="tanh")
    latents = agent.initial(3)
    squashed = agent.model.predict(agent.model.initial(3).features).reward.detach().numpy()
    np.testing.assert_allclose(np.tanh(agent.predict(latents)["reward"]), squashed.clip(-1, 1), atol=1e-5)
