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


def is_half_used_by_mkl() -> bool:
    """Whether this is an AMD processor with full-width AVX-512 units (family 26, Zen 5, or newer).

    MKL, torch's library for matmuls, uses registers of half that width on processors that are not Intel's.
    """
    core = facts()
    family = core.get("cpu family", "")
    is_zen_5 = core.get("vendor_id") == "AuthenticAMD" and family.isdigit() and int(family) >= 26
    return is_zen_5 and "avx512f" in core.get("flags", "").split()


def blas_kernels() -> str:
    """The kernels of numpy's BLAS, such as SkylakeX. Empty if unknown."""
    import numpy  # noqa: F401 - loads the library
    from threadpoolctl import threadpool_info

    return ", ".join(sorted({library["architecture"] for library in threadpool_info() if "architecture" in library}))
