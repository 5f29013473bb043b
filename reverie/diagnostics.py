"""Torch's debugging tools, for ``reverie train ... --debug``. They are slow."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from reverie.backend import modules_of


def anomaly_detection() -> AbstractContextManager[Any]:
    """In this block a NaN gradient raises at the operation that produced it."""
    return torch.autograd.set_detect_anomaly(True, check_nan=True)


def layer_statistics(algorithm: Any) -> dict[str, dict[str, float]]:
    """Norm and largest magnitude of each parameter and of its last gradient (after clipping), by name."""
    found = {}
    for module_name, module in modules_of(algorithm).items():
        for name, parameter in module.named_parameters():
            found[f"{module_name}.{name}"] = _sizes("weight", parameter) | _sizes("gradient", parameter.grad)
    return found


def _sizes(what: str, values: torch.Tensor | None) -> dict[str, float]:
    if values is None or not values.numel():
        return {}
    values = values.detach()
    return {f"{what}_norm": float(torch.linalg.vector_norm(values)), f"{what}_largest": float(values.abs().max())}


class Profile:
    """Profiles torch until ``save``, which writes a file for chrome://tracing or Perfetto."""

    def __init__(self) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # otherwise the profiler prints when it starts and stops
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=kinds)
        self._profile.start()

    def save(self, path: Path) -> None:
        self._profile.stop()
        self._profile.export_chrome_trace(str(path))
