"""Moving many memories at once and without gradients: the inner loop of dreams.

The same sums as :class:`reverie.nets.blocks.BlockGRU` after the three layers before it, with all that does not change
from step to step prepared once, and in place: at a thousand memories each pass over them costs as much as a product.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.nets.blocks import inverse_size
from reverie.nets.choices import Chosen, Features, pick, pickable
from reverie.nets.matmul import add_product, affine
from reverie.nets.precision import rounded

if TYPE_CHECKING:
    from reverie.models.rssm import RSSM


class Mover:
    """Moves ``count`` memories of an RSSM; build it anew when the weights have changed."""

    def __init__(self, rssm: RSSM, count: int) -> None:
        core, entries, shared = rssm.core, [rssm.from_deter, rssm.from_stoch], rssm.core.shared.weight.t()
        self.core, self.blocks = core, core.own.blocks
        self.choices = 0
        if rssm.actions_are_choices:  # there are few: what each of them adds is known beforehand
            table = rssm.project_choices()
            self.choices, shared = len(table), torch.cat([shared[: -rssm.config.hidden], table])
        else:
            entries.append(rssm.from_action)
        self.linears = [(entry.linear.bias, rounded(entry.linear.weight).t()) for entry in entries]
        self.stoch_weight = rssm.from_stoch.linear.weight
        self.shared, self.own = rounded(shared), rounded(core.own.weight)
        self.scale = torch.stack([entry.finish.scale for entry in entries])
        self.inputs = self.scale.new_empty(count, len(shared))
        self.entry = self.inputs[:, : self.scale.numel()].unflatten(1, self.scale.shape)
        # Blocks at a time: on a CPU few enough to stay in its cache.
        self.at_once = 1 if self.scale.device.type == "cpu" else self.blocks
        self.gates = self.scale.new_empty(self.at_once, count, core.gates.weight.shape[-1])
        scale = core.hidden.scale.unflatten(0, (self.blocks, 1, -1))
        self.finishing = [part.split(self.at_once) for part in (scale, *self._prepare_gates())]

    def _prepare_gates(self) -> tuple[Tensor, Tensor]:
        """With the doubled candidate of tanh(x) = 2 sigmoid(2x) - 1, and with 1 less for the update."""
        layer = self.core.gates
        factor, offset = torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, -1.0])
        each = (layer.bias.numel() // self.blocks // 3,)
        factor, offset = (part.to(layer.bias).repeat_interleave(*each) for part in (factor, offset))
        bias = layer.bias.unflatten(0, (self.blocks, 1, -1))
        return rounded(layer.weight * factor), torch.addcmul(offset, bias, factor)

    def __call__(self, state: Features, action: Tensor, out: Tensor) -> None:
        """From memory and latent (N, D + W) and the action (N, A) to the next memory (N, D)."""
        if isinstance(state, Chosen):
            deter = state.numbers
            torch.add(pick(state.places, self.stoch_rows), self.linears[1][0], out=self.entry[:, 1])
        else:
            deter, stoch = state.tensor_split([out.shape[1]], 1)
            self._enter(1, stoch)
        self._enter(0, deter)
        if self.choices:
            self.inputs[:, -self.choices :] = action
        else:
            self._enter(2, action)
        _finish(self.entry, inverse_size(self.entry), self.scale)
        hidden = affine(self.core.own.bias, self.inputs, self.shared)
        before, moved, after = (self._blockwise(part) for part in (deter, hidden, out))
        add_product(moved, before, self.own)
        inverse = inverse_size(hidden)
        memories = (part.split(self.at_once) for part in (before, moved, after))
        for then, now, new, scale, weight, bias in zip(*memories, *self.finishing, strict=True):
            affine(bias, _finish(now, inverse, scale), weight, out=self.gates)
            reset, candidate, update = self.gates.chunk(3, -1)
            aim = reset.sigmoid_().mul_(candidate).sigmoid_().mul_(2).sub_(1)
            torch.lerp(then, aim, update.sigmoid_(), out=new)

    def _enter(self, place: int, x: Tensor) -> None:
        """What memory (0), latent (1) or action (2) say, before their norms."""
        bias, weight = self.linears[place]
        affine(bias, x, weight, out=self.entry[:, place])

    @cached_property
    def stoch_rows(self) -> Tensor:
        """The latent's weight, of which rows are picked where its ones are known."""
        return pickable(self.stoch_weight)

    def _blockwise(self, x: Tensor) -> Tensor:
        """A view (k, N, D / k) of (N, D)."""
        return x.unflatten(-1, (self.blocks, -1)).transpose(0, 1)


def _finish(x: Tensor, inverse: Tensor, scale: Tensor) -> Tensor:
    """Norm and SiLU in place."""
    return F.silu(x.mul_(inverse).mul_(scale), inplace=True)
