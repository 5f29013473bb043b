"""One backward pass for several optimisers.

If the optimiser's rule treats every number or tensor on its own, as Adam and LaProp do, this equals one optimiser over
all parameters. Each optimiser keeps its own learning rate and gradient norm, and can also step alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from reverie.nets.module_norms import ModuleNorms
from reverie.nets.optim import FlatOptimizer

Microbatch = TypeVar("Microbatch")


@dataclass(frozen=True)
class Loss:
    """What a loss function returns for one microbatch.

    ``total`` and ``metrics`` add up over microbatches; the tensors in ``aux`` are concatenated.
    """

    total: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    aux: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Metrics and auxiliary outputs of all microbatches, and the gradient norm of each optimiser before clipping."""

    metrics: dict[str, Tensor]
    aux: dict[str, Tensor]


def minimise_jointly(
    optimizers: Mapping[str, FlatOptimizer],
    loss_fn: Callable[[Microbatch], Loss],
    microbatches: Iterable[Microbatch],
    learning_rates: Mapping[str, float],
    max_grad_norm: float | None = None,
    module_norms: ModuleNorms | None = None,
) -> Result:
    """One step of all optimisers on the sum of the losses of all microbatches.

    ``max_grad_norm`` bounds the gradient of each optimiser as a whole. Metrics: those of the loss function,
    ``<name>_grad_norm`` of each optimiser before clipping, and the norms of single modules whenever they are due.
    """
    parameters = [parameter for optimizer in optimizers.values() for parameter in optimizer.parameters]
    metrics: list[Mapping[str, Tensor]] = []
    aux: list[Mapping[str, Tensor]] = []
    for index, microbatch in enumerate(microbatches):
        loss = loss_fn(microbatch)
        _accumulate_gradients(loss.total, parameters, is_first=index == 0)
        metrics.append({name: value.detach() for name, value in loss.metrics.items()})
        aux.append(loss.aux)
        del loss  # frees the graph before the next microbatch is computed
    norms = {name: torch.linalg.vector_norm(optimizer.gradient) for name, optimizer in optimizers.items()}
    steps = next(iter(optimizers.values())).steps
    with (module_norms or ModuleNorms({})).measure(steps) as measured:
        for name, optimizer in optimizers.items():
            if max_grad_norm is not None:
                optimizer.gradient.mul_(torch.clamp(max_grad_norm / (norms[name] + 1e-6), max=1.0))
            optimizer.steps += 1
            optimizer.move(learning_rates[name])
    sums = {name: torch.stack([each[name] for each in metrics]).sum() for name in metrics[0]}
    grad_norms = {f"{name}_grad_norm": norm for name, norm in norms.items()}
    return Result(sums | measured | grad_norms, {name: _concatenate([each[name] for each in aux]) for name in aux[0]})


def _accumulate_gradients(loss: Tensor, parameters: Sequence[nn.Parameter], is_first: bool) -> None:
    """Write the gradients of the first microbatch, add those of the others."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            if is_first:
                parameter.grad.zero_()
        elif is_first:
            parameter.grad.copy_(gradient)
        else:
            parameter.grad.add_(gradient)


def _concatenate(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
