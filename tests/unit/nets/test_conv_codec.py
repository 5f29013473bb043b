"""Image layers: sizes, and folded upsampling against repeated pixels and a plain convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from reverie import backend
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.nets.conv_codec import ConvConfig, ImageDecoder, ImageEncoder, UpsampleConv

SMALL = ConvConfig(depth=2, multipliers=(1, 2))


@pytest.mark.parametrize("kernel", [3, 5])
def test_folded_upsampling_equals_nearest_neighbour_and_convolution(kernel: int) -> None:
    with backend.seeded(make_generator(0)):
        layer = UpsampleConv(3, 2, kernel)
        layer.convolution.bias.data.normal_()
        x = torch.randn(2, 3, 4, 5, requires_grad=True)
        weight = torch.randn(2, 2, 8, 10)
    plain = layer.convolution(F.interpolate(x, scale_factor=2, mode="nearest"))
    torch.testing.assert_close(layer(x), plain, rtol=1e-4, atol=1e-5)
    wanted = (x, layer.convolution.weight, layer.convolution.bias)
    found = torch.autograd.grad((layer(x) * weight).sum(), wanted)
    expected = torch.autograd.grad((plain * weight).sum(), wanted)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strided", [False, True])
def test_encoder_and_decoder_shapes_match(strided: bool) -> None:
    config = SMALL.model_copy(update={"strided": strided})
    with backend.seeded(make_generator(0)):
        encoder = ImageEncoder(config, 16, 12, 3)
        decoder = ImageDecoder(config, (16, 12, 3), state=8, latent=6, units=4, blocks=2)
        image, state, latent = torch.rand(5, 16, 12, 3) - 0.5, torch.randn(5, 8), torch.randn(5, 6)
    code, shown = encoder(image), decoder(state, latent)
    assert code.shape == (5, encoder.width) == (5, 4 * 3 * 4)
    assert shown.shape == (5, 16, 12, 3)
    assert (shown > 0).all()
    assert (shown < 1).all()


def test_every_pixel_and_every_latent_value_has_an_effect() -> None:
    with backend.seeded(make_generator(0)):
        encoder = ImageEncoder(SMALL, 16, 16, 1)
        decoder = ImageDecoder(SMALL, (16, 16, 1), state=8, latent=6, units=4, blocks=2)
        image = (torch.rand(1, 16, 16, 1) - 0.5).requires_grad_()
        state, latent = torch.randn(1, 8, requires_grad=True), torch.randn(1, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(image).square().sum(), image)
    assert (gradient != 0).float().mean() > 0.5  # pooling drops some
    for part in torch.autograd.grad(decoder(state, latent).sum(), (state, latent)):
        assert (part != 0).all()


@pytest.mark.parametrize("size", [(60, 64), (64, 66), (8, 64), (512, 512)])
def test_unsupported_image_size_is_refused_with_a_fix(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="cannot be halved") as caught:
        ImageEncoder(ConvConfig(), *size, 3)
    assert "resize" in caught.value.fix
