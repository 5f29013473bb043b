"""GRU (Cho et al. 2014) and LSTM (Hochreiter & Schmidhuber 1997).

The inputs' terms of the gates are one matmul for all rows. Only what needs the previous state stays in the time loop.
Gradients are written out, because autograd's bookkeeping for a dozen tiny operations per row costs several times more
than the operations. A row that starts an episode gets a hidden state of zeros.
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
from reverie.nets.recurrent import Hidden, RecurrentConfig, RecurrentNetwork, Tensors


class GatedNetwork(RecurrentNetwork):
    """Base of both: an input layer for all gates, recurrent weights, initial states of zeros."""

    gates = 0
    states: tuple[str, ...] = ()
    """Names of the hidden state's tensors. The first one is also the output."""

    def __init__(self, config: RecurrentConfig, observations: Observations) -> None:
        super().__init__(config, observations)
        self.inputs = nn.Linear(self.encoder.features, self.gates * config.units)
        self.weight = nn.Parameter(torch.empty(self.gates * config.units, config.units))
        with torch.no_grad():
            for gate in (*self.weight.chunk(self.gates), *self.inputs.weight.chunk(self.gates)):
                nn.init.orthogonal_(gate)
            self.inputs.bias.zero_()

    def initial_hidden(self, count: int) -> dict[str, Array]:
        return {name: np.zeros((count, self.features), np.float32) for name in self.states}

    def forward(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Tensor:
        return self._run_rows(observation, is_first, hidden)[0].transpose(0, 1)

    def final_hidden(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> Hidden:
        states = self._run_rows(observation, is_first, hidden)
        return {name: state[-1] for name, state in zip(self.states, states, strict=True)}

    def _run_rows(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, ...]:
        """All states (T, B, H) of rows (B, T)."""
        gates = self.inputs(self.encode(observation, is_first.shape)).transpose(0, 1).contiguous()  # (T, B, G * H)
        keep = (~is_first).to(gates.dtype).t().unsqueeze(-1)  # (T, B, 1)
        return self.run(gates, keep, hidden)

    def step(self, observation: Tensors, is_first: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        gates = self.inputs(self.encoder(observation)).unsqueeze(0)
        keep = (~is_first).to(gates.dtype).view(1, -1, 1)
        states = [state[0] for state in self.run(gates, keep, hidden)]
        return states[0], dict(zip(self.states, states, strict=True))

    def run(self, gates: Tensor, keep: Tensor, hidden: Hidden) -> tuple[Tensor, ...]:
        """All states (T, B, H) for the inputs' terms of the gates (T, B, G * H)."""
        raise NotImplementedError


class GRU(GatedNetwork):
    """Gated recurrent units in the form of torch and cuDNN. The update bias starts at 1, so the state decays slowly."""

    gates, states = 3, ("hidden",)

    class Config(RecurrentConfig):
        kind: str = "gru"

    def __init__(self, config: Config, observations: Observations) -> None:
        super().__init__(config, observations)
        self.bias = nn.Parameter(torch.zeros(config.units))
        with torch.no_grad():
            self.inputs.bias.chunk(self.gates)[1].fill_(1.0)

    def run(self, gates: Tensor, keep: Tensor, hidden: Hidden) -> tuple[Tensor, ...]:
        bias = F.pad(self.bias, (2 * self.features, 0))
        return (GRULoop.apply(gates, keep, hidden["hidden"], self.weight, bias),)


class LSTM(GatedNetwork):
    """Long short-term memory. The forget bias starts at 1 (Jozefowicz et al. 2015)."""

    gates, states = 4, ("hidden", "cell")

    class Config(RecurrentConfig):
        kind: str = "lstm"

    def __init__(self, config: Config, observations: Observations) -> None:
        super().__init__(config, observations)
        with torch.no_grad():
            self.inputs.bias.chunk(self.gates)[2].fill_(1.0)

    def run(self, gates: Tensor, keep: Tensor, hidden: Hidden) -> tuple[Tensor, ...]:
        states: tuple[Tensor, ...] = LSTMLoop.apply(gates, keep, hidden["hidden"], hidden["cell"], self.weight)
        return states


class GRULoop(torch.autograd.Function):
    """Gates in the order reset, update, candidate."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, keep: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        width = weight.shape[1]
        hiddens, before, candidate = (gates.new_empty(*gates.shape[:2], width) for _ in range(3))
        recurrent, opened = torch.empty_like(gates), gates.new_empty(*gates.shape[:2], 2 * width)
        transposed = weight.t()
        rows = (
            keep, *_split_at(gates, 2 * width), before, recurrent, *_split_at(recurrent, 2 * width), opened,
            *_split_at(opened, width), candidate, hiddens,
        )  # fmt: skip
        for kept, input, input_new, old, inner, inner_gates, inner_new, both, reset, update, new, out in _rows(*rows):
            torch.mul(hidden, kept, out=old)
            torch.addmm(bias, old, transposed, out=inner)
            torch.add(input, inner_gates, out=both).sigmoid_()
            torch.addcmul(input_new, reset, inner_new, out=new).tanh_()
            hidden = torch.lerp(new, old, update, out=out)
        ctx.save_for_backward(keep, before, candidate, recurrent, opened, weight)
        return hiddens

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        keep, before, candidate, recurrent, opened, weight = ctx.saved_tensors
        reset, update = opened.chunk(2, -1)
        candidate_factor = (1 - update) * (1 - candidate.square())
        reset_factor = candidate_factor * recurrent.chunk(3, -1)[2] * reset * (1 - reset)
        update_factor = (before - candidate) * update * (1 - update)
        factors = torch.stack([reset_factor, update_factor, candidate_factor * reset], 2)
        inner_grad, total = torch.empty_like(factors), torch.empty_like(before)
        carried = torch.zeros_like(before[0])  # gradient of the hidden state from later rows
        rows = (keep, grad, total, total.unsqueeze(2), factors, inner_grad, inner_grad.flatten(2), update)
        for kept, row_grad, row_total, wide, factor, row_inner, flat, row_update in _rows(*rows, backwards=True):
            torch.add(row_grad, carried, out=row_total)
            torch.mul(wide, factor, out=row_inner)
            carried = torch.addmm(row_total * row_update, flat, weight).mul_(kept)
        gates_grad = torch.cat([inner_grad[:, :, :2].flatten(2), total * candidate_factor], -1)
        flat_grad = inner_grad.flatten(2).flatten(0, 1)
        return gates_grad, None, carried, flat_grad.t() @ before.flatten(0, 1), flat_grad.sum(0)


class LSTMLoop(torch.autograd.Function):
    """Gates in the order output, input, forget, candidate."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, keep: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        width = weight.shape[1]
        hiddens, cells, before, old_cells, squashed = (gates.new_empty(*gates.shape[:2], width) for _ in range(5))
        opened, transposed = torch.empty_like(gates), weight.t()
        rows = (
            keep, gates, before, old_cells, opened, *_split_at(opened, 3 * width), *opened.chunk(4, -1)[:3], cells,
            squashed, hiddens,
        )  # fmt: skip
        for (
            kept,
            inputs,
            old,
            old_cell,
            all_gates,
            sigmoids,
            candidate,
            output,
            input,
            forget,
            new,
            small,
            out,
        ) in _rows(*rows):
            torch.mul(hidden, kept, out=old)
            torch.mul(cell, kept, out=old_cell)
            torch.addmm(inputs, old, transposed, out=all_gates)
            sigmoids.sigmoid_()
            cell = torch.mul(input, candidate.tanh_(), out=new).addcmul_(forget, old_cell)
            hidden = torch.mul(output, torch.tanh(cell, out=small), out=out)
        ctx.save_for_backward(keep, before, old_cells, squashed, opened, weight)
        return hiddens, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:
        keep, before, old_cells, squashed, opened, weight = ctx.saved_tensors
        output, input, forget, candidate = opened.chunk(4, -1)
        output_factor, cell_factor = squashed * output * (1 - output), output * (1 - squashed.square())
        input_factor, forget_factor = candidate * input * (1 - input), old_cells * forget * (1 - forget)
        factors = torch.stack([input_factor, forget_factor, input * (1 - candidate.square())], 2)
        gates_grad = opened.new_empty(*before.shape[:2], 4, before.shape[2])
        carried, cell = torch.zeros_like(before[0]), torch.zeros_like(before[0])  # gradients from later rows
        rows = (
            keep, grad, grad_cell, cell_factor, output_factor, factors, gates_grad[:, :, 0], gates_grad[:, :, 1:],
            gates_grad.flatten(2), forget * keep,
        )  # fmt: skip
        for kept, row_grad, row_cell_grad, to_cell, to_output, to_others, first, others, flat, decay in _rows(
            *rows, backwards=True
        ):
            carried.add_(row_grad)
            cell = torch.addcmul(cell, carried, to_cell).add_(row_cell_grad)
            torch.mul(carried, to_output, out=first)
            torch.mul(cell.unsqueeze(1), to_others, out=others)
            carried = torch.mm(flat, weight).mul_(kept)
            cell.mul_(decay)
        flat_grad = gates_grad.flatten(2)
        return flat_grad, None, carried, cell, flat_grad.flatten(0, 1).t() @ before.flatten(0, 1)


def _split_at(x: Tensor, column: int) -> tuple[Tensor, Tensor]:
    """Two views, split along the last axis."""
    return x[..., :column], x[..., column:]


def _rows(*tensors: Tensor, backwards: bool = False) -> Iterable[tuple[Tensor, ...]]:
    """The rows (B, ...) of tensors (T, B, ...), made at once: indexing in the loop would cost as much as the maths."""
    rows = list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))
    return reversed(rows) if backwards else rows
