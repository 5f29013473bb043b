"""The backend as a run has it, whatever other tests have left; one thread, as several would wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reverie import backend


@pytest.fixture(autouse=True)
def _backend() -> Iterator[None]:
    threads, is_exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    backend.configure("cpu", 1, is_exact)
    yield
    backend.configure("cpu", threads, is_exact)
