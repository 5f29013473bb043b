"""What this machine has and what this process takes of it. Nothing here may decide a bit of a result."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from reverie.log.machine import machine_memory

_LIMITS = (
    # the most that the container may take, and what it takes; version 2 of control groups, then version 1
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)

DEBUGGERS = ("pydevd", "wingdb", "thonny")
"""Parts of the names of modules that trace for debuggers; the first is that of PyCharm and VS Code."""


def total_memory() -> int | None:
    """Bytes that this process and its neighbours may use at most: the machine's, or a container's limit."""
    found = [_physical("MemTotal"), *(limit for limit, _ in _container_memory())]
    return min((number for number in found if number), default=None)


def free_memory() -> int | None:
    """Bytes that can still be taken without anything being moved to disk; None where the system does not tell."""
    found = [_physical("MemAvailable"), *(limit - used for limit, used in _container_memory())]
    return min((max(0, number) for number in found if number is not None), default=None)


def free_disk(path: Path) -> int:
    """Bytes that can still be written below a path, which need not exist yet."""
    existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def is_debugged() -> bool:
    """Whether a debugger is attached to this process. Others trace too, coverage for one: so only known ones count."""
    trace, bdb = sys.gettrace(), sys.modules.get("bdb")
    if bdb is not None and isinstance(getattr(trace, "__self__", None), bdb.Bdb):  # pdb, ipdb, pudb ...
        return True
    if any(name in (getattr(trace, "__module__", None) or "") for name in DEBUGGERS):
        return True
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


def size_text(number: float) -> str:
    """Bytes for people: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _physical(name: str) -> int | None:
    told = machine_memory(name)
    pages = {"MemTotal": "SC_PHYS_PAGES", "MemAvailable": "SC_AVPHYS_PAGES"}[name]
    if told is not None or pages not in os.sysconf_names:
        return told
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _container_memory() -> list[tuple[int, int]]:
    for limit, used in _LIMITS:
        try:
            return [(int(limit.read_text()), int(used.read_text()))]
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
    return []
