"""The number of threads reaches numpy's BLAS, too; and which engine there is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from reverie import backend
from reverie.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    backend.configure("cpu", before, torch.are_deterministic_algorithms_enabled())


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_threads_hold_for_torch_and_numpy() -> None:
    for count in (2, 1):
        backend.set_threads(count)
        assert torch.get_num_threads() == count
        assert blas_threads() == {count}


def test_onednn_is_refused_where_torch_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="this build of torch") as caught:
        backend.configure("cpu", 1, False, products="onednn")
    assert "backend.products=torch" in caught.value.fix


def test_onednn_keeps_few_shapes_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "5")
    backend.configure("cpu", 1, torch.are_deterministic_algorithms_enabled())
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(backend.SHAPES_KEPT)
    assert os.environ["LRU_CACHE_CAPACITY"] == "5"


def test_batches_in_parts_are_for_torch() -> None:
    for parts, engine in ((1, "numpy"), (2, "torch")):
        backend.configure("cpu", 1, torch.are_deterministic_algorithms_enabled(), "numpy", parts)
        assert backend.engine() == engine
