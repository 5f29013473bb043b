"""One backward pass for several optimisers.

If the optimiser's rule treats every number or tensor on its own, as Adam and LaProp do, this equals one optimiser over
all parameters. Each optimiser keeps its own learning rate and gradient norm, and can also step alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from reverie.nets.module_norms import ModuleNorms
from reverie.nets.optim import FlatOptimizer, LossFunction, Microbatch, Outputs, accumulate_gradients


def minimise_jointly(
    optimizers: Mapping[str, FlatOptimizer],
    loss_fn: LossFunction[Microbatch],
    microbatches: Iterable[Microbatch],
    learning_rates: Mapping[str, float],
    max_grad_norm: float | None = None,
    module_norms: ModuleNorms | None = None,
    joint_norm: bool = False,
) -> Outputs:
    """One step of all optimisers on the sum of the losses of all microbatches.

    ``max_grad_norm`` bounds the gradient of each optimiser as a whole, with ``joint_norm`` that of all together.
    Metrics: those of the loss function, ``<name>_grad_norm`` of each optimiser before clipping, and the norms of single
    modules whenever they are due.
    """
    parameters = [parameter for optimizer in optimizers.values() for parameter in optimizer.parameters]
    metrics, aux, _ = accumulate_gradients(loss_fn, microbatches, parameters)
    norms = {name: torch.linalg.vector_norm(optimizer.gradient) for name, optimizer in optimizers.items()}
    total = torch.linalg.vector_norm(torch.stack(list(norms.values())))
    steps = next(iter(optimizers.values())).steps
    with (module_norms or ModuleNorms({})).measure(steps) as measured:
        for name, optimizer in optimizers.items():
            if max_grad_norm is not None:
                bounded = total if joint_norm else norms[name]
                optimizer.gradient.mul_(torch.clamp(max_grad_norm / (bounded + 1e-6), max=1.0))
            optimizer.steps += 1
            optimizer.update_parameters(learning_rates[name])
    grad_norms = {f"{name}_grad_norm": norm for name, norm in norms.items()}
    return Outputs(metrics | measured | grad_norms, aux)
