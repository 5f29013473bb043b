"""Optimisers over one flat vector.

All parameters of an algorithm become views into one tensor, and their gradients views into another. Clipping,
zeroing and stepping are then one operation each instead of one per layer, which for small networks is most of
the cost of an update.
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

from reverie import backend
from reverie.core.config import ComponentConfig
from reverie.core.types import State

SMALL = 20_000
"""Up to so many parameters numpy moves them faster than torch's fused kernel."""
NORMS_EVERY = 50
"""Steps between two looks at the parts, where an update is one step: a look costs up to a sixth of a small one."""


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
    is_accepted: bool = True


class Result(NamedTuple):
    """The same after a gradient step, with the norm of the gradient before clipping."""

    metrics: dict[str, Any]
    aux: dict[str, Any]
    grad_norm: Any
    """None if there was no step because ``accept`` refused it."""


Accept = Callable[[Mapping[str, Tensor]], bool]
"""Decides by the metrics of a loss, summed over the microbatches so far, whether the step may be taken."""


def accumulate_gradients(
    loss_fn: LossFunction[Microbatch],
    microbatches: Iterable[Microbatch],
    parameters: Sequence[nn.Parameter],
    accept: Accept | None = None,
) -> Outputs:
    """Set the gradients of flat parameters to those of the sum of the losses of all microbatches.

    ``accept`` is asked before each backward pass. Once it refuses, the rest of the microbatches are left out.
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
    """Write the gradients of the first microbatch, add those of the others."""
    # backward() would need zeroed gradients and add to them: one more pass over all of them.
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    if is_first and any(gradient is None for gradient in found):
        torch._foreach_zero_([parameter.grad for parameter in parameters])
    used = [(own.grad, gradient) for own, gradient in zip(parameters, found, strict=True) if gradient is not None]
    write = torch._foreach_copy_ if is_first else torch._foreach_add_
    write([grad for grad, _ in used], [gradient for _, gradient in used])


def _combine(metrics: Sequence[dict[str, Tensor]], aux: Sequence[dict[str, Tensor]]) -> Outputs:
    if len(metrics) == 1:
        return Outputs(metrics[0], aux[0])
    sums = {name: torch.stack([each[name] for each in metrics]).sum() for name in metrics[0]}
    return Outputs(sums, {name: torch.cat([each[name] for each in aux]) for name in aux[0]})


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One vector that holds all parameters from now on: they become views of it and keep their values."""
    size = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, place in zip(parameters, places(parameters, flat), strict=True):
        place.copy_(parameter.data)
        parameter.data = place
    return flat


def places(parameters: Sequence[nn.Parameter], flat: Tensor) -> Iterator[Tensor]:
    """The stretch of a flat vector that belongs to each parameter, in the parameter's own memory order."""
    start = 0
    for parameter in parameters:
        yield flat.as_strided(parameter.size(), parameter.stride(), start)
        start += parameter.numel()


class FlatOptimizer:
    """Base of the optimisers; ``moments`` are what a rule remembers, each as long as all parameters together."""

    remembers: tuple[str, ...] = ("first", "second")
    """The names of its moments."""

    def __init__(self, config: ComponentConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.config: Any = config
        self.parameters = list(parameters)
        self.steps = 0
        self.flat = nn.Parameter(flatten(self.parameters))
        self.flat.grad = self.gradient = torch.zeros(self.flat.shape, device=self.flat.device)
        for parameter, place in zip(self.parameters, places(self.parameters, self.gradient), strict=True):
            parameter.grad = place
        self.moments = {name: torch.zeros(self.flat.shape, device=self.flat.device) for name in self.remembers}
        # The same memory for numpy: asking torch for it at each step costs a twentieth of a small one.
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
        norm = self._clip_and_move(learning_rate, max_grad_norm) if outputs.is_accepted else None
        return Result(outputs.metrics, outputs.aux, norm)

    def step(self, loss: Tensor | Iterable[Tensor], learning_rate: float, max_grad_norm: float | None = None) -> Tensor:
        """Like :meth:`minimise`, for losses that are computed already or by a generator. Returns the gradient norm."""
        losses = [loss] if isinstance(loss, Tensor) else loss
        norm: Tensor = self.minimise(Loss, losses, learning_rate, max_grad_norm).grad_norm
        return norm

    def _clip_and_move(self, learning_rate: float, max_grad_norm: float | None) -> Tensor:
        norm = torch.linalg.vector_norm(self.gradient)
        # The fused kernels could scale too, but take three times as long. Only a CPU need not wait to know the norm.
        if max_grad_norm is not None and (norm.device.type != "cpu" or norm > max_grad_norm):
            self.gradient.mul_(torch.clamp(max_grad_norm / (norm + 1e-6), max=1.0))
        self.steps += 1
        self.move(learning_rate)
        return norm

    def apply(self, learning_rate: float, max_grad_norm: float | None = None) -> float:
        """One update with the gradient that :mod:`.numpy_mlp` has written; returns its norm before clipping."""
        gradient = self.arrays["gradient"]
        norm = math.sqrt(np.dot(gradient, gradient))
        if max_grad_norm is not None and norm > max_grad_norm:
            gradient *= max_grad_norm / norm
        self.steps += 1
        if len(gradient) <= SMALL:
            self.move_by_numpy(learning_rate)
        else:
            self.move(learning_rate)
        return norm

    def move(self, learning_rate: float) -> None:
        """Change ``flat`` by the rule of the optimiser and ``gradient``."""
        raise NotImplementedError

    def move_by_numpy(self, learning_rate: float) -> None:
        """The same for few parameters, which numpy does faster."""
        self.move(learning_rate)

    def norms_by_part(self, parts: Mapping[str, Sequence[nn.Module]], norm: Any) -> dict[str, Tensor]:
        """What groups of modules add to the last gradient, which had that norm before clipping."""
        squares = {}
        for name, modules in parts.items():
            gradients = [parameter.grad for module in modules for parameter in module.parameters()]
            squares[name] = sum(
                torch.linalg.vector_norm(gradient) ** 2 for gradient in gradients if gradient is not None
            )
        scale = norm / torch.linalg.vector_norm(self.gradient).clamp(min=1e-12)
        return {f"grad_norm_{name}": scale * torch.as_tensor(square).sqrt() for name, square in squares.items()}

    def due_norms(self, parts: Mapping[str, Sequence[nn.Module]], norm: Any) -> dict[str, Tensor]:
        """The same at the first step and then now and again, of parts that have something to learn."""
        if (self.steps - 1) % NORMS_EVERY:
            return {}
        learning = {name: modules for name, modules in parts.items() if any(map(_can_learn, modules))}
        return self.norms_by_part(learning, norm)

    def state(self) -> State:
        return {"steps": self.steps, "moments": backend.to_arrays(self.moments)}

    def load_state(self, state: State) -> None:
        self.steps = int(state["steps"])
        for name, values in state["moments"].items():
            self.moments[name].copy_(torch.as_tensor(values))


def _can_learn(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


class Adam(FlatOptimizer):
    """Kingma & Ba 2015, as torch's one fused kernel: its own class spends several times longer on bookkeeping."""

    class Config(ComponentConfig):
        kind: str = "adam"
        epsilon: float = Field(1e-5, gt=0)
        """Added to the denominator; 1e-5 is usual in PPO."""
        betas: tuple[float, float] = (0.9, 0.999)
        """Decay of the two running moments."""

    kernel = staticmethod(torch._fused_adam_)

    def __init__(self, config: Any, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(config, parameters)
        self.weight_decay = getattr(config, "weight_decay", 0.0)

    def move(self, learning_rate: float) -> None:
        beta1, beta2 = self.config.betas
        self.kernel(
            [self.flat.data], [self.gradient], [self.moments["first"]], [self.moments["second"]], [],
            [torch.full((), float(self.steps), device=self.flat.device)], lr=learning_rate, beta1=beta1, beta2=beta2,
            weight_decay=self.weight_decay, eps=self.config.epsilon,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    def move_by_numpy(self, learning_rate: float) -> None:
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
        """Share of each weight taken away per update, times the learning rate."""

    kernel = staticmethod(torch._fused_adamw_)
