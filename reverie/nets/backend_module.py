"""How networks get the run's backend: :func:`to_backend` sets it once on each of their modules that needs it."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from reverie.backend import Backend
from reverie.nets.matmul import Matmul

Module = TypeVar("Module", bound=nn.Module)


class BackendModule(nn.Module):
    """A module that reads the backend. Until :func:`to_backend` sets it, it is the default one."""

    backend = Backend()
    matmul = Matmul()


def to_backend(module: Module, backend: Backend) -> Module:
    """Move a network to the backend's device. It then computes as the backend says."""
    matmul = Matmul(backend.matmul, backend.precision)
    for part in module.modules():
        if isinstance(part, BackendModule):
            part.backend, part.matmul = backend, matmul
    return module.to(backend.device)
