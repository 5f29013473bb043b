"""Denormal floats: numbers closer to zero than the smallest normal one (1.2e-38 in float32).

Adam's moments of weights without gradient decay into them, and many processors compute with them ten times slower. The
switch is a register of each thread: new threads inherit it from the thread that starts them, new programs do not.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import NamedTuple


class _Register(NamedTuple):
    """Where C's ``fenv_t`` keeps the register, as the index of a 32-bit word, and the bits that flush denormals."""

    word: int
    bits: int


_REGISTERS = {"x86_64": _Register(7, 0x8040), "aarch64": _Register(0, 1 << 24)}
_FENV_WORDS = 8


def flush_denormals(is_on: bool) -> bool:
    """Let this thread, and those it starts from now on, read and write denormals as zero.

    Returns False, and does nothing, on systems other than Linux with glibc on x86-64 or ARM64.
    """
    libm, register = _math_library(), _REGISTERS.get(platform.machine())
    if libm is None or register is None:
        return False
    words = _read(libm)
    words[register.word] = words[register.word] | register.bits if is_on else words[register.word] & ~register.bits
    libm.fesetenv(words)
    return True


def are_flushed() -> bool:
    """Whether this thread reads denormals as zero."""
    libm, register = _math_library(), _REGISTERS.get(platform.machine())
    return libm is not None and register is not None and bool(_read(libm)[register.word] & register.bits)


def _read(libm: ctypes.CDLL) -> ctypes.Array[ctypes.c_uint32]:
    words = (ctypes.c_uint32 * _FENV_WORDS)()
    libm.fegetenv(words)
    return words


@cache
def _math_library() -> ctypes.CDLL | None:
    """The C library's floating-point environment. Other systems than Linux lay it out differently."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return None
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return None
