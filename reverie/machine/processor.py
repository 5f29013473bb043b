"""The processor, and the kernels that numerical libraries choose for it. Both influence the exact bits of results."""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from pathlib import Path

BLAS_KERNELS = "OPENBLAS_CORETYPE"
"""Environment variable that chooses the kernels of numpy's OpenBLAS. Only read when numpy is loaded."""
_INFO = Path("/proc/cpuinfo")


@cache
def facts() -> dict[str, str]:
    """Linux's description of the first core. Empty on other systems."""
    if not _INFO.exists():
        return {}
    with _INFO.open(encoding="utf-8", errors="replace") as file:
        lines = [line.partition(":") for line in takewhile(str.strip, file)]
    return {key.strip(): value.strip() for key, _, value in lines}


def blas_kernels() -> str:
    """The kernels of numpy's BLAS, such as SkylakeX. Empty if unknown."""
    import numpy  # noqa: F401 - loads the library
    from threadpoolctl import threadpool_info

    return ", ".join(sorted({library["architecture"] for library in threadpool_info() if "architecture" in library}))
