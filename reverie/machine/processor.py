"""What this processor is, and what numerical libraries make of it: part of what decides the bits of a result."""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from pathlib import Path

BLAS_KERNELS = "OPENBLAS_CORETYPE"
"""The variable by which numpy's OpenBLAS can be told which kernels to take. It looks once, when numpy is loaded."""
_INFO = Path("/proc/cpuinfo")


@cache
def facts() -> dict[str, str]:
    """What Linux tells of the first core; nothing elsewhere."""
    if not _INFO.exists():
        return {}
    with _INFO.open(encoding="utf-8", errors="replace") as file:
        lines = [line.partition(":") for line in takewhile(str.strip, file)]
    return {key.strip(): value.strip() for key, _, value in lines}


def is_half_used_by_mkl() -> bool:
    """Whether this core computes a whole AVX-512 register at a time, as AMD's do from the family 26 (Zen 5) on.

    MKL, which torch multiplies with, uses registers of half that width on every processor that is not Intel's.
    """
    known = facts()
    family = known.get("cpu family", "")
    is_newer = known.get("vendor_id") == "AuthenticAMD" and family.isdigit() and int(family) >= 26
    return is_newer and "avx512f" in known.get("flags", "").split()


def blas_kernels() -> str:
    """The kernels that numpy's BLAS has taken, such as SkylakeX; empty if it does not say."""
    import numpy  # noqa: F401, whose library it is
    from threadpoolctl import threadpool_info

    return ", ".join(sorted({library["architecture"] for library in threadpool_info() if "architecture" in library}))
