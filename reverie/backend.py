"""Device, threads, determinism, seeding of initial weights, rank: the only file with torch *settings*."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from reverie.core.errors import ConfigError
from reverie.core.types import State
from reverie.machine.processor import is_half_used_by_mkl


@dataclass(frozen=True)
class World:
    """Which of several cooperating processes this is."""

    rank: int = 0
    size: int = 1


_device = torch.device("cpu")
_engine = "numpy"
_microbatches = 1
_precision = "float32"
_products = "torch"
SHAPES_KEPT = 128
"""Of products and convolutions. Dreamer on images has 118 at its default size; with half of them it was 5 % slower."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's numbers for mallopt


def configure(
    device: str,
    threads: int,
    deterministic: bool,
    engine: str = "numpy",
    microbatches: int = 1,
    precision: str = "float32",
    products: str = "torch",
) -> None:
    """Apply the backend section of a config; called once, before anything is built."""
    global _device, _engine, _microbatches, _precision, _products
    chosen = check_device(device)
    if products == "onednn" and chosen.type == "cpu" and not _has_onednn():
        fix = "Set backend.products=torch; a run that was made with onednn is then another one from there on."
        raise ConfigError("backend.products is onednn, which this build of torch does not have.", fix)
    _device, _microbatches, _precision, _products = chosen, microbatches, precision, products
    _bound_onednn()
    # numpy's forms take a batch whole: where memory is short and it comes in parts, torch is the one that can.
    _engine = engine if _device.type == "cpu" and microbatches == 1 else "torch"
    set_threads(threads)
    # Not use_deterministic_algorithms: it loads the whole compiler, 1.8 s for nothing.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # Else every fresh tensor is filled before it is written: a twentieth of an update, for memory that nobody reads.
    torch.utils.deterministic.fill_uninitialized_memory = False
    _keep_freed_memory()
    if deterministic and _device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _keep_freed_memory() -> None:
    """Let glibc keep big blocks instead of giving them back to the system after every use.

    Each fresh block costs a page fault per 4 kB when it is first written: an update on images took 3.5 s instead of
    2.5 s for nothing else. Elsewhere than on glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def _bound_onednn() -> None:
    """Let oneDNN keep what it has prepared for the last shapes only: by itself it keeps a thousand, of megabytes each.

    Batches of whole episodes have a new shape each time. It and the layer above it look once, at their first product.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(SHAPES_KEPT))


def set_threads(count: int) -> None:
    """For torch and for numpy's BLAS, whose own default is all cores: far slower for small networks."""
    torch.set_num_threads(count)
    threadpool_limits(count, user_api="blas")


def device() -> torch.device:
    """Where tensors live."""
    return _device


def device_usage() -> dict[str, float]:
    """Memory and, where torch can ask for it, load of the GPU that is trained on; nothing on a CPU."""
    if _device.type != "cuda":
        return {}
    megabyte = 1024**2
    usage = {
        "memory/gpu_now_megabytes": torch.cuda.memory_allocated(_device) / megabyte,
        "memory/gpu_peak_megabytes": torch.cuda.max_memory_allocated(_device) / megabyte,
    }
    with suppress(Exception):  # needs the driver's library, whose absence shows in several ways
        usage["usage/gpu_percent"] = float(torch.cuda.utilization(_device))
    return usage


def part_size(rows: int) -> int:
    """Rows of a batch that torch works on at a time; the gradients of all parts add up to that of the batch."""
    return -(-rows // _microbatches)


def engine() -> str:
    """What plain fully connected networks run on: numpy (gradients written out) or torch."""
    return _engine


def precision() -> str:
    """What networks compute in, if their algorithm can choose: float32 or bfloat16."""
    return _precision


def products() -> str:
    """What multiplies big matrices of float32 numbers: torch as it is, or oneDNN."""
    return _products if _device.type == "cpu" and _precision == "float32" else "torch"


def best_products(device: str) -> str:
    """What ``products: auto`` stands for: oneDNN where torch's own library uses half of the processor."""
    return "onednn" if device == "cpu" and is_half_used_by_mkl() and _has_onednn() else "torch"


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def best_precision(device: str) -> str:
    """What ``precision: auto`` stands for on this device: bfloat16 on CUDA hardware that has it (from 8.0 on)."""
    chosen = check_device(device)
    has_it = chosen.type == "cuda" and torch.cuda.get_device_capability(chosen) >= (8, 0)
    return "bfloat16" if has_it else "float32"


def best_device() -> str:
    """What ``device: auto`` stands for on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
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


def world() -> World:
    """Rank and size as torch.distributed's launcher sets them; a lone process is rank 0 of 1."""
    return World(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Modules built in this block draw their weights from ``rng``; torch's global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**62)))
        yield


@contextmanager
def without_weights() -> Iterator[None]:
    """Networks built in this block have shapes and no memory: it shows whether they can be built, at any size."""
    global _device, _engine
    before = _device, _engine
    _device, _engine = torch.device("meta"), "torch"
    try:
        with _device:
            yield
    finally:
        _device, _engine = before


def to_tensors(batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """A batch of arrays on the device; tensors that are there already stay themselves."""
    return {key: torch.as_tensor(value, device=_device) for key, value in batch.items()}


def to_arrays(tree: Any) -> Any:
    """A nested dict with every tensor as a numpy array of its own (later training does not change it)."""
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
    """Copy arrays into a module in place; names and shapes must match, or the first that does not is named."""
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
    """How many numbers its networks learn; 0 for one without networks."""
    found = {id(p): p for module in modules_of(owner).values() for p in module.parameters() if p.requires_grad}
    return sum(parameter.numel() for parameter in found.values())
