"""Encoding and decoding of any mix of observations, losses worked by hand, actions of all kinds."""

from __future__ import annotations

import math

import pytest
import torch

from reverie.backend import DEFAULT, seeded
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, Specs
from reverie.functional.symlog import symlog
from reverie.models.latent import Latent
from reverie.models.observation_codec import CodecConfig
from reverie.models.rssm import RSSMConfig
from reverie.models.world_model import ActionInput, RSSMWorldModel, WorldModelConfig
from reverie.nets.two_hot import HeadConfig, ScalarHeadConfig
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    MIXED_ACTION,
    MULTI_BINARY,
    MULTI_DISCRETE,
    OBSERVATIONS,
    random_rows,
)

CODEC = CodecConfig(depth=2, multipliers=(1, 2), layers=1, units=6)
CONFIG = WorldModelConfig(
    rssm=RSSMConfig(deter=8, hidden=6, stoch=3, classes=4, blocks=2), encoder=CODEC, decoder=CODEC,
    reward=ScalarHeadConfig(units=6, bins=9), continuation=HeadConfig(units=6),
)  # fmt: skip


def make_model(specs: Specs, config: WorldModelConfig = CONFIG) -> RSSMWorldModel:
    with seeded(make_generator(0)):
        return RSSMWorldModel(config, specs)


def observe(model: RSSMWorldModel, specs: Specs) -> tuple[Latent, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    arrays = random_rows(specs, 2, 4)
    rows = DEFAULT.to_tensors({**arrays, "previous_action": arrays["action"]})
    uniform = torch.as_tensor(make_generator(1).random((2, 4, 3)), dtype=torch.float32)
    observed = model.observe(model.initial(2), rows, uniform)
    return observed.latent, rows, model.losses(observed, rows, 0.9, 1.0)


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_every_observation_is_decoded_in_its_own_shape(kind: str) -> None:
    specs = Specs(OBSERVATIONS[kind], DISCRETE)
    model = make_model(specs)
    latent, rows, losses = observe(model, specs)
    assert all(loss.shape == (2, 4) for loss in losses.values())
    decoded = model.decode(latent)
    assert decoded.keys() == specs.observations.keys()
    for key, value in decoded.items():
        assert value.shape == rows[key].shape
        assert value.dtype == rows[key].dtype


def test_symlog_applies_to_vectors_but_not_to_indices() -> None:
    number, index = ObservationSpec((2,), "float32", "vector"), ObservationSpec((), "int64", "discrete", (3,))
    model = make_model(Specs({"index": index, "number": number}, DISCRETE))
    inputs = []
    model.encoder.layers.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    model.encoder(
        {
            "number": torch.tensor([[[9.0, -1.0]]]),
            "index": torch.tensor([[2]]),
            "is_first": torch.zeros(1, 1, dtype=torch.bool),
        }
    )
    assert inputs[0].tolist() == [pytest.approx([math.log(10), -math.log(2), 0, 0, 1])]


def test_reconstruction_loss_sums_over_all_observations() -> None:
    specs = Specs(OBSERVATIONS["mixed"], DISCRETE)
    model = make_model(specs)
    latent, rows, losses = observe(model, specs)
    flat = Latent(*(part.flatten(0, 1) for part in latent))
    vectors = model.decoder.output(model.decoder.layers(flat.features))
    vector, logits = vectors[:, :3], vectors[:, 3:]
    image = model.decoder.conv(flat.deter, flat.stoch)
    expected = (vector - symlog(rows["obs/1"].flatten(0, 1))).square().sum(-1)
    expected = expected + (image - rows["obs/0"].flatten(0, 1) / 255).square().sum((1, 2, 3))
    expected = expected - logits.log_softmax(-1)[torch.arange(8), rows["obs/2"].flatten()]
    torch.testing.assert_close(losses["reconstruction"].flatten(), expected)


def test_continuation_targets_are_the_discount_and_zero_at_terminals() -> None:
    specs = Specs(OBSERVATIONS["vector"], DISCRETE)
    model = make_model(specs)
    torch.nn.init.zeros_(model.continuation.output.weight)
    model.continuation.output.bias.data.fill_(math.log(3))  # a chance of 3/4
    arrays = random_rows(specs, 1, 2)
    arrays["terminated"][0, 1] = True
    rows = DEFAULT.to_tensors({**arrays, "previous_action": arrays["action"]})
    observed = model.observe(model.initial(1), rows, torch.full((1, 2, 3), 0.5))
    loss = model.losses(observed, rows, 0.9, 1.0)["continuation"]
    expected = [-0.9 * math.log(0.75) - 0.1 * math.log(0.25), -math.log(0.25)]
    torch.testing.assert_close(loss, torch.tensor([expected]))
    torch.testing.assert_close(model.predict(observed.latent.features).continuation, torch.full((1, 2), 0.75))


def test_rewards_start_at_exactly_zero() -> None:
    specs = Specs(OBSERVATIONS["vector"], DISCRETE)
    model = make_model(specs)
    latent, _, losses = observe(model, specs)
    assert (model.predict(latent.features).reward == 0).all()
    torch.testing.assert_close(losses["reward"], torch.full((2, 4), math.log(9)))


def test_images_of_two_sizes_are_refused() -> None:
    images = {f"obs/{side}": ObservationSpec((side, side, 3), "uint8", "image") for side in (16, 32)}
    with pytest.raises(ConfigError, match="differ in size"):
        make_model(Specs(images, DISCRETE))


def test_actions_become_vectors() -> None:
    numbers = torch.tensor([[[0.5, -0.5]], [[1.0, 2.0]]])
    assert torch.equal(ActionInput(BOX)(numbers), numbers)
    assert ActionInput(DISCRETE)(torch.tensor([[2], [0]])).tolist() == [[[0, 0, 1]], [[1, 0, 0]]]
    assert ActionInput(MULTI_DISCRETE)(torch.tensor([[1, 3]])).tolist() == [[0, 1, 0, 0, 0, 0, 1]]
    mixed = ActionInput(MIXED_ACTION)(torch.tensor([[2, 0.5, -0.25, 1, 3, 0], [0, -1, 1, 0, 0, 2]]))
    assert mixed[0].tolist() == [0, 0, 1, 0.5, -0.25, 0, 1, 0, 0, 0, 1, 1, 0, 0]
    assert mixed[1].tolist() == [1, 0, 0, -1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1]
    assert ActionInput(MULTI_BINARY)(torch.tensor([[1, 0, 1]])).tolist() == [[0, 1, 1, 0, 0, 1]]


@pytest.mark.parametrize("strided", [False, True])
def test_images_start_at_the_mean_brightness_of_each_channel(strided: bool) -> None:
    specs = Specs({"image": ObservationSpec((16, 16, 2), "uint8", "image")}, DISCRETE)
    codec = CODEC.model_copy(update={"strided": strided})
    decoder = make_model(specs, CONFIG.model_copy(update={"encoder": codec, "decoder": codec})).decoder
    image = torch.zeros(2, 3, 16, 16, 2, dtype=torch.uint8)
    image[0, :, :8, :, 0], image[..., 1] = 255, 255  # a quarter of the first channel, all of the second
    parts = [{"image": part, "reward": torch.zeros(1, 3)} for part in image.split(1)]
    decoder.start_at_mean(parts)
    assert decoder.conv.output_bias.sigmoid().tolist() == pytest.approx([0.25, 0.99])
    decoder.start_at_mean([{"image": 0 * image, "reward": torch.zeros(2, 3)}])  # no longer new: nothing changes
    assert decoder.conv.output_bias.sigmoid().tolist() == pytest.approx([0.25, 0.99])


def test_initial_brightness_ignores_rows_with_weight_zero() -> None:
    specs = Specs({"image": ObservationSpec((16, 16, 1), "uint8", "image")}, DISCRETE)
    decoder = make_model(specs).decoder
    image = torch.tensor([51, 255], dtype=torch.uint8).view(1, 2, 1, 1, 1).expand(1, 2, 16, 16, 1)
    decoder.start_at_mean([{"image": image, "reward": torch.zeros(1, 2), "weight": torch.tensor([[1.0, 0.0]])}])
    assert decoder.conv.output_bias.sigmoid().tolist() == pytest.approx([0.2])
