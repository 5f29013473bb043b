"""The backend of a run: device, engine, precision, matmul library and microbatches, and the settings of the process."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from reverie.core.errors import ConfigError
from reverie.core.types import State
from reverie.kernels.products import has_onednn
from reverie.machine import denormals

CPU = torch.device("cpu")
SHAPES_KEPT = 128
"""Shapes of matmuls and convolutions that oneDNN keeps prepared. Dreamer on images has 118 at its default size; with
64 it was 5 % slower."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's numbers for mallopt


class BackendSettings(Protocol):
    """The ``backend`` section of a config. ``auto`` means the default of :class:`Backend`."""

    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def engine(self) -> str: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def matmul(self) -> str: ...
    @property
    def numpy_matmul(self) -> str: ...
    @property
    def flush_denormals(self) -> bool: ...


@dataclass(frozen=True)
class Backend:
    """Where and how an algorithm computes. The default is a CPU in float32.

    Nothing here is process-wide: algorithms with different backends can live in one process.
    """

    device: torch.device = CPU
    engine: str = "numpy"
    """What plain fully connected networks run on: numpy (gradients written out) or torch."""
    precision: str = "float32"
    """What networks compute in: float32 or bfloat16."""
    matmul: str = "torch"
    """Library for big float32 matmuls of the torch engine: torch or onednn."""
    numpy_matmul: str = "numpy"
    """Library for big matmuls of the numpy engine: numpy, torch or onednn."""
    microbatches: int = 1
    """How many microbatches an update splits its batch into."""

    @classmethod
    def from_settings(cls, settings: BackendSettings) -> Backend:
        """The backend of a config. ConfigError if this machine lacks the device or the matmul library."""
        device = check_device(settings.device)
        if device.type == "cpu" and not has_onednn():
            _refuse_onednn(settings)
        # Only torch splits batches: the numpy engine takes a batch whole.
        is_numpy = settings.engine in ("numpy", "auto") and device.type == "cpu" and settings.microbatches == 1
        is_rounded = settings.precision == "bfloat16"
        is_onednn = settings.matmul == "onednn" and device.type == "cpu" and not is_rounded
        return cls(
            device,
            engine="numpy" if is_numpy else "torch",
            precision="bfloat16" if is_rounded else "float32",
            matmul="onednn" if is_onednn else "torch",
            numpy_matmul="numpy" if settings.numpy_matmul == "auto" else settings.numpy_matmul,
            microbatches=settings.microbatches,
        )

    def microbatch_size(self, rows: int) -> int:
        """Rows of a microbatch, for a batch of so many rows."""
        return -(-rows // self.microbatches)

    def to_tensor(self, values: Any) -> torch.Tensor:
        """An array as a tensor on the device."""
        return torch.as_tensor(values, device=self.device)

    def to_tensors(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """A batch of arrays as tensors on the device. Tensors that are there already are not copied."""
        return {key: torch.as_tensor(value, device=self.device) for key, value in batch.items()}

    def device_usage(self) -> dict[str, float]:
        """Memory of the GPU and, where torch can read it, its load. Empty on a CPU."""
        if self.device.type != "cuda":
            return {}
        megabyte = 1024**2
        usage = {
            "memory/gpu_now_megabytes": torch.cuda.memory_allocated(self.device) / megabyte,
            "memory/gpu_peak_megabytes": torch.cuda.max_memory_allocated(self.device) / megabyte,
        }
        with suppress(Exception):  # needs the driver's library, whose absence shows in several ways
            usage["usage/gpu_percent"] = float(torch.cuda.utilization(self.device))
        return usage


DEFAULT = Backend()


def _refuse_onednn(settings: BackendSettings) -> None:
    chosen = {"matmul": settings.matmul, "numpy_matmul": settings.numpy_matmul}
    for key, other in (("matmul", "torch"), ("numpy_matmul", "numpy")):
        if chosen[key] == "onednn":
            raise ConfigError(
                f"backend.{key} is onednn, which this build of torch does not have.",
                f"Set backend.{key}={other}. A run that began with onednn then no longer continues bit for bit.",
            )


@contextmanager
def without_weights() -> Iterator[Backend]:
    """A backend for algorithms built in this block: networks have shapes, but no memory.

    It shows whether an algorithm of any size can be built.
    """
    meta = torch.device("meta")
    with meta:
        yield Backend(meta, engine="torch")


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Modules built in this block get initial weights from ``rng``. Torch's global generator stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**62)))
        yield


# -------------------------------------------------------------------- settings of the process


def configure_process(settings: BackendSettings) -> None:
    """Apply the settings that hold for the whole process: threads, determinism, denormals, caches. Call it where a run
    starts.

    Runs in one process share them: the last call counts. Torch's threads keep how they treat denormals from the moment
    they start, which is the first large operation.
    """
    _limit_onednn_cache()
    if not denormals.flush_denormals(settings.flush_denormals):
        torch.set_flush_denormal(settings.flush_denormals)
    set_threads(settings.threads)
    # Not use_deterministic_algorithms: it imports the whole compiler, which takes 1.8 s.
    torch.set_deterministic_debug_mode("error" if settings.deterministic else "default")
    # Otherwise deterministic mode fills every new tensor before it is written, which takes 5 % of an update.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # made at run time
    _keep_freed_memory()
    if settings.deterministic and settings.device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def set_threads(count: int) -> None:
    """Threads of torch and of numpy's BLAS. BLAS would take all cores, which is far slower for small networks."""
    torch.set_num_threads(count)
    threadpool_limits(count, user_api="blas")


def _keep_freed_memory() -> None:
    """Let glibc keep big blocks instead of returning them to the system after every use.

    Each new block costs a page fault per 4 kB when it is first written: an update on images took 3.5 s instead of
    2.5 s. Does nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def _limit_onednn_cache() -> None:
    """Limit how many shapes oneDNN keeps prepared. Its default is a thousand, of megabytes each.

    Batches of whole episodes have a new shape each time. oneDNN and the layer above it read these variables at their
    first matmul.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(SHAPES_KEPT))


# -------------------------------------------------------------------- what ``auto`` stands for


def best_device() -> str:
    """What ``device: auto`` stands for on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def best_precision(device: str) -> str:
    """What ``precision: auto`` stands for: bfloat16 on CUDA hardware that has it (from 8.0 on)."""
    chosen = check_device(device)
    has_bfloat16 = chosen.type == "cuda" and torch.cuda.get_device_capability(chosen) >= (8, 0)
    return "bfloat16" if has_bfloat16 else "float32"


def check_device(name: str) -> torch.device:
    """The torch device of that name. ConfigError if this machine does not have it."""
    try:
        chosen = torch.device(name)
    except RuntimeError as error:
        fix = "Write cpu, cuda, cuda:0 (a GPU by its number) or mps."
        raise ConfigError(f"backend.device '{name}' is not the name of a device.", fix) from error
    try:
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        fix = "Set backend.device=cpu, or install a torch build for that device."
        raise ConfigError(f"backend.device '{name}' is not available here.", fix) from error
    return chosen


# -------------------------------------------------------------------- older algorithms

_NOW_METHODS = {
    "device": "device", "engine": "engine", "precision": "precision", "products": "matmul",
    "part_size": "microbatch_size(rows)", "to_tensors": "to_tensors(batch)",
}  # fmt: skip

if not TYPE_CHECKING:  # mypy would otherwise accept any name

    def __getattr__(name: str) -> None:
        if name not in _NOW_METHODS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise ConfigError(
            f"reverie.backend.{name}() is gone: each algorithm now gets a Backend of its own.",
            "Give its constructor a fourth argument: __init__(self, config, specs, rng, backend). Keep it as "
            f"self.backend and write self.backend.{_NOW_METHODS[name]}.",
        )


# -------------------------------------------------------------------- weights as arrays


def to_arrays(tree: Any) -> Any:
    """A nested dict with every tensor copied to a numpy array."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy().copy()
    if isinstance(tree, Mapping):
        return {str(key): to_arrays(value) for key, value in tree.items()}
    return tree


def module_state(module: torch.nn.Module) -> State:
    """The weights of a module as arrays."""
    state: State = to_arrays(module.state_dict())
    return state


def load_module_state(module: torch.nn.Module, state: State) -> None:
    """Copy arrays into a module in place. ValueError names the first weight whose name or shape does not fit."""
    own = module.state_dict()
    for name in dict.fromkeys([*own, *state]):
        here, there = (tuple(np.shape(side[name])) if name in side else "missing" for side in (own, state))
        if here != there:
            raise ValueError(f"{name} is {here} here, but {there} in what is loaded")
    module.load_state_dict({key: torch.as_tensor(value) for key, value in state.items()})


def modules_of(owner: Any) -> dict[str, torch.nn.Module]:
    """The networks that an object holds, by the names of its attributes."""
    return {name: value for name, value in vars(owner).items() if isinstance(value, torch.nn.Module)}


def count_parameters(owner: Any) -> int:
    """How many trainable parameters the networks of an object have."""
    found = {id(p): p for module in modules_of(owner).values() for p in module.parameters() if p.requires_grad}
    return sum(parameter.numel() for parameter in found.values())
