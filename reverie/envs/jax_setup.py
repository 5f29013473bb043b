"""Starts JAX beside torch: with the run's threads, without taking a GPU's memory, with a cache of compiled programs.

JAX reads these settings once, when its first array is made, so the first run of a process decides about them.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from reverie.store.cache import cache_folder

THREADS_VARIABLE = "REVERIE_JAX_THREADS"
"""Threads of JAX on the CPU, also in processes that this one starts. 1 if it is not set."""
_OF_THE_POOL = "NPROC"
"""Where XLA looks for the size of its thread pool."""
_COMPILE_SECONDS = 0.05
"""Programs that compile faster than this are not kept."""


def choose_threads(count: int) -> None:
    """Threads of JAX in this process, if it has not started yet, and in processes that this one starts."""
    os.environ[THREADS_VARIABLE] = str(count)


@contextlib.contextmanager
def untouched_import() -> Iterator[None]:
    """Keep what JAX's packages print while they are imported out of the output, and numpy's generator as it was."""
    before = np.random.get_state()  # noqa: NPY002 - kept, not drawn from
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@cache
def start_jax() -> Any:
    """The module ``jax``, ready for use. ImportError if it is not installed."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes three quarters of a GPU's memory
    with untouched_import():
        import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _COMPILE_SECONDS)
    _start_client(jax)
    return jax


def _start_client(jax: Any) -> None:
    """Make JAX create its thread pool, whose size it reads from a variable that others read too."""
    before = os.environ.get(_OF_THE_POOL)
    os.environ[_OF_THE_POOL] = os.environ.get(THREADS_VARIABLE, "1")
    try:
        jax.devices()
    finally:
        os.environ.pop(_OF_THE_POOL)
        if before is not None:
            os.environ[_OF_THE_POOL] = before
