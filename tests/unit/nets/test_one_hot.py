"""Layers over one-hot features give the same outputs and gradients as over dense columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reverie.nets.blocks import make_dense
from reverie.nets.one_hot import Linear, OneHotFeatures
from reverie.nets.two_hot import HeadConfig, ScalarHead, ScalarHeadConfig, in_chunks

REST, COLUMNS, ROWS = 5, 6, 7


def make_features() -> OneHotFeatures:
    """Three variables with two classes each. Some have no class."""
    indices = torch.randint(0, 2, (2, ROWS, 3)) * 3 + torch.arange(3)
    indices[0, 1, 2] = indices[1, 3, 0] = COLUMNS
    return OneHotFeatures(torch.randn(2, ROWS, REST), indices, COLUMNS)


def test_indices_become_one_hot_columns() -> None:
    features = OneHotFeatures(torch.tensor([[7.0], [8.0]]), torch.tensor([[0, 3], [4, 1]]), 4)
    assert features.to_dense().tolist() == [[7, 1, 0, 0, 1], [8, 0, 1, 0, 0]]
    assert features.shape == features.to_dense().shape


@pytest.mark.parametrize("layers", [0, 2])
def test_head_and_gradients_equal_those_of_dense_columns(layers: int) -> None:
    head = ScalarHead(ScalarHeadConfig(layers=layers, units=4, bins=5), REST + COLUMNS)
    for parameter in head.parameters():
        parameter.data = torch.randn_like(parameter)
    features = make_features()
    outputs = [head(x).logits for x in (features, features.to_dense())]
    torch.testing.assert_close(*outputs)
    slopes = [torch.autograd.grad(output.square().sum(), list(head.parameters())) for output in outputs]
    for found, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(found, expected)


def test_one_hot_features_can_be_sliced_and_chunked() -> None:
    features, layers = make_features(), make_dense(REST + COLUMNS, 4, HeadConfig().layers)
    whole = layers(features.flatten(0, -2)).unflatten(0, (2, ROWS))
    torch.testing.assert_close(layers(features[1]), whole[1])
    torch.testing.assert_close(in_chunks(layers, features[1:]), whole[1:])
    pieces = [layers(chunk) for chunk in features.flatten(0, -2).split(3)]
    torch.testing.assert_close(torch.cat(pieces), whole.flatten(0, 1))
    assert len(features) == 2


def test_dense_features_use_a_plain_matmul() -> None:
    layer, x = Linear(3, 2), torch.randn(4, 3)
    expected: Tensor = x @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(x), expected)


def test_weights_may_change_between_two_calls() -> None:
    features, head = make_features(), ScalarHead(ScalarHeadConfig(layers=1, units=4, bins=5), REST + COLUMNS)
    for _ in range(2):
        for parameter in head.parameters():
            parameter.data.normal_()  # in the same memory, as an optimiser does
        torch.testing.assert_close(head(features).logits, head(features.to_dense()).logits)
