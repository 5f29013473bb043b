"""Mish after a layer norm, against torch's own functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from reverie.core.rng import make_generator
from reverie.functional.mish import layer_norm, mish_, normed_mish


def draw(*shape: int) -> torch.Tensor:
    return torch.from_numpy(make_generator("mish", *shape).standard_normal(shape))


def test_mish_is_that_of_torch() -> None:
    x = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([-1e4, -90.0, 90.0, 1e4])])
    torch.testing.assert_close(mish_(x.clone()), F.mish(x), atol=3e-6, rtol=1e-6)


@pytest.mark.parametrize("stacked", [False, True])
def test_norm_and_activation_agree_with_torch(stacked: bool) -> None:
    x = draw(3, 5, 7)
    shape = (3, 1, 7) if stacked else (7,)
    scale, shift = draw(*shape).abs() + 0.5, draw(2, *shape)[1]
    expected = F.mish(F.layer_norm(x, (7,)) * scale + shift)
    torch.testing.assert_close(normed_mish(x, scale, shift), expected)
    with torch.no_grad():
        torch.testing.assert_close(normed_mish(x, scale, shift), expected)
    torch.testing.assert_close(layer_norm(x, scale, shift), F.layer_norm(x, (7,)) * scale + shift)


@pytest.mark.parametrize("stacked", [False, True])
def test_gradients_are_exact(stacked: bool) -> None:
    x = draw(2, 3, 5).requires_grad_()
    shape = (2, 1, 5) if stacked else (5,)
    scale = (draw(*shape).abs() + 0.5).requires_grad_()
    shift = draw(2, *shape)[1].requires_grad_()
    assert torch.autograd.gradcheck(normed_mish, (x, scale, shift))


def test_gradients_of_extreme_values_are_finite() -> None:
    x = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    scale = torch.tensor([300.0, 300.0, 300.0], requires_grad=True)
    normed_mish(x, scale, torch.zeros(3)).sum().backward()
    assert x.grad is not None
    assert scale.grad is not None
    assert x.grad.isfinite().all()
    assert scale.grad.isfinite().all()
