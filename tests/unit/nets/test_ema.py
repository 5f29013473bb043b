"""The moving average of weights, by hand."""

from __future__ import annotations

import torch
from torch import nn

from reverie.nets.ema import EMA
from reverie.nets.optim import Adam


def test_the_average_follows_the_network() -> None:
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    weight = network[0].weight
    with torch.no_grad():
        weight.fill_(8.0)
        ema = EMA(network, decay=0.75)
        for value, expected in ((16.0, 10.0), (2.0, 8.0)):
            weight.fill_(value)
            network[1].running_mean.fill_(value)  # type: ignore[union-attr,operator]
            ema.update()
            assert ema.average[0].weight.item() == expected  # type: ignore[index,union-attr,operator]
            assert ema.average[1].running_mean.item() == value  # type: ignore[index,union-attr,operator]
            assert weight.item() == value
    assert not any(parameter.requires_grad for parameter in ema.average.parameters())


def test_average_tracks_weights_in_an_optimisers_flat_vector() -> None:
    network = nn.Linear(2, 2)
    optimizer = Adam(Adam.Config(), network.parameters())
    ema = EMA(network, decay=0.5)
    before = [parameter.clone() for parameter in ema.average.parameters()]
    optimizer.step(network(torch.ones(1, 2)).sum(), 0.1)
    ema.update()
    for average, old, new in zip(ema.average.parameters(), before, network.parameters(), strict=True):
        torch.testing.assert_close(average, (old + new) / 2)
        assert not torch.equal(average, old)


def test_state_continues() -> None:
    one, two = EMA(nn.Linear(2, 1), 0.5), EMA(nn.Linear(2, 1), 0.5)
    two.load_state(one.state())
    for average, other in zip(one.average.parameters(), two.average.parameters(), strict=True):
        assert torch.equal(average, other)
    assert not torch.equal(two.average.weight, two.network.weight)  # type: ignore[union-attr,arg-type]
