"""oneDNN's matmuls equal torch's up to the order of sums, for every memory layout. When oneDNN is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.backend import Backend, without_weights
from reverie.config.schema import BackendConfig
from reverie.core.rng import make_generator
from reverie.core.types import Clock
from reverie.kernels import products
from reverie.models import rssm
from reverie.nets import matmul
from reverie.nets.backend_module import to_backend
from reverie.nets.layers import Linear
from reverie.nets.matmul import Matmul
from tests.unit.algos.batches import BOX
from tests.unit.algos.test_dreamer import make, make_batch, weights
from tests.unit.algos.test_dreamer_forms import SMOOTH, gaussian_batch

LAYOUTS = ("rows", "columns", "part of a wider one")
CLOSE = {"rtol": 1e-5, "atol": 1e-4}


ONEDNN = Matmul("onednn")


@pytest.fixture(autouse=True)
def _small_matmuls_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 8**3)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The matmuls passed to oneDNN."""
    made: list[Any] = []
    real = matmul._onednn
    monkeypatch.setattr(matmul, "_onednn", lambda *given: made.append(given[:2]) or real(*given))
    return made


def matrix(rows: int, columns: int, layout: str = "rows", seed: int = 0) -> Tensor:
    numbers = torch.from_numpy(
        np.random.default_rng([seed, rows, columns]).standard_normal((rows, columns), np.float32)
    )
    if layout == "columns":
        return numbers.t().contiguous().t()
    return F.pad(numbers, (2, 3))[:, 2:-3] if layout.startswith("part") else numbers


@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("of_weight", LAYOUTS)
@pytest.mark.parametrize("sizes", [(32, 300, 50), (9, 17, 33), (64, 8, 8)])
def test_matmuls_equal_those_of_torch(of_x: str, of_weight: str, sizes: tuple[int, int, int], calls: list[Any]) -> None:
    rows, inner, columns = sizes
    x, weight = matrix(rows, inner, of_x), matrix(inner, columns, of_weight)
    bias, total = matrix(1, columns)[0], matrix(rows, columns, seed=1)
    wanted = torch.mm(x, weight)
    out = matrix(rows, columns, "part of a wider one")
    assert ONEDNN.multiply(x, weight, out=out) is out
    torch.testing.assert_close(out, wanted, **CLOSE)
    torch.testing.assert_close(ONEDNN.multiply(x, weight), wanted, **CLOSE)
    torch.testing.assert_close(ONEDNN.affine(bias, x, weight), wanted + bias, **CLOSE)
    torch.testing.assert_close(ONEDNN.affine(bias, x, weight, out=out), wanted + bias, **CLOSE)
    torch.testing.assert_close(ONEDNN.linear(x, weight.t(), bias), wanted + bias, **CLOSE)
    torch.testing.assert_close(ONEDNN.add_product(total.clone(), x, weight), total + wanted, **CLOSE)
    assert len(calls) == 6


def test_batches_of_matmuls_equal_those_of_torch(calls: list[Any]) -> None:
    x = matrix(12, 3 * 16).unflatten(1, (3, 16)).transpose(0, 1)  # (3, 12, 16): blocks of a wide hidden state
    weight, bias, total = (
        torch.stack([matrix(*size, seed=seed) for seed in range(3)]) for size in ((16, 8), (1, 8), (12, 8))
    )
    wanted = torch.bmm(x, weight)
    out = torch.empty_like(total)
    torch.testing.assert_close(ONEDNN.multiply(x, weight), wanted, **CLOSE)
    torch.testing.assert_close(ONEDNN.multiply(x, weight, out=out), wanted, **CLOSE)
    torch.testing.assert_close(ONEDNN.affine(bias, x, weight), wanted + bias, **CLOSE)
    torch.testing.assert_close(ONEDNN.affine(bias, x, weight, out=out), wanted + bias, **CLOSE)
    torch.testing.assert_close(ONEDNN.add_product(total.clone(), x, weight), total + wanted, **CLOSE)
    assert len(calls) == 5 * 3


@pytest.mark.parametrize("shape", [(24, 16), (4, 6, 16)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_gradients_are_those_of_torch(shape: tuple[int, ...], has_bias: bool, calls: list[Any]) -> None:
    x = matrix(24, 16).reshape(shape).requires_grad_()
    weight, bias = matrix(10, 16).requires_grad_(), matrix(1, 10)[0].requires_grad_() if has_bias else None
    wanted_from = [part for part in (x, weight, bias) if part is not None]
    found = []
    for layer in (ONEDNN.linear, F.linear):
        y = layer(x, weight, bias)
        assert y.shape == (*shape[:-1], 10)
        found.append([y, *torch.autograd.grad(y.sin().sum(), wanted_from)])
    for own, theirs in zip(*found, strict=True):
        torch.testing.assert_close(own, theirs, **CLOSE)
    assert len(calls) == 3


def test_bias_may_be_strided(calls: list[Any]) -> None:
    x, weight, bias = matrix(16, 16), matrix(16, 16), matrix(1, 32)[0][::2]
    torch.testing.assert_close(ONEDNN.linear(x, weight, bias), F.linear(x, weight, bias), **CLOSE)
    torch.testing.assert_close(ONEDNN.affine(bias, x, weight), torch.addmm(bias, x, weight), **CLOSE)
    assert len(calls) == 2


def test_shape_mismatch_raises_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ONEDNN.linear(matrix(16, 16), matrix(16, 17))


def test_matmuls_without_gradient_refuse_weights_that_need_one() -> None:
    with pytest.raises(AssertionError, match="linear"):
        ONEDNN.multiply(matrix(16, 16), matrix(16, 16).requires_grad_())


def test_frozen_weights_save_no_inputs_for_backward() -> None:
    kept: list[tuple[int, ...]] = []
    x = matrix(24, 16).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda part: kept.append(part.shape) or part, lambda part: part):
        ONEDNN.linear(x, matrix(10, 16), None)
    assert kept == [(10, 16)]


def test_unneeded_gradients_are_not_computed(calls: list[Any]) -> None:
    ONEDNN.linear(matrix(24, 16), matrix(10, 16).requires_grad_(), None).sum().backward()
    assert len(calls) == 2


@pytest.mark.parametrize("sizes", [(8, 8, 7), (512, 4, 512), (2, 64, 64), (64, 64, 1)])
def test_small_and_thin_matmuls_use_torch(sizes: tuple[int, int, int], calls: list[Any]) -> None:
    rows, inner, columns = sizes
    x, weight = matrix(rows, inner), matrix(inner, columns)
    assert torch.equal(ONEDNN.multiply(x, weight), x @ weight)
    assert torch.equal(ONEDNN.linear(x, weight.t()), F.linear(x, weight.t()))
    assert not calls


@pytest.mark.parametrize(("chosen", "precision"), [("torch", "float32"), ("onednn", "bfloat16")])
def test_runs_without_onednn_or_float32_use_torch(chosen: str, precision: str, calls: list[Any]) -> None:
    layer = Linear(16, 16)
    backend = Backend.from_settings(BackendConfig(device="cpu", matmul=chosen, precision=precision))
    assert backend.matmul == "torch"
    to_backend(layer, backend)(matrix(16, 16))
    assert not calls


def test_meta_networks_use_torch(calls: list[Any]) -> None:
    with without_weights() as backend:
        assert to_backend(Linear(16, 16), backend)(torch.empty(16, 16)).device.type == "meta"
    assert not calls


@pytest.mark.parametrize("form", [{}, {"action": BOX, **SMOOTH}], ids=["discrete", "gaussian"])
def test_dreamer_learns_the_same_with_both_libraries(
    form: dict[str, Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers layers with and without known choices, imagination, and the scan with its gradients."""
    for owner, name in ((products, "MIN_MULTIPLICATIONS"), (products, "MIN_SIZE"), (rssm, "MIN_LOOKUP_COLUMNS")):
        monkeypatch.setattr(owner, name, 1)
    ends = []
    for chosen in ("torch", "onednn"):
        agent = make(**form, backend=Backend(matmul=chosen))
        batch = (gaussian_batch if form else make_batch)(agent, 0)
        agent.update(batch, Clock(), make_generator(0, "noise"))
        ends.append([weights(getattr(agent, part)) for part in ("model", "actor", "critic")])
    for by_torch, by_onednn in zip(*ends, strict=True):
        torch.testing.assert_close(by_onednn, by_torch, rtol=1e-3, atol=1e-5)
    assert len(calls) > 50
