"""Fully connected networks in numpy have the outputs and gradients of autograd, by every library for matmuls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reverie.backend import seeded
from reverie.core.rng import make_generator
from reverie.kernels.products import array_matmul
from reverie.nets.ensemble import EnsembleMLP
from reverie.nets.layers import Linear, make_mlp
from reverie.nets.numpy.mlp import MANY, NumpyEnsemble, NumpyLayer, NumpyMLP, make_numpy_layers
from reverie.nets.optim import Adam

LIBRARIES = ["numpy", "torch"]
ROWS = {"few numbers": 8, "many numbers": MANY // 64}
"""Many of them are computed elementwise by torch."""


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_network_agrees_with_autograd(rows: int, library: str, activation: str) -> None:
    rng = make_generator("network")
    with seeded(rng):
        network = torch.nn.Sequential(*make_mlp(6, (64, 64), activation), Linear(64, 3))
        Adam(Adam.Config(), network.parameters())  # makes the gradients
    matmul = array_matmul(library)
    engine = NumpyMLP([*make_numpy_layers(network[:-1], matmul), NumpyLayer(network[-1], matmul=matmul)])
    x, gradient = rng.standard_normal((rows, 6), np.float32), rng.standard_normal((rows, 3), np.float32)
    tensor = torch.from_numpy(x).requires_grad_()
    expected = network(tensor)
    wanted = torch.autograd.grad(expected, [tensor, *network.parameters()], torch.from_numpy(gradient))
    activations = engine.forward(x)
    input_gradient = engine.backward(gradient.copy(), activations, wants_input=True)
    np.testing.assert_allclose(activations[-1], expected.detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(engine(x), expected.detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(input_gradient, wanted[0], rtol=1e-4, atol=1e-4)
    for parameter, value in zip(network.parameters(), wanted[1:], strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad, value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_an_ensemble_agrees_with_autograd(rows: int, library: str) -> None:
    rng = make_generator("ensemble")
    with seeded(rng):
        ensemble = EnsembleMLP(2, 6, (64, 64), 1, "relu")
        Adam(Adam.Config(), ensemble.parameters())
    engine = NumpyEnsemble(ensemble, array_matmul(library))
    x, gradient = rng.standard_normal((rows, 6), np.float32), rng.standard_normal((2, rows, 1), np.float32)
    tensor = torch.from_numpy(x).requires_grad_()
    wanted = torch.autograd.grad(ensemble(tensor), [tensor, *ensemble.parameters()], torch.from_numpy(gradient))
    activations = engine.forward(x)
    input_gradient = engine.input_gradient(gradient.copy(), activations, begin=2)
    engine.backward(gradient.copy(), activations)
    np.testing.assert_allclose(input_gradient, wanted[0][:, 2:], rtol=1e-4, atol=1e-4)
    for parameter, value in zip(ensemble.parameters(), wanted[1:], strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad, value, rtol=1e-4, atol=1e-3)
