"""Dreamer in bfloat16: matmuls are rounded, everything computed from their results is not.

On a CPU: there it is slow, but the same operations are rounded as on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dreamer import Dreamer
from reverie.backend import Backend
from reverie.core.rng import make_generator
from reverie.core.types import Clock, Mode
from reverie.functional.categorical import kl_losses
from reverie.nets.blocks import NormedSiLU
from tests.unit.algos.batches import BOX, OBSERVATIONS, column_of, random_rows
from tests.unit.algos.test_dreamer import SMALL, all_weights, make, make_batch
from tests.unit.algos.test_dreamer_forms import NORMAL, SMOOTH, gaussian_batch

PLAIN = {"model": {**SMALL["model"], "reward": NORMAL["reward"]}, "critic": SMOOTH["critic"]}
FORMS: dict[str, dict[str, Any]] = {
    "vector": PLAIN,
    "image, mixed gradients": {
        **PLAIN,
        "action": BOX,
        "observations": OBSERVATIONS["mixed"],
        "reparameterised_weight": 0.3,
    },
    "gaussian, dynamics": {"action": BOX, **SMOOTH},
}
PARTS = ("model", "actor", "critic", "return_scale")


BFLOAT16 = Backend(precision="bfloat16")


def batch_for(agent: Dreamer, seed: int = 0) -> Any:
    return (make_batch if agent.config.model.rssm.latents == "categorical" else gaussian_batch)(agent, seed)


def learn(precision: str, **settings: Any) -> tuple[Dreamer, dict[str, float]]:
    agent = make(**settings, backend=Backend(precision=precision))
    update = agent.update(batch_for(agent), Clock(), make_generator(1, "noise"))
    assert all(value.dtype == torch.float32 for value in update.metrics.values())
    return agent, {key: float(value) for key, value in update.metrics.items()}


@pytest.mark.parametrize("form", FORMS)
def test_losses_are_near_those_of_float32_and_weights_stay_float32(form: str) -> None:
    """Within a few of the 128 steps that bfloat16 has between 1 and 2, and not equal."""
    exact, wanted = learn("float32", **FORMS[form])
    agent, found = learn("bfloat16", **FORMS[form])
    losses = [name for name in wanted if name.startswith("loss_")]
    assert {name: found[name] for name in losses} == pytest.approx(
        {name: wanted[name] for name in losses}, rel=0.03, abs=0.01
    )
    assert all(found[name] != wanted[name] for name in ("loss_reconstruction", "loss_value", "loss_reward"))
    gradients = [
        torch.cat([each.model_optimizer.gradient, each.behaviour_optimizer.gradient]) for each in (agent, exact)
    ]
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.99
    tensors = [value for part in PARTS for value in getattr(agent, part).state_dict().values()]
    moments = [*agent.model_optimizer.moments.values(), *agent.behaviour_optimizer.moments.values()]
    assert {tensor.dtype for tensor in (*tensors, *moments, agent.model_optimizer.gradient)} == {torch.float32}


def test_every_network_multiplies_in_bfloat16() -> None:
    agent = make(BOX, OBSERVATIONS["mixed"], BFLOAT16)
    parts = ("encoder", "rssm", "decoder", "reward", "continuation")
    networks = {name: getattr(agent.model, name) for name in parts}
    networks |= {"actor": agent.actor, "value": agent.critic.value, "target": agent.critic.target}
    found: dict[str, set[torch.dtype]] = {name: set() for name in networks}
    for name, network in networks.items():
        for layer in network.modules():
            if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
                layer.register_forward_hook(lambda module, inputs, output, seen=found[name]: seen.add(output.dtype))
    agent.update(make_batch(agent), Clock(), make_generator(1))
    assert found == {name: {torch.bfloat16} for name in networks}


@pytest.mark.parametrize("is_learning", [True, False])
def test_norms_round_once(is_learning: bool) -> None:
    """At most half a step of bfloat16 away: sums and factors in bfloat16 would be up to three of them."""
    layer = NormedSiLU(512)
    x = torch.linspace(-3, 4, 2048).view(4, 512).bfloat16()
    with torch.set_grad_enabled(is_learning):
        found, wanted = layer(x), layer(x.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=2**-8, atol=1e-6)


def test_probabilities_divergences_and_latents_are_not_rounded() -> None:
    """In bfloat16 probabilities would add up to 1 within 1e-2 and divergences be right within 1e-2, not 1e-6."""
    agent = make(free_nats=0.0, backend=BFLOAT16)
    batch = agent.make_sequences(make_batch(agent), make_generator(1), ("model", "behaviour"))
    post = agent.model.observe(batch.context, batch.rows, batch.noise)
    posterior, prior = post.params, agent.model.rssm.prior(post.latent.deter)
    for probs in (posterior, prior):
        assert probs.dtype == torch.float32
        assert (probs.sum(-2) - 1).abs().max() < 1e-6
    wanted, _ = kl_losses(posterior.double(), prior.double().log(), 0.0)
    torch.testing.assert_close(agent.model_losses(post, batch.rows)["dynamics"].double(), wanted, rtol=1e-5, atol=1e-6)
    assert not torch.equal(post.latent.deter, post.latent.deter.bfloat16().float())
    assert set(post.latent.stoch.unique().tolist()) == {0.0, 1.0}
    imagined = agent.imagine_trajectory(post.latent.detach().flatten(), make_generator(2), steps=3)
    assert isinstance(imagined.features, torch.Tensor)
    assert imagined.features.dtype == torch.float32
    assert not torch.equal(imagined.features, imagined.features.bfloat16().float())


def test_two_hot_means_are_not_rounded() -> None:
    agent = make(backend=BFLOAT16)
    features = torch.linspace(-1, 1, 6 * agent.model.features).view(6, -1)
    head = agent.critic(features)
    assert head.logits.dtype == torch.float32
    probs = head.logits.double().softmax(-1)
    half = len(head.bins) // 2
    wanted = (probs[:, -half:] - probs[:, :half].flip(-1)) @ head.bins[-half:].double()
    torch.testing.assert_close(head.mean().double(), wanted, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("gaussian", [False, True])
def test_matmuls_are_rounded_in_the_scan_and_in_imagination(gaussian: bool) -> None:
    """Both differ from float32, and by no more than rounding does."""
    found = {}
    for precision in ("float32", "bfloat16"):
        backend = Backend(precision=precision)
        agent = make(**SMOOTH, action=BOX, backend=backend) if gaussian else make(backend=backend)
        start = agent.observe_batch(batch_for(agent), make_generator(1))
        latent = agent.model.initial(4)
        actions = np.ones((1, 4, *agent.specs.action.shape), np.float32 if gaussian else np.int64)
        dream = agent.imagine_trajectory(latent, make_generator(2), actions)
        found[precision] = start.deter[:, 0], dream.features[1, :, :8]
    for rough, exact in zip(found["bfloat16"], found["float32"], strict=True):
        assert not torch.equal(rough, exact)
        torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)


def test_training_on_the_same_rows_lowers_the_loss() -> None:
    agent = make(learning_rate=1e-2, backend=BFLOAT16)
    losses = [
        float(agent.update_world_model(make_batch(agent), Clock(), make_generator(seed)).metrics["loss_reconstruction"])
        for seed in range(60)
    ]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_acting_gives_float32_latents(engine: str) -> None:
    agent = make(BOX, OBSERVATIONS["mixed"], Backend(engine=engine, precision="bfloat16"))
    before = all_weights(agent)
    now = column_of(random_rows(agent.specs, 3, 1))
    now["previous_action"] = now.pop("action")
    action, carry, _ = agent.act(now, agent.initial_carry(3), Clock(), make_generator(0), Mode.COLLECT)
    assert action.dtype == carry["deter"].dtype == np.float32
    agent.update(make_batch(agent), Clock(), make_generator(0))  # nothing rounded while acting is left over
    assert not torch.equal(before, all_weights(agent))
