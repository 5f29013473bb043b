"""Tools of torch for looking closely at training: ``reverie train ... --debug``. Slow, so never part of other runs."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from reverie import backend


def anomaly_detection() -> AbstractContextManager[Any]:
    """Inside, a gradient that is not a number raises at the operation that made it."""
    return torch.autograd.set_detect_anomaly(True, check_nan=True)


def layer_statistics(algorithm: Any) -> dict[str, dict[str, float]]:
    """Size of each parameter and of its last gradient (after clipping), by name: norm, and the largest number."""
    found = {}
    for module_name, module in backend.modules_of(algorithm).items():
        for name, parameter in module.named_parameters():
            found[f"{module_name}.{name}"] = _sizes("weight", parameter) | _sizes("gradient", parameter.grad)
    return found


def _sizes(what: str, values: torch.Tensor | None) -> dict[str, float]:
    if values is None or not values.numel():
        return {}
    values = values.detach()
    return {f"{what}_norm": float(torch.linalg.vector_norm(values)), f"{what}_largest": float(values.abs().max())}


class Profile:
    """What torch does from here until ``save``, as a file for chrome://tracing or Perfetto."""

    def __init__(self) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler tells the terminal when it starts and stops
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=kinds)
        self._profile.start()

    def save(self, path: Path) -> None:
        self._profile.stop()
        self._profile.export_chrome_trace(str(path))
