"""Products of arrays are the same by every library."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.kernels import products
from reverie.kernels.products import array_matmul, has_onednn, is_big

LIBRARIES = [
    "torch",
    pytest.param("onednn", marks=pytest.mark.skipif(not has_onednn(), reason="needs the extra 'onednn' of torch")),
]
CASES = {
    "plain": lambda a, b: (a, b),
    "transposed weight": lambda a, b: (a, np.ascontiguousarray(b.T).T),
    "transposed input": lambda a, b: (np.ascontiguousarray(a.T).T, b),
    "columns of a wider array": lambda a, b: (a, np.concatenate([b, b], 1)[:, : b.shape[1]]),
    "ensemble": lambda a, b: (np.stack([a, 2 * a]), np.stack([b, -b])),
    "one input for an ensemble": lambda a, b: (a, np.stack([b, -b])),
    "transposed ensemble": lambda a, b: (np.stack([a, a]), np.stack([b.T.copy(), b.T.copy()]).swapaxes(1, 2)),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Products of 16 and more numbers in every direction are big. Counts those that leave numpy."""
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 16**3)
    made: list[int] = []
    multiply = products._multiply_matrices
    monkeypatch.setattr(products, "_multiply_matrices", lambda *given: made.append(1) or multiply(*given))
    return made


def draw(*shape: int) -> Array:
    return make_generator("products").standard_normal(shape, np.float32)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", CASES)
def test_every_library_gives_the_same_product(library: str, case: str, calls: list[int]) -> None:
    x, y = CASES[case](draw(16, 32), draw(32, 24))
    expected = np.matmul(x, y)
    np.testing.assert_allclose(array_matmul(library)(x, y), expected, rtol=1e-5, atol=1e-5)
    out = np.empty_like(expected)
    assert array_matmul(library)(x, y, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    assert len(calls) == 2 * (2 if x.ndim == 3 or y.ndim == 3 else 1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_small_products_stay_with_numpy(library: str, calls: list[int]) -> None:
    x, y = draw(15, 16), draw(16, 16)
    np.testing.assert_array_equal(array_matmul(library)(x, y), x @ y)
    assert not calls


def test_numpys_own_matmul_is_called_directly() -> None:
    assert array_matmul("numpy") is np.matmul


def test_flat_products_are_never_big() -> None:
    assert is_big(256, 256, 256)
    assert not is_big(1 << 20, 256, 2)
