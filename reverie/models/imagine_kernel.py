"""One step of ``deter`` for many latents at once, without gradients: the inner loop of imagination.

Computes what ``RSSM._next_deter`` computes, the plain form that tests compare with. Everything that stays the same
from step to step is prepared once, and the step works in place: at a thousand latents each extra pass over them costs
as much as a matmul.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.nets.blocks import inverse_rms
from reverie.nets.one_hot import Features, OneHotFeatures, lookup_table, sum_rows

if TYPE_CHECKING:
    from reverie.models.rssm import RSSM


class ImagineKernel:
    """Steps ``count`` latents of an RSSM. Make a new one when the weights have changed."""

    def __init__(self, rssm: RSSM, count: int) -> None:
        self.matmul = rssm.matmul
        core, entries, shared = rssm.core, [rssm.from_deter, rssm.from_stoch], rssm.core.shared.weight.t()
        self.core, self.blocks = core, core.own.blocks
        self.num_actions = 0
        if rssm.has_discrete_actions:  # few enough to project each of them beforehand
            table = rssm.project_discrete_actions()
            self.num_actions, shared = len(table), torch.cat([shared[: -rssm.config.hidden], table])
        else:
            entries.append(rssm.from_action)
        self.linears = [(entry.linear.bias, self.matmul.rounded(entry.linear.weight).t()) for entry in entries]
        self.stoch_weight = rssm.from_stoch.linear.weight
        self.shared, self.own = self.matmul.rounded(shared), self.matmul.rounded(core.own.weight)
        self.scale = torch.stack([entry.finish.scale for entry in entries])
        self.inputs = self.scale.new_empty(count, len(shared))
        self.entry = self.inputs[:, : self.scale.numel()].unflatten(1, self.scale.shape)
        # Blocks processed together: on a CPU one at a time, which stays in the cache.
        self.group = 1 if self.scale.device.type == "cpu" else self.blocks
        self.gates = self.scale.new_empty(self.group, count, core.gates.weight.shape[-1])
        scale = core.hidden.scale.unflatten(0, (self.blocks, 1, -1))
        self.group_weights = [weights.split(self.group) for weights in (scale, *self._prepare_gates())]

    def _prepare_gates(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of the gates, with the candidate doubled (tanh(x) = 2 sigmoid(2x) - 1) and update - 1."""
        layer = self.core.gates
        factor, offset = torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, -1.0])
        width = layer.bias.numel() // self.blocks // 3
        factor, offset = (values.to(layer.bias).repeat_interleave(width) for values in (factor, offset))
        bias = layer.bias.unflatten(0, (self.blocks, 1, -1))
        return self.matmul.rounded(layer.weight * factor), torch.addcmul(offset, bias, factor)

    def __call__(self, features: Features, action: Tensor, out: Tensor) -> None:
        """Write the next ``deter`` (N, D) for features (N, D + W) and encoded actions (N, A) into ``out``."""
        if isinstance(features, OneHotFeatures):
            deter = features.dense
            torch.add(sum_rows(features.indices, self.stoch_table), self.linears[1][0], out=self.entry[:, 1])
        else:
            deter, stoch = features.tensor_split([out.shape[1]], 1)
            self._project(1, stoch)
        self._project(0, deter)
        if self.num_actions:
            self.inputs[:, -self.num_actions :] = action
        else:
            self._project(2, action)
        _norm_silu(self.entry, inverse_rms(self.entry), self.scale)
        hidden = self.matmul.affine(self.core.own.bias, self.inputs, self.shared)
        before, hidden_blocks, after = (self._blockwise(x) for x in (deter, hidden, out))
        self.matmul.add_product(hidden_blocks, before, self.own)
        inverse = inverse_rms(hidden)
        groups = (x.split(self.group) for x in (before, hidden_blocks, after))
        for old, now, new, scale, weight, bias in zip(*groups, *self.group_weights, strict=True):
            self.matmul.affine(bias, _norm_silu(now, inverse, scale), weight, out=self.gates)
            reset, candidate, update = self.gates.chunk(3, -1)
            candidate = reset.sigmoid_().mul_(candidate).sigmoid_().mul_(2).sub_(1)
            torch.lerp(old, candidate, update.sigmoid_(), out=new)

    def _project(self, index: int, x: Tensor) -> None:
        """The first layer of deter (0), stoch (1) or action (2), before its norm."""
        bias, weight = self.linears[index]
        self.matmul.affine(bias, x, weight, out=self.entry[:, index])

    @cached_property
    def stoch_table(self) -> Tensor:
        return lookup_table(self.stoch_weight)

    def _blockwise(self, x: Tensor) -> Tensor:
        """A view (k, N, D / k) of (N, D)."""
        blocks: Tensor = x.unflatten(-1, (self.blocks, -1)).transpose(0, 1)
        return blocks


def _norm_silu(x: Tensor, inverse: Tensor, scale: Tensor) -> Tensor:
    """RMS norm and SiLU in place."""
    return F.silu(x.mul_(inverse).mul_(scale), inplace=True)
