"""Processor and memory usage of this process and of the whole machine.

Read from ``/proc`` if the system has it; unknown values are left out. The values are not reproducible, so they are
logged to machine.jsonl. Worker processes of a process vector count for the machine, not for this process.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

PROC = Path("/proc")


class Meter:
    """Measures the usage since its last reading."""

    def __init__(self, proc: Path = PROC) -> None:
        self.proc = proc
        self._before = (time.perf_counter(), _cpu_seconds())
        self._machine_before = self._machine_ticks()

    def read(self) -> dict[str, float]:
        """The metrics ``usage/*`` and ``memory/*``."""
        return {**self._processor(), **self._memory()}

    def _processor(self) -> dict[str, float]:
        now, used = time.perf_counter(), _cpu_seconds()
        then, used_then = self._before
        self._before = (now, used)
        usage = {
            "usage/cpu_seconds": used,
            "usage/process_cpu_percent": 100 * (used - used_then) / max(now - then, 1e-9),
        }
        before, after = self._machine_before, self._machine_ticks()
        self._machine_before = after
        if before and after and after[1] > before[1]:
            usage["usage/system_cpu_percent"] = 100 * (after[0] - before[0]) / (after[1] - before[1])
        return usage

    def _memory(self) -> dict[str, float]:
        available = machine_memory("MemAvailable", self.proc)
        found = {"peak": peak_memory(), "now": resident_memory(self.proc), "available": available}
        return {f"memory/{word}_megabytes": size / 1024**2 for word, size in found.items() if size is not None}

    def _machine_ticks(self) -> tuple[int, int] | None:
        """Busy ticks and all ticks of all processors since boot."""
        try:
            ticks = [int(word) for word in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
            idle = ticks[3] + ticks[4]
        except (OSError, ValueError, IndexError):
            return None
        return sum(ticks) - idle, sum(ticks)


def peak_memory() -> int:
    """Peak memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_memory(proc: Path = PROC) -> int | None:
    """Memory of this process in bytes. None if the system does not report it."""
    try:
        return int((proc / "self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def machine_memory(name: str, proc: Path = PROC) -> int | None:
    """Memory of the machine in bytes: MemTotal, MemAvailable ... None if the system does not report it."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, ValueError, StopIteration):
        return None


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
