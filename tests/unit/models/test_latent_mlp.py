"""TD-MPC2's world model: sizes of the reference, its networks one by one, images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.algos.tdmpc2 import TDMPC2
from reverie.backend import count_parameters, without_weights
from reverie.config.compose import compose
from reverie.config.pipeline import load_config
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.models.latent_mlp import LatentMLP
from tests.unit.algos.batches import BOX, IMAGE, MIXED, VECTOR

WALKER = Specs(
    {"obs": ObservationSpec((24,), "float32", "vector")},
    ActionSpec("continuous", (6,), "float32", low=(-1.0,) * 6, high=(1.0,) * 6),
)
PARAMETERS = {
    "size1m": 1_214_651, "size5m": 4_960_618, "size19m": 18_062_442, "size48m": 47_208_298, "size317m": 312_595_417,
}  # fmt: skip
"""Of the reference on walker, calculated from its layers."""


@pytest.mark.parametrize("size", PARAMETERS)
def test_sizes_are_those_of_the_reference(size: str) -> None:
    config: Any = load_config(compose("Untuned-v0:tdmpc2", [size]).tree).algorithm
    with without_weights() as backend:
        agent = TDMPC2(config, WALKER, make_generator("weights"), backend)
    assert count_parameters(agent) == PARAMETERS[size]
    default: Any = load_config(compose("Untuned-v0:tdmpc2").tree).algorithm
    assert (config == default) == (size == "size5m")


@pytest.fixture(autouse=True)
def _own_weights() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def make(observations: Any = VECTOR, episodic: bool = False, **values: Any) -> LatentMLP:
    config = LatentMLP.Config.model_validate({"latent": 16, "units": 12, "encoder_units": 10, "bins": 7, **values})
    model = LatentMLP(config, Specs(observations, BOX), episodic)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def dense(layer: Any, x: Tensor) -> Tensor:
    """Linear layer, layer norm and Mish, by torch's own functions."""
    hidden = F.linear(x, layer.linear.weight, layer.linear.bias)
    return F.mish(F.layer_norm(hidden, layer.scale.shape, layer.scale, layer.shift))


def simnorm_layer(layer: Any, x: Tensor) -> Tensor:
    hidden = F.linear(x, layer.linear.weight, layer.linear.bias)
    normed = F.layer_norm(hidden, layer.scale.shape, layer.scale, layer.shift)
    return normed.unflatten(-1, (-1, 8)).softmax(-1).flatten(-2)


def test_a_latent_and_its_successor_layer_by_layer() -> None:
    model, obs, action = make(), torch.randn(5, 3), torch.rand(5, 2)
    latent = model.encode({"obs": obs})
    torch.testing.assert_close(latent, simnorm_layer(model.encoder.output, dense(model.encoder.layers[0], obs)))
    pair = torch.cat([latent, action], 1)
    hidden = dense(model.dynamics.second, dense(model.dynamics.first, pair))
    torch.testing.assert_close(model.next(latent, action), simnorm_layer(model.dynamics.output, hidden))
    hidden = dense(model.reward_head.second, dense(model.reward_head.first, pair))
    torch.testing.assert_close(model.reward(latent, action).logits, model.reward_head.output(hidden))


def test_rewards_start_at_zero() -> None:
    model = LatentMLP(LatentMLP.Config(latent=16, units=12), Specs(VECTOR, BOX), False)
    latent = model.encode({"obs": torch.randn(4, 3)})
    assert model.step(latent, torch.randn(4, 2))[1].tolist() == [0] * 4


def test_the_mean_reward_is_taken_in_symlog_space() -> None:
    """Probability 1/2 each on the symlog values 0 and 10: the mean is symexp(5) = e^5 - 1."""
    model = make(bins=3)  # at -10, 0 and 10
    with torch.no_grad():
        model.reward_head.output.weight.zero_()
        model.reward_head.output.bias.copy_(torch.tensor([-1e9, 0.0, 0.0]))
        _, reward = model.step(torch.rand(1, 16), torch.rand(1, 2))
    assert float(reward) == pytest.approx(torch.tensor(5.0).expm1().item(), rel=1e-5)


def test_shared_latents_give_what_repeated_ones_give() -> None:
    model, latent, action = make(), torch.rand(3, 16), torch.rand(3 * 4, 2)
    with torch.no_grad():
        found = model.step_shared(latent, action)
        expected = model.step(latent.repeat_interleave(4, 0), action)
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own, wanted)


def test_termination() -> None:
    model, latent = make(episodic=True), torch.rand(4, 16)
    head = model.termination_head
    assert head is not None
    torch.testing.assert_close(model.continuation(latent), 1 - head(latent).squeeze(-1).sigmoid())
    assert make().continuation(latent).tolist() == [1] * 4


def test_the_image_encoder_ends_with_its_convolutions_where_widths_agree() -> None:
    image = {"obs": ObservationSpec((64, 64, 9), "uint8", "image")}
    model = LatentMLP(LatentMLP.Config(), Specs(image, BOX), False)
    assert model.encoder.output is None
    latent = model.encode({"obs": torch.randint(0, 256, (2, 3, 64, 64, 9), dtype=torch.uint8)})
    assert latent.shape == (2, 3, 512)
    torch.testing.assert_close(latent.unflatten(-1, (64, 8)).sum(-1), torch.ones(2, 3, 64))
    kernels = [(layer.kernel_size, layer.stride) for layer in model.encoder.convolutions[0] if hasattr(layer, "stride")]
    assert kernels == [((7, 7), (2, 2)), ((5, 5), (2, 2)), ((3, 3), (2, 2)), ((3, 3), (1, 1))]


@pytest.mark.parametrize(
    "observations", [IMAGE, {**IMAGE, **VECTOR, "obs/index": ObservationSpec((), "int64", "discrete", (3,))}]
)
def test_other_widths_get_a_linear_layer(observations: Any) -> None:
    observations = {f"obs/{i}": spec for i, spec in enumerate(observations.values())}
    model = make(observations)
    rows = {}
    for key, spec in observations.items():
        shape = (2, *spec.shape)
        rows[key] = torch.randn(shape) if spec.kind == "vector" else torch.ones(shape, dtype=getattr(torch, spec.dtype))
    assert model.encode(rows).shape == (2, 16)


def test_small_images_are_refused() -> None:
    with pytest.raises(ConfigError, match="the encoder of TD-MPC needs 39 or more"):
        make(MIXED)
