"""Flushing denormals: per thread, inherited by new threads, and enough for the moments of optimisers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from reverie.machine.denormals import are_flushed, flush_denormals
from reverie.nets.laprop import LaProp
from reverie.nets.optim import Adam, AdamW, FlatOptimizer, Loss

DENORMAL = np.full(8, 1e-40, np.float32)
STEPS_TO_DENORMALS = 1200
"""0.9 to this power times a gradient of 1e-3 is far below the smallest float32."""


@pytest.fixture(autouse=True)
def _thread_as_before() -> Iterator[None]:
    before = are_flushed()
    yield
    flush_denormals(before)


def test_numpy_and_torch_read_denormals_as_zero_only_while_they_are_flushed() -> None:
    for is_on in (True, False):
        assert flush_denormals(is_on)
        assert are_flushed() is is_on
        assert bool((DENORMAL * np.float32(1)).any()) is not is_on
        assert bool((torch.as_tensor(DENORMAL) * 1).any()) is not is_on


def test_new_threads_inherit_the_setting() -> None:
    seen: list[bool] = []
    flush_denormals(True)
    thread = threading.Thread(target=lambda: seen.append(are_flushed()))
    thread.start()
    thread.join()
    assert seen == [True]


def test_all_threads_of_torch_flush() -> None:
    program = (
        "import torch; from reverie.backend import configure_process; from reverie.config.schema import BackendConfig\n"
        "configure_process(BackendConfig(device='cpu', threads=2))\n"
        "print((torch.full((4_000_000,), 1e-40) * 1).count_nonzero().item())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize("kind", [Adam, AdamW, LaProp])
@pytest.mark.parametrize("is_numpy", [True, False])
def test_the_moments_of_a_dead_network_hold_no_denormals(kind: type[FlatOptimizer], is_numpy: bool) -> None:
    flush_denormals(False)
    assert count_denormals(train_until_dead(kind, is_numpy)) > 0
    flush_denormals(True)
    assert count_denormals(train_until_dead(kind, is_numpy)) == 0


def train_until_dead(kind: type[FlatOptimizer], is_numpy: bool) -> FlatOptimizer:
    """An optimiser whose parameters have had no gradient since its first step."""
    optimizer = kind(kind.Config(), [nn.Parameter(torch.ones(64))])
    optimizer.step(optimizer.parameters[0].sum() * 1e-3, 1e-3)
    for _ in range(STEPS_TO_DENORMALS):
        optimizer.gradient.zero_()
        if is_numpy:
            optimizer.apply_gradient(1e-3)
        else:
            optimizer.minimise(lambda weight: Loss((weight * 0).sum()), optimizer.parameters, 1e-3)
    return optimizer


def count_denormals(optimizer: FlatOptimizer) -> int:
    """How many moments are denormal, by their bits: a comparison would flush them."""
    bits = np.concatenate([moment.numpy() for moment in optimizer.moments.values()]).view(np.uint32) & 0x7FFFFFFF
    return int(np.count_nonzero((bits > 0) & (bits < 0x00800000)))
