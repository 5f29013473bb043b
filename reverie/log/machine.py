"""How busy the machine is: processor and memory, of this process and of the whole machine.

Read from ``/proc`` where there is one; what a machine does not tell is left out. None of it is reproducible, so it goes
to machine.jsonl. Worker processes of a process vector count for the machine, not for this process.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

PROC = Path("/proc")


class Meter:
    """Tells the usage since it was last asked."""

    def __init__(self, proc: Path = PROC) -> None:
        self.proc = proc
        self._before = (time.perf_counter(), _cpu_seconds())
        self._machine_before = self._machine_ticks()

    def read(self) -> dict[str, float]:
        """``usage/*`` and ``memory/*``."""
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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
        memory = {"memory/peak_megabytes": peak}
        try:
            pages = int((self.proc / "self/statm").read_text().split()[1])
            lines = (self.proc / "meminfo").read_text().splitlines()
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        except (OSError, ValueError, IndexError):
            return memory
        memory["memory/now_megabytes"] = pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
        if "MemAvailable" in kilobytes:
            memory["memory/available_megabytes"] = kilobytes["MemAvailable"] / 1024
        return memory

    def _machine_ticks(self) -> tuple[int, int] | None:
        """Busy ticks and all ticks of all processors since the machine was started."""
        try:
            ticks = [int(word) for word in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
            idle = ticks[3] + ticks[4]
        except (OSError, ValueError, IndexError):
            return None
        return sum(ticks) - idle, sum(ticks)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
