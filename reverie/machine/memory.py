"""Memory and disk space of this machine. Nothing here may influence results."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from reverie.machine.usage import machine_memory

_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))
"""Folders with a container's limits, in version 2 and version 1 of control groups."""
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_RECLAIMABLE = (
    ("active_file", "inactive_file", "slab_reclaimable"),
    ("total_active_file", "total_inactive_file"),
)
"""Lines of memory.stat that count as used but are freed on demand: mostly cached files, such as datasets and
checkpoints."""

DEBUGGERS = ("pydevd", "wingdb", "thonny")
"""Substrings of the modules that trace for debuggers. pydevd is that of PyCharm and VS Code."""


def total_memory() -> int | None:
    """Bytes of memory of the machine or, if smaller, the limit of the container."""
    found = [_physical("MemTotal"), *(limit for limit, _ in _container_memory())]
    return min((number for number in found if number), default=None)


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping. None if the system does not report it."""
    found = [_physical("MemAvailable"), *(limit - used for limit, used in _container_memory())]
    return min((max(0, number) for number in found if number is not None), default=None)


def free_disk(path: Path) -> int:
    """Bytes that can be written below a path, which need not exist yet."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def is_debugged() -> bool:
    """Whether a known debugger is attached to this process. Tracing alone proves nothing: coverage traces too."""
    trace, bdb = sys.gettrace(), sys.modules.get("bdb")
    if bdb is not None and isinstance(getattr(trace, "__self__", None), bdb.Bdb):  # pdb, ipdb, pudb ...
        return True
    if any(name in (getattr(trace, "__module__", None) or "") for name in DEBUGGERS):
        return True
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


def size_text(number: float) -> str:
    """Bytes as readable text: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _physical(name: str) -> int | None:
    size = machine_memory(name)
    pages = {"MemTotal": "SC_PHYS_PAGES", "MemAvailable": "SC_AVPHYS_PAGES"}[name]
    if size is not None or pages not in os.sysconf_names:
        return size
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _container_memory() -> list[tuple[int, int]]:
    """Memory limit of the container, and the memory that it uses and that cannot be freed on demand."""
    for folder, (limit, used), reclaimable in zip(_GROUPS, _FILES, _RECLAIMABLE, strict=True):
        try:
            maximum, in_use = (int((folder / name).read_text()) for name in (limit, used))
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        return [(maximum, max(0, in_use - _reclaimable_memory(folder / "memory.stat", reclaimable)))]
    return []


def _reclaimable_memory(path: Path, names: tuple[str, ...]) -> int:
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return sum(int(number) for name, number in pairs if name in names)
    except (OSError, ValueError):
        return 0
