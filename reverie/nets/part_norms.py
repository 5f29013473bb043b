"""How strongly the parts of an agent are pulled, and how far they move: norms of gradients and of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

EVERY = 10
"""Updates between two looks: each copies all weights."""


class PartNorms:
    """Watches named modules while an optimiser moves them."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        self.parts = {name: list(module.parameters()) for name, module in parts.items()}

    def __add__(self, other: PartNorms) -> PartNorms:
        both = PartNorms({})
        both.parts = {**self.parts, **other.parts}
        return both

    @contextmanager
    def watch(self, steps: int) -> Iterator[dict[str, Tensor]]:
        """For the block between gradients and new weights; fills the dict when it ends, if the step is due."""
        found: dict[str, Tensor] = {}
        if steps % EVERY:
            yield found
            return
        pulled = {name: norm_of([weight.grad for weight in part]) for name, part in self.parts.items()}
        before = {name: [weight.detach().clone() for weight in part] for name, part in self.parts.items()}
        yield found
        for name, part in self.parts.items():
            changes = torch._foreach_sub([weight.detach() for weight in part], before[name])
            found |= {f"grad_norm_{name}": pulled[name], f"update_norm_{name}": norm_of(changes)}


def norm_of(tensors: list[Tensor]) -> Tensor:
    """The norm of all of them as one vector."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
