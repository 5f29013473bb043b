"""Recurrent trunks: GRU (Cho et al. 2014) and LSTM (Hochreiter & Schmidhuber 1997).

The part of the gates that the input decides is one product for all rows; only what needs the state before stays in the
time loop. Gradients are written out: torch's own bookkeeping for a dozen tiny operations per row costs several times
more than they do. A row that starts an episode sees a state of zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from reverie.core.types import Array
from reverie.nets.encoders import Observations
from reverie.nets.memory import Memory, MemoryConfig, MemoryNetwork, Tensors


class RecurrentNetwork(MemoryNetwork):
    """What both have: an input layer for all gates, recurrent weights, states of zeros at the start."""

    gates = 0
    states: tuple[str, ...] = ()

    def __init__(self, config: MemoryConfig, observations: Observations) -> None:
        super().__init__(config, observations)
        self.inputs = nn.Linear(self.encoder.features, self.gates * config.units)
        self.weight = nn.Parameter(torch.empty(self.gates * config.units, config.units))
        with torch.no_grad():
            for gate in (*self.weight.chunk(self.gates), *self.inputs.weight.chunk(self.gates)):
                nn.init.orthogonal_(gate)
            self.inputs.bias.zero_()

    def initial_memory(self, count: int) -> dict[str, Array]:
        return {name: np.zeros((count, self.features), np.float32) for name in self.states}

    def forward(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Tensor:
        return self._run_rows(observation, is_first, memory)[0].transpose(0, 1)

    def remember(self, observation: Tensors, is_first: Tensor, memory: Memory) -> Memory:
        states = self._run_rows(observation, is_first, memory)
        return {name: state[-1] for name, state in zip(self.states, states, strict=True)}

    def _run_rows(self, observation: Tensors, is_first: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        """All states (T, B, H) of rows (B, T)."""
        gates = self.inputs(self.encode(observation, is_first.shape)).transpose(0, 1).contiguous()  # (T, B, G * H)
        keep = (~is_first).to(gates.dtype).t().unsqueeze(-1)  # (T, B, 1)
        return self.run(gates, keep, memory)

    def step(self, observation: Tensors, is_first: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        gates = self.inputs(self.encoder(observation)).unsqueeze(0)
        keep = (~is_first).to(gates.dtype).view(1, -1, 1)
        states = [state[0] for state in self.run(gates, keep, memory)]
        return states[0], dict(zip(self.states, states, strict=True))

    def run(self, gates: Tensor, keep: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        """All states (T, B, H) for the inputs' part of the gates (T, B, G * H)."""
        raise NotImplementedError


class GRU(RecurrentNetwork):
    """Gated recurrent units, in the form that torch and cuDNN use; they start out remembering, like the LSTM below."""

    gates, states = 3, ("hidden",)

    class Config(MemoryConfig):
        kind: str = "gru"

    def __init__(self, config: Config, observations: Observations) -> None:
        super().__init__(config, observations)
        self.bias = nn.Parameter(torch.zeros(config.units))
        with torch.no_grad():
            self.inputs.bias.chunk(self.gates)[1].fill_(1.0)

    def run(self, gates: Tensor, keep: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        bias = F.pad(self.bias, (2 * self.features, 0))
        return (GRULoop.apply(gates, keep, memory["hidden"], self.weight, bias),)


class LSTM(RecurrentNetwork):
    """Long short-term memory; it starts out remembering (forget bias 1: Jozefowicz et al. 2015)."""

    gates, states = 4, ("hidden", "cell")

    class Config(MemoryConfig):
        kind: str = "lstm"

    def __init__(self, config: Config, observations: Observations) -> None:
        super().__init__(config, observations)
        with torch.no_grad():
            self.inputs.bias.chunk(self.gates)[2].fill_(1.0)

    def run(self, gates: Tensor, keep: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        states: tuple[Tensor, ...] = LSTMLoop.apply(gates, keep, memory["hidden"], memory["cell"], self.weight)
        return states


class GRULoop(torch.autograd.Function):
    """Gates in the order reset, update, candidate."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, keep: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        width = weight.shape[1]
        after, before, candidate = (gates.new_empty(*gates.shape[:2], width) for _ in range(3))
        inner, switches = torch.empty_like(gates), gates.new_empty(*gates.shape[:2], 2 * width)
        transposed = weight.t()
        for kept, outer, outer_new, seen, recurrent, inner_old, inner_new, both, reset, update, new, now in _rows(
            keep, *_at(gates, 2 * width), before, inner, *_at(inner, 2 * width), switches, *_at(switches, width),
            candidate, after,
        ):  # fmt: skip
            torch.mul(hidden, kept, out=seen)
            torch.addmm(bias, seen, transposed, out=recurrent)
            torch.add(outer, inner_old, out=both).sigmoid_()
            torch.addcmul(outer_new, reset, inner_new, out=new).tanh_()
            hidden = torch.lerp(new, seen, update, out=now)
        ctx.save_for_backward(keep, before, candidate, inner, switches, weight)
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        keep, before, candidate, inner, switches, weight = ctx.saved_tensors
        reset, update = switches.chunk(2, -1)
        to_candidate = (1 - update) * (1 - candidate.square())
        by_reset = to_candidate * inner.chunk(3, -1)[2] * reset * (1 - reset)
        by_update = (before - candidate) * update * (1 - update)
        factors = torch.stack([by_reset, by_update, to_candidate * reset], 2)
        pull, total, carried = torch.empty_like(factors), torch.empty_like(before), torch.zeros_like(before[0])
        rows = (keep, grad, total, total.unsqueeze(2), factors, pull, pull.flatten(2), update)
        for kept, given, here, here_wide, factor, pulled, flat, stays in _rows(*rows, backwards=True):
            torch.add(given, carried, out=here)
            torch.mul(here_wide, factor, out=pulled)
            carried = torch.addmm(here * stays, flat, weight).mul_(kept)
        to_gates = torch.cat([pull[:, :, :2].flatten(2), total * to_candidate], -1)
        flat_pull = pull.flatten(2).flatten(0, 1)
        return to_gates, None, carried, flat_pull.t() @ before.flatten(0, 1), flat_pull.sum(0)


class LSTMLoop(torch.autograd.Function):
    """Gates in the order output, input, forget, candidate."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, keep: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        width = weight.shape[1]
        hiddens, cells, before, olds, pressed = (gates.new_empty(*gates.shape[:2], width) for _ in range(5))
        opened, transposed = torch.empty_like(gates), weight.t()
        rows = (keep, gates, before, olds, opened, *_at(opened, 3 * width), *opened.chunk(4, -1)[:3], cells, pressed)
        for kept, outer, seen, old, every, switches, candidate, output, input, forget, new, small, out in _rows(
            *rows, hiddens
        ):  # fmt: skip
            torch.mul(hidden, kept, out=seen)
            torch.mul(cell, kept, out=old)
            torch.addmm(outer, seen, transposed, out=every)
            switches.sigmoid_()
            cell = torch.mul(input, candidate.tanh_(), out=new).addcmul_(forget, old)
            hidden = torch.mul(output, torch.tanh(cell, out=small), out=out)
        ctx.save_for_backward(keep, before, olds, pressed, opened, weight)
        return hiddens, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:
        keep, before, olds, pressed, opened, weight = ctx.saved_tensors
        output, input, forget, candidate = opened.chunk(4, -1)
        by_output, into_cell = pressed * output * (1 - output), output * (1 - pressed.square())
        by_input, by_forget = candidate * input * (1 - input), olds * forget * (1 - forget)
        by_cell = torch.stack([by_input, by_forget, input * (1 - candidate.square())], 2)
        pull = opened.new_empty(*before.shape[:2], 4, before.shape[2])
        carried, cell = torch.zeros_like(before[0]), torch.zeros_like(before[0])
        rows = (keep, grad, grad_cell, into_cell, by_output, by_cell, pull[:, :, 0], pull[:, :, 1:], pull.flatten(2))
        for kept, given, given_cell, into, factor, factors, first, others, flat, passes in _rows(
            *rows, forget * keep, backwards=True
        ):
            carried.add_(given)
            cell = torch.addcmul(cell, carried, into).add_(given_cell)
            torch.mul(carried, factor, out=first)
            torch.mul(cell.unsqueeze(1), factors, out=others)
            carried = torch.mm(flat, weight).mul_(kept)
            cell.mul_(passes)
        to_gates = pull.flatten(2)
        return to_gates, None, carried, cell, to_gates.flatten(0, 1).t() @ before.flatten(0, 1)


def _at(x: Tensor, column: int) -> tuple[Tensor, Tensor]:
    """Two views of the last axis."""
    return x[..., :column], x[..., column:]


def _rows(*tensors: Tensor, backwards: bool = False) -> Iterable[tuple[Tensor, ...]]:
    """The rows (B, ...) of tensors (T, B, ...), made at once: indexing in the loop would cost as much as its maths."""
    rows = list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))
    return reversed(rows) if backwards else rows
