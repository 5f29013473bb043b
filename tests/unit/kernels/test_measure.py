"""Which layers are measured. How long they take depends on the machine."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from reverie.backend import seeded
from reverie.core.rng import make_generator
from reverie.kernels import measure as module
from reverie.kernels import products
from reverie.kernels.measure import LayerShape, layer_shapes, measure
from reverie.nets.ensemble import EnsembleMLP


def test_big_layers_are_found_with_every_member_of_an_ensemble() -> None:
    with seeded(make_generator("weights")):
        critics = EnsembleMLP(2, 128, [128], 1, "relu")
        actor = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 2))
        frozen = nn.Linear(128, 128).requires_grad_(False)
    found = layer_shapes([critics, actor, actor, frozen], rows=128)
    assert found == Counter({LayerShape(128, 128, 128): 2, LayerShape(128, 128, 256): 1})


def test_every_library_and_engine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    speeds = measure(Counter({LayerShape(16, 16, 16): 2}))
    onednn = {"onednn"} if products.has_onednn() else set()
    assert {group: set(values) for group, values in speeds.items()} == {
        "engines": {"numpy", "torch"},
        "matmul": {"torch"} | onednn,
        "numpy_matmul": {"numpy", "torch"} | onednn,
    }
    assert all(seconds > 0 for group in ("matmul", "numpy_matmul") for seconds in speeds[group].values())


def test_only_the_layers_with_the_most_work_count(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[LayerShape] = []
    times = {"engines": {"numpy": 1.0}, "matmul": {"torch": 2.0}, "numpy_matmul": {"numpy": 3.0}}
    monkeypatch.setattr(module, "_measure_layer", lambda shape: measured.append(shape) or times)
    shapes = Counter({LayerShape(8, 8, 8 * size): 3 for size in range(1, 9)})
    assert measure(shapes)["matmul"] == {"torch": 2.0 * 3 * module.MOST_SHAPES}
    assert [shape.outputs for shape in measured] == [64, 56, 48, 40]


def test_huge_layers_are_measured_with_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    monkeypatch.setattr(module, "MOST_MULTIPLICATIONS", 16 * 16 * 4)
    monkeypatch.setattr(module, "_array_seconds", lambda library, x, *rest: rows.append(len(x)) or 1.0)
    seconds = module._measure_layer(LayerShape(400, 16, 16))
    assert set(rows) == {4}
    assert seconds["numpy_matmul"]["numpy"] == 100.0


def test_measuring_draws_nothing_from_torchs_generator() -> None:
    before = torch.random.get_rng_state()
    measure(Counter({LayerShape(8, 8, 8): 1}))
    assert torch.equal(before, torch.random.get_rng_state())
