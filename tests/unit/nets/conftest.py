"""Layers draw their first weights from torch's global generator; here each test has one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _own_weights() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
