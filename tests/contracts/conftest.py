"""One thread for every test: with small networks, several threads mostly wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reverie import backend


@pytest.fixture(autouse=True)
def _backend() -> Iterator[None]:
    threads = torch.get_num_threads()
    backend.set_threads(1)
    yield
    torch.set_num_threads(threads)
