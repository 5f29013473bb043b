"""The backend settings of a run, whatever other tests have left: two threads add up in another order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reverie import backend
from reverie.config.schema import BackendConfig


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    threads, is_exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    backend.configure_process(BackendConfig(threads=1, deterministic=True))
    yield
    backend.configure_process(BackendConfig(threads=threads, deterministic=is_exact))
