"""``reverie doctor``: checks what Reverie needs on this machine, and says what to install.

"broken" means that no run can work. What only some runs need (an extra, rendering without a screen) is a hint.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from reverie.core.errors import ConfigError
from reverie.envs.suites import SUITES
from reverie.machine.installation import install_command

LOWEST_PYTHON = (3, 11)
LITTLE_DISK = 2 * 10**9
LITTLE_MEMORY = 10**9
LITTLE_SHARED = 64 * 10**6
EXTRAS = {
    **{suite.extra: (next(iter(suite.packages)), suite.title) for suite in SUITES if suite.extra},
    "atari-objects": ("ocatari", "env.obs=objects in Atari games"),
    "envpool": ("envpool", "env.vector=envpool"),
    "jax": ("jax", "envs of your own in JAX"),
    "minari": ("minari", "datasets of Minari"),
    "onnx": ("onnxruntime", "reverie export --format onnx"),
    "pandas": ("pyarrow", "reverie export --format parquet"),
    "scope": ("scope", "the viewer of log.scope.enabled=true"),
    "tensorboard": ("tensorboard", "log.tensorboard=true"),
    "video": ("imageio_ffmpeg", "videos as mp4"),
    "wandb": ("wandb", "log.wandb"),
}
"""The module that shows whether an extra is installed, and what it is for."""
MODULES = {"pillow": "PIL", "pyyaml": "yaml"}
"""Packages whose module has another name."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    topic: str
    state: Literal["ok", "hint", "broken"]
    text: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def examine(runs_dir: Path) -> list[Finding]:
    """All findings, in display order. A check that raises is reported as a hint."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python, _packages, _computing, _extras, _rendering, _memory, lambda: _disk(runs_dir),
    ]  # fmt: skip
    return [finding for check in checks for finding in _guarded(check)]


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:
        yield Finding(getattr(check, "__name__", "check").strip("_"), "hint", f"{type(error).__name__}: {error}")


def _python() -> Iterator[Finding]:
    is_new = sys.version_info >= LOWEST_PYTHON
    text = f"{platform.python_version()}, {platform.platform()}"
    wanted = ".".join(map(str, LOWEST_PYTHON))
    yield Finding("python", "ok" if is_new else "broken", text, "" if is_new else f"Install Python {wanted} or newer.")


def required_packages() -> list[str]:
    """The dependencies of the installed package, without extras."""
    lines = [line for line in metadata.requires("reverie") or [] if "extra ==" not in line]
    return [re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0] for line in lines]


def _packages() -> Iterator[Finding]:
    yield Finding("reverie", "ok", metadata.version("reverie"))
    for name in required_packages():
        try:
            importlib.import_module(MODULES.get(name, name.replace("-", "_")))
            yield Finding(name, "ok", metadata.version(name))
        except Exception as error:  # an import may raise anything
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield Finding(name, "broken", f"cannot be imported: {reason}", f"pip install --force-reinstall {name}")


def _computing() -> Iterator[Finding]:
    from reverie import backend
    from reverie.machine import processor

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ}
    suffix = "".join(f", {name}={value}" for name, value in limits.items())
    yield Finding("threads", "ok", f"{usable} of {os.cpu_count()} cores usable{suffix} (runs use backend.threads)")
    kernels = processor.blas_kernels() or "an unknown processor"
    yield Finding("blas", "ok", f"numpy uses kernels for {kernels}")
    device = backend.best_device()
    yield Finding("device", "ok", device)


def _extras() -> Iterator[Finding]:
    for extra, (module, purpose) in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield Finding(f"extra {extra}", "ok", f"installed ({purpose})")
        else:
            yield Finding(f"extra {extra}", "hint", f"not installed ({purpose})", install_command(extra))


def _rendering() -> Iterator[Finding]:
    from reverie.envs import gl

    screen = "found" if gl.has_screen() else "none: `reverie play` writes video files instead of opening a window"
    yield Finding("screen", "ok", screen)
    try:
        yield Finding("gl", "ok", f"MuJoCo and dm_control render with {gl.require_backend()}")
    except ConfigError as error:
        yield Finding("gl", "hint", error.message, error.fix)


def _memory() -> Iterator[Finding]:
    from reverie.machine.memory import free_memory, size_text, total_memory

    free, total = free_memory(), total_memory()
    if free is not None and total is not None:
        is_little = free < LITTLE_MEMORY
        fix = "Close other programs, or choose smaller buffers: buffers.main.capacity." if is_little else ""
        text = f"{size_text(free)} of {size_text(total)} free"
        yield Finding("memory", "hint" if is_little else "ok", text, fix)
    shared = Path("/dev/shm")
    if shared.is_dir():
        room = _free_bytes(shared)
        advice = "In Docker, add --shm-size=1g. Reverie does not use shared memory, but some envs do."
        fix = advice if room < LITTLE_SHARED else ""
        yield Finding("shared memory", "hint" if fix else "ok", f"{size_text(room)} free", fix)


def _disk(runs_dir: Path) -> Iterator[Finding]:
    from reverie.machine.memory import free_disk, size_text

    room = free_disk(runs_dir)
    existing = next(path for path in (runs_dir.absolute(), *runs_dir.absolute().parents) if path.exists())
    if not _is_writable(existing):
        yield Finding("disk", "broken", f"'{runs_dir}' is not writable", "Choose another folder: --runs-dir DIR")
        return
    is_little = room < LITTLE_DISK
    fix = "Delete old runs, or choose another folder: --runs-dir DIR" if is_little else ""
    yield Finding("disk", "hint" if is_little else "ok", f"{size_text(room)} free for '{runs_dir}'", fix)


def _free_bytes(folder: Path) -> int:
    found: Any = os.statvfs(folder)
    return int(found.f_bavail * found.f_frsize)


def _is_writable(folder: Path) -> bool:
    with suppress(OSError), tempfile.TemporaryFile(dir=folder):
        return True
    return False
