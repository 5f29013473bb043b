"""Optimisers over one flat vector.

All parameters of an optimiser become views of one tensor, and their gradients views of another. Clipping and stepping
then take one operation each instead of one per layer, which saves most of the cost of updating a small network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from reverie.backend import to_arrays
from reverie.core.config import ComponentConfig
from reverie.core.types import State

MAX_NUMPY_PARAMETERS = 20_000
"""With more parameters torch's fused kernel is faster than numpy."""
NORMS_EVERY = 50
"""Steps between two measurements of :meth:`FlatOptimizer.grad_norms_if_due`. Each costs up to 1/6 of a small update."""


Microbatch = TypeVar("Microbatch")


@dataclass(frozen=True)
class Loss:
    """What a loss function returns for one microbatch.

    ``total`` and ``metrics`` add up over microbatches; the tensors in ``aux`` are concatenated.
    """

    total: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    aux: Mapping[str, Tensor] = field(default_factory=dict)


LossFunction = Callable[[Microbatch], Loss]


class Outputs(NamedTuple):
    """Metrics and auxiliary outputs of all microbatches, without gradient."""

    metrics: dict[str, Tensor]
    aux: dict[str, Tensor]
    is_accepted: bool = True  # False if ``accept`` refused the step


class Result(NamedTuple):
    """The outputs of a gradient step, with the norm of the gradient before clipping. Numpy engines return floats."""

    metrics: dict[str, Any]
    aux: dict[str, Any]
    grad_norm: Any
    """None if the step was skipped."""

    @property
    def is_skipped(self) -> bool:
        """Whether ``accept`` refused the step, in PPO because of ``target_kl``."""
        return self.grad_norm is None


Accept = Callable[[Mapping[str, Tensor]], bool]
"""Decides whether to take the step, from the metrics of the loss summed over the microbatches so far."""


def accumulate_gradients(
    loss_fn: LossFunction[Microbatch],
    microbatches: Iterable[Microbatch],
    parameters: Sequence[nn.Parameter],
    accept: Accept | None = None,
) -> Outputs:
    """Set the gradients of flat parameters to those of the sum of the losses of all microbatches.

    ``accept`` is called before each backward pass. Once it refuses, the remaining microbatches are skipped.
    """
    metrics: list[dict[str, Tensor]] = []
    aux: list[dict[str, Tensor]] = []
    for index, microbatch in enumerate(microbatches):
        loss = loss_fn(microbatch)
        metrics.append({name: value.detach() for name, value in loss.metrics.items()})
        aux.append({name: value.detach() for name, value in loss.aux.items()})
        if accept is not None and not accept(_combine(metrics, aux).metrics):
            return _combine(metrics, aux)._replace(is_accepted=False)
        _differentiate(loss.total, parameters, is_first=index == 0)
        del loss  # frees the graph before the next microbatch is computed
    return _combine(metrics, aux)


@torch.no_grad()
def evaluate(loss_fn: LossFunction[Microbatch], microbatches: Iterable[Microbatch]) -> Outputs:
    """Metrics and auxiliary outputs of a loss function, without a gradient step."""
    losses = [loss_fn(microbatch) for microbatch in microbatches]
    return _combine([dict(loss.metrics) for loss in losses], [dict(loss.aux) for loss in losses])


def _differentiate(loss: Tensor, parameters: Sequence[nn.Parameter], is_first: bool) -> None:
    """Overwrite the gradients for the first microbatch, add to them for the others."""
    # backward() adds to zeroed gradients: one more pass over all of them.
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    if is_first and any(gradient is None for gradient in found):
        torch._foreach_zero_([gradient_of(parameter) for parameter in parameters])
    used = [(own, gradient) for own, gradient in zip(parameters, found, strict=True) if gradient is not None]
    totals, gradients = [gradient_of(own) for own, _ in used], [gradient for _, gradient in used]
    if is_first:
        torch._foreach_copy_(totals, gradients)
    else:
        torch._foreach_add_(totals, gradients)


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter that has an optimiser: a view of the optimiser's flat gradient."""
    assert parameter.grad is not None
    return parameter.grad


def _combine(metrics: Sequence[dict[str, Tensor]], aux: Sequence[dict[str, Tensor]]) -> Outputs:
    if len(metrics) == 1:
        return Outputs(metrics[0], aux[0])
    sums = {name: torch.stack([each[name] for each in metrics]).sum() for name in metrics[0]}
    return Outputs(sums, {name: torch.cat([each[name] for each in aux]) for name in aux[0]})


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One vector with the values of all parameters, which become views of it."""
    size = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, view in zip(parameters, views(parameters, flat), strict=True):
        view.copy_(parameter.data)
        parameter.data = view
    return flat


def views(parameters: Sequence[nn.Parameter], flat: Tensor) -> Iterator[Tensor]:
    """The slice of a flat vector that belongs to each parameter, with the parameter's shape and strides."""
    start = 0
    for parameter in parameters:
        yield flat.as_strided(parameter.size(), parameter.stride(), start)
        start += parameter.numel()


class FlatOptimizer:
    """Base of the optimisers. ``moments`` hold the state of the update rule in vectors as long as ``flat``."""

    moment_names: tuple[str, ...] = ("first", "second")

    def __init__(self, config: ComponentConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.config: Any = config
        self.parameters = list(parameters)
        self.steps = 0
        self.flat = nn.Parameter(flatten(self.parameters))
        self.flat.grad = self.gradient = torch.zeros_like(self.flat.data)
        for parameter, view in zip(self.parameters, views(self.parameters, self.gradient), strict=True):
            parameter.grad = view
        self.moments = {name: torch.zeros_like(self.flat.data) for name in self.moment_names}
        # numpy views of the same numbers. Making them at each step would cost 5 % of a small update.
        tensors = {"flat": self.flat.data, "gradient": self.gradient, **self.moments}
        self.arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.device.type == "cpu"}

    def minimise(
        self,
        loss_fn: LossFunction[Microbatch],
        microbatches: Iterable[Microbatch],
        learning_rate: float,
        max_grad_norm: float | None = None,
        accept: Accept | None = None,
    ) -> Result:
        """One gradient step on the sum of the losses of all microbatches, unless ``accept`` refuses it."""
        outputs = accumulate_gradients(loss_fn, microbatches, self.parameters, accept)
        norm = self._clip_and_update(learning_rate, max_grad_norm) if outputs.is_accepted else None
        return Result(outputs.metrics, outputs.aux, norm)

    def step(self, loss: Tensor, learning_rate: float, max_grad_norm: float | None = None) -> Tensor:
        """One gradient step on a computed loss. Returns the norm of the gradient before clipping."""
        norm: Tensor = self.minimise(Loss, [loss], learning_rate, max_grad_norm).grad_norm
        return norm

    def apply_gradient(self, learning_rate: float, max_grad_norm: float | None = None) -> float:
        """One step with the gradient computed by a numpy engine. Returns its norm before clipping."""
        gradient = self.arrays["gradient"]
        norm = math.sqrt(np.dot(gradient, gradient))
        if max_grad_norm is not None and norm > max_grad_norm:
            gradient *= max_grad_norm / norm
        self.steps += 1
        if len(gradient) <= MAX_NUMPY_PARAMETERS:
            self.update_parameters_in_numpy(learning_rate)
        else:
            self.update_parameters(learning_rate)
        return norm

    def _clip_and_update(self, learning_rate: float, max_grad_norm: float | None) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        # The fused kernels could scale the gradient too, but take three times as long. A GPU always scales: comparing
        # norms would wait for it.
        if max_grad_norm is not None and (norm.device.type != "cpu" or norm > max_grad_norm):
            self.gradient.mul_(torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0))
        self.steps += 1
        self.update_parameters(learning_rate)
        return norm

    def update_parameters(self, learning_rate: float) -> None:
        """Apply the update rule to ``flat``, with the clipped ``gradient``."""
        raise NotImplementedError

    def update_parameters_in_numpy(self, learning_rate: float) -> None:
        """Like :meth:`update_parameters`, for few parameters, where numpy is faster."""
        self.update_parameters(learning_rate)

    def grad_norms(self, modules: Mapping[str, Sequence[nn.Module]], norm: Any) -> dict[str, Tensor]:
        """Norms ``grad_norm_<name>`` of modules' gradients before clipping. ``norm`` is that of all parameters."""
        squares = {}
        for name, group in modules.items():
            gradients = [parameter.grad for module in group for parameter in module.parameters()]
            squares[name] = sum(
                torch.linalg.vector_norm(gradient) ** 2 for gradient in gradients if gradient is not None
            )
        scale = norm / torch.linalg.vector_norm(self.gradient).clamp(min=1e-12)
        return {f"grad_norm_{name}": scale * torch.as_tensor(square).sqrt() for name, square in squares.items()}

    def grad_norms_if_due(self, modules: Mapping[str, Sequence[nn.Module]], norm: Any) -> dict[str, Tensor]:
        """:meth:`grad_norms` of modules with parameters, at the first of ``NORMS_EVERY`` steps. Else empty."""
        if (self.steps - 1) % NORMS_EVERY:
            return {}
        trained = {name: group for name, group in modules.items() if any(map(_has_parameters, group))}
        return self.grad_norms(trained, norm)

    def state(self) -> State:
        return {"steps": self.steps, "moments": to_arrays(self.moments)}

    def load_state(self, state: State) -> None:
        self.steps = int(state["steps"])
        for name, values in state["moments"].items():
            self.moments[name].copy_(torch.as_tensor(values))


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


class Adam(FlatOptimizer):
    """Kingma & Ba 2015, with torch's fused kernel. torch.optim.Adam has several times its overhead."""

    class Config(ComponentConfig):
        kind: str = "adam"
        epsilon: float = Field(1e-5, gt=0)
        """Added to the denominator. PPO implementations usually use 1e-5."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay rates of the running means of the gradient and of its square."""

    kernel: Callable[..., None] = staticmethod(torch._fused_adam_)
    weight_decay = 0.0

    def update_parameters(self, learning_rate: float) -> None:
        beta1, beta2 = self.config.betas
        self.kernel(
            [self.flat.data], [self.gradient], [self.moments["first"]], [self.moments["second"]], [],
            [torch.full((), float(self.steps), device=self.flat.device)], lr=learning_rate, beta1=beta1, beta2=beta2,
            weight_decay=self.weight_decay, eps=self.config.epsilon,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    def update_parameters_in_numpy(self, learning_rate: float) -> None:
        beta1, beta2 = self.config.betas
        values, gradient, first, second = (self.arrays[name] for name in ("flat", "gradient", "first", "second"))
        change = np.subtract(gradient, first)
        change *= 1 - beta1
        first += change
        np.multiply(gradient, gradient, out=change)
        change *= 1 - beta2
        second *= beta2
        second += change
        np.sqrt(second, out=change)
        change *= 1 / math.sqrt(1 - beta2**self.steps)
        change += self.config.epsilon
        np.divide(first, change, out=change)
        if self.weight_decay:
            values *= 1 - learning_rate * self.weight_decay
        change *= learning_rate / (1 - beta1**self.steps)
        values -= change


class AdamW(Adam):
    """Loshchilov & Hutter 2019: Adam with decoupled weight decay."""

    class Config(Adam.Config):
        kind: str = "adamw"
        epsilon: float = Field(1e-8, gt=0)
        """Added to the denominator."""
        weight_decay: float = Field(1e-2, ge=0)
        """Each step shrinks parameters by this factor times the learning rate."""

    kernel: Callable[..., None] = staticmethod(torch._fused_adamw_)

    def __init__(self, config: Any, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(config, parameters)
        self.weight_decay = config.weight_decay
