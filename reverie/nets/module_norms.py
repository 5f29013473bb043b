"""Norms of gradients and of weight changes, per module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from reverie.nets.optim import gradient_of

EVERY = 10
"""Updates between two measurements. Each measurement copies all weights."""


class ModuleNorms:
    """Measures named modules while an optimiser changes them."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.parameters = {name: list(module.parameters()) for name, module in modules.items()}

    def __or__(self, other: ModuleNorms) -> ModuleNorms:
        both = ModuleNorms({})
        both.parameters = self.parameters | other.parameters
        return both

    @contextmanager
    def measure(self, steps: int) -> Iterator[dict[str, Tensor]]:
        """Wrap the optimiser's step. Fills the dict at the end if a measurement is due after ``steps`` steps."""
        metrics: dict[str, Tensor] = {}
        if steps % EVERY:
            yield metrics
            return
        norms = {name: norm([gradient_of(weight) for weight in weights]) for name, weights in self.parameters.items()}
        before = {name: [weight.detach().clone() for weight in weights] for name, weights in self.parameters.items()}
        yield metrics
        for name, weights in self.parameters.items():
            changes = torch._foreach_sub([weight.detach() for weight in weights], before[name])
            metrics |= {f"grad_norm_{name}": norms[name], f"update_norm_{name}": norm(changes)}


def norm(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """The norm of all tensors as one vector."""
    total: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return total
