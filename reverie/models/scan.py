"""Following observations as one operation of autograd, with its gradient written out.

A stretch of rows is a long chain of small products. Left to autograd, every step adds to every weight's gradient, and
the books cost more than the products. Here the way back carries only what must pass from step to step; factors are
prepared for all steps at once, and what a weight gets is one big product over all of them.

Time comes first: (T, B, ...). One step, for a memory d and a latent s, with n() for norm and SiLU:

    entry = n([d W, s W] + bias)
    core = n(entry W + blocks(d) + moved)
    reset, candidate, update = blocks(core) + bias
    d' = d + sigmoid(update - 1) * (tanh(sigmoid(reset) * candidate) - d)
    chance = softmax(n(d' W + seen) W + bias), mixed with the uniform distribution;  s' is drawn from it
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.functional.categorical import draw_one_hot
from reverie.nets.blocks import NORM_EPSILON
from reverie.nets.matmul import add_product, affine, dense, multiply
from reverie.nets.precision import rounded


class StepWeights(NamedTuple):
    """What a step multiplies with; D wide is the memory, h the layers, W the latent, and there are k blocks."""

    deter: Tensor  # (h, D)
    stoch: Tensor  # (h, W)
    entry_bias: Tensor  # (2, h), for memory and latent
    entry_scale: Tensor  # (2, h)
    shared: Tensor  # (D, 2 h)
    own: Tensor  # (k, D / k, D / k)
    core_scale: Tensor  # (D)
    gates: Tensor  # (k, D / k, 3 D / k)
    gates_bias: Tensor  # (k, 1, 3 D / k)
    posterior: Tensor  # (h, D)
    posterior_scale: Tensor  # (h)
    output: Tensor  # (W, h)
    output_bias: Tensor  # (W)


MATRICES = ("deter", "stoch", "shared", "own", "gates", "posterior", "output")


class Inputs(NamedTuple):
    """Where stretches start and what they meet, projected as far as it can be beforehand."""

    start: Tensor  # (B, D + W): memory and latent before the first step
    seen: Tensor  # (T, B, h)
    moved: Tensor  # (T, B, D)
    keep: Tensor  # (T, B, 1): 0 where an episode begins
    uniform: Tensor  # (T, B, S): noise


def follow(inputs: Inputs, weights: StepWeights, unimix: float) -> tuple[Tensor, Tensor]:
    """Memory and latent side by side (T, B, D + W), and the chances (T, B, K, S) that the latents were drawn with."""
    if torch.is_grad_enabled():
        return _Follow.apply(unimix, *inputs, *weights)
    return _Scan(inputs, weights, unimix).forward()


class _Follow(torch.autograd.Function):
    """Gradients for everything but ``keep`` and ``uniform``; those of latents are taken for those of their chances."""

    @staticmethod
    def forward(ctx: Any, unimix: float, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        count = len(Inputs._fields)
        ctx.scan = _Scan(Inputs(*tensors[:count]), StepWeights(*tensors[count:]), unimix)
        latents, chances = ctx.scan.forward()
        ctx.save_for_backward(latents, chances)
        return latents, chances

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, to_latents: Tensor, to_chances: Tensor) -> tuple[Tensor | None, ...]:
        scan, ctx.scan = ctx.scan, None
        latents, chances = ctx.saved_tensors
        start = scan.backward(chances, to_latents, to_chances)
        weights = scan.weight_gradients(latents)
        return None, start, scan.posterior.leaving, scan.core.leaving, None, None, *weights


class _Norm:
    """RMS norm and SiLU of (T, ..., width), step by step both ways."""

    def __init__(self, x: Tensor, scale: Tensor) -> None:
        self.x, self.scale = x, scale
        self.inverse, self.y = x.new_empty(*x.shape[:-1], 1), torch.empty_like(x)
        self.epsilon = x.new_full((1,), NORM_EPSILON)
        self.steps = _steps(x, self.inverse, self.y)

    def forward(self, step: int) -> Tensor:
        x, inverse, y = self.steps[step]
        torch.linalg.vector_norm(x, dim=-1, keepdim=True, out=inverse)
        torch.addcmul(self.epsilon, inverse, inverse, value=1 / x.shape[-1], out=inverse).rsqrt_()
        torch.mul(x, inverse, out=y).mul_(self.scale)
        return F.silu(y, inplace=True)

    def prepare_backward(self) -> None:
        """``arriving`` is to be filled with the gradient of the output; ``leaving`` will be that of the input."""
        self.normed = self.x * self.inverse
        inner = self.normed * self.scale
        self.slope = torch.ops.aten.silu_backward(torch.ones_like(inner), inner)
        self.arriving, self.leaving = torch.empty_like(inner), torch.empty_like(inner)
        factor = (self.slope * self.scale).mul_(self.inverse)
        self.back_steps = _steps(factor, self.normed, self.arriving, self.leaving)

    def backward(self, step: int) -> Tensor:
        factor, normed, arriving, leaving = self.back_steps[step]
        torch.mul(arriving, factor, out=leaving)
        along = (leaving * normed).sum(-1, keepdim=True)
        return leaving.addcmul_(normed, along, value=-1 / normed.shape[-1])

    def scale_gradient(self) -> Tensor:
        total = self.arriving.mul_(self.slope).mul_(self.normed)
        return total.sum(tuple(range(total.ndim - self.scale.ndim)))


class _Scan:
    """The steps, and the memory of what happened in each that the way back needs."""

    def __init__(self, inputs: Inputs, weights: StepWeights, unimix: float) -> None:
        weights = _round_matrices(weights)
        self.inputs, self.weights, self.unimix = inputs, weights, unimix
        self.num_steps, self.count, _ = inputs.keep.shape
        self.hidden, self.width = weights.posterior.shape
        self.blocks = len(weights.own)
        self.variables = inputs.uniform.shape[-1]
        self.classes = len(weights.output) // self.variables
        leading = (self.num_steps, self.count)
        empty = inputs.start.new_empty
        self.before = empty(*leading, inputs.start.shape[-1])
        self.entry = _Norm(empty(*leading, 2, self.hidden), weights.entry_scale)
        self.core = _Norm(inputs.moved.clone(memory_format=torch.contiguous_format), weights.core_scale)
        self.posterior = _Norm(inputs.seen.clone(memory_format=torch.contiguous_format), weights.posterior_scale)
        self.gates = empty(self.num_steps, self.blocks, self.count, 3 * self.width // self.blocks)
        self.candidate = empty(self.num_steps, self.blocks, self.count, self.width // self.blocks)
        self.deter_bias, self.stoch_bias = weights.entry_bias
        turned = (weights.deter, weights.stoch, weights.shared, weights.posterior, weights.output)
        self.deter, self.stoch, self.shared, self.posterior_weight, self.output = (part.t() for part in turned)

    def forward(self) -> tuple[Tensor, Tensor]:
        latents = torch.empty_like(self.before)
        chances = latents.new_empty(self.num_steps, self.count, self.classes, self.variables)
        deters, stochs = self._split(latents)
        steps = _steps(self.before, self.inputs.keep, self.inputs.uniform, latents, stochs.view_as(chances), chances)
        moves, guesses = self._move_steps(deters), _steps(self.posterior.x, deters)
        latent = self.inputs.start
        for step, (before, keep, uniform, after, stoch, chance) in enumerate(steps):
            torch.mul(latent, keep, out=before)
            self._move(step, *moves[step])
            self._guess(step, *guesses[step], chance)
            stoch.copy_(draw_one_hot(chance, uniform))
            latent = after
        return latents, chances

    def _move_steps(self, deters: Tensor) -> list[tuple[Tensor, ...]]:
        """The views that :meth:`_move` works on; making them takes as long as some of the products."""
        before, stoch = self._split(self.before)
        entry = (*self.entry.x.unbind(2), self.entry.y.flatten(2))
        core = (self.core.x, self._blockwise(self.core.x), self._blockwise(self.core.y))
        gates = (self.gates, *self.gates.chunk(3, -1), self.candidate)
        return _steps(before, self._blockwise(before), stoch, *entry, *core, *gates, self._blockwise(deters))

    def _move(self, step: int, *views: Tensor) -> None:
        """The memory after the step, into the last of the views."""
        deter, blocks, stoch, from_deter, from_stoch, entry, core, core_blocks, moved, *gates, after = views
        weights = self.weights
        affine(self.deter_bias, deter, self.deter, out=from_deter)
        affine(self.stoch_bias, stoch, self.stoch, out=from_stoch)
        self.entry.forward(step)
        add_product(core, entry, self.shared)
        core_blocks.add_(multiply(blocks, weights.own))
        self.core.forward(step)
        all_gates, reset, inner, update, candidate = gates
        affine(weights.gates_bias, moved, weights.gates, out=all_gates)
        torch.mul(reset.sigmoid_(), inner, out=candidate).tanh_()
        torch.lerp(blocks, candidate, update.sub_(1).sigmoid_(), out=after)

    def _guess(self, step: int, hidden: Tensor, deter: Tensor, chance: Tensor) -> None:
        """What memory and observation make of the latent, into ``chance`` (B, K, S)."""
        add_product(hidden, deter, self.posterior_weight)
        logits = affine(self.weights.output_bias, self.posterior.forward(step), self.output)
        torch.softmax(logits.view_as(chance), 1, out=chance)
        chance.mul_(1 - self.unimix).add_(self.unimix / self.classes)

    def backward(self, chances: Tensor, to_latents: Tensor, to_chances: Tensor) -> Tensor:
        """Fill what arrives at and leaves each layer, at all steps; returns the gradient of the start."""
        for norm in (self.entry, self.core, self.posterior):
            norm.prepare_backward()
        self._prepare_gates()
        share = chances - self.unimix / self.classes
        self.to_logits = torch.empty_like(share)
        guesses = _steps(share, to_chances, self.to_logits, self.to_logits.flatten(2), self.posterior.arriving)
        moves, keeps = self._move_back_steps(), self.inputs.keep.unbind(0)
        earlier = torch.cat([torch.zeros_like(to_latents[:1]), to_latents[:-1]]).unbind(0)
        gradient = to_latents[-1].clone()
        for step in reversed(range(self.num_steps)):
            to_deter, to_stoch = self._split(gradient)
            self._guess_backward(step, to_deter, to_stoch, *guesses[step])
            gradient = torch.addcmul(earlier[step], self._move_backward(step, to_deter, *moves[step]), keeps[step])
        return gradient

    def _guess_backward(self, step: int, to_deter: Tensor, to_stoch: Tensor, *views: Tensor) -> None:
        """From chances back to the memory, added to ``to_deter``. The share is the softmax without the uniform part."""
        share, to_chance, to_logits, flat, arriving = views
        weighted = (to_chance + to_stoch.view_as(share)).mul_(share)
        total = weighted.sum(1, keepdim=True)
        torch.addcmul(weighted, share, total, value=-1 / (1 - self.unimix), out=to_logits)
        multiply(flat, self.weights.output, out=arriving)
        add_product(to_deter, self.posterior.backward(step), self.weights.posterior)

    def _prepare_gates(self) -> None:
        """All that the gradient of a memory is multiplied with on its way to the gates: (T, k, B, 3, D / k)."""
        reset, inner, update = self.gates.chunk(3, -1)
        before, after = self._blockwise(self.before[..., : self.width]), self.candidate
        steep = update * (1 - after.square())
        factors = (steep * inner * reset * (1 - reset), steep * reset, (after - before) * update * (1 - update))
        self.gate_factors = torch.stack(factors, -2)
        self.kept = 1 - update
        self.to_gates = torch.empty_like(self.gate_factors)
        self.gates_back, self.own_back = self.weights.gates.mT, self.weights.own.mT

    def _move_back_steps(self) -> list[tuple[Tensor, ...]]:
        gates = (self.gate_factors, self.to_gates, self.to_gates.flatten(3), self.kept)
        core = (self._blockwise(self.core.arriving), self._blockwise(self.core.leaving))
        return _steps(*gates, *core, self.entry.arriving.flatten(2), *self.entry.leaving.unbind(2))

    def _move_backward(self, step: int, to_deter: Tensor, *views: Tensor) -> Tensor:
        """From the memory after a step to memory and latent before it (B, D + W)."""
        factors, to_gates, flat, kept, to_moved, to_core_blocks, to_entry, from_deter, from_stoch = views
        weights, gradient = self.weights, self._blockwise(to_deter)
        torch.mul(factors, gradient.unsqueeze(-2), out=to_gates)
        to_moved.copy_(multiply(flat, self.gates_back))
        to_core = self.core.backward(step)
        direct = add_product(torch.mul(gradient, kept), to_core_blocks, self.own_back)
        multiply(to_core, weights.shared, out=to_entry)
        self.entry.backward(step)
        back = torch.empty_like(self.inputs.start)
        back_deter, back_stoch = self._split(back)
        multiply(from_deter, weights.deter, out=back_deter)
        multiply(from_stoch, weights.stoch, out=back_stoch)
        self._blockwise(back_deter).add_(direct)
        return back

    def weight_gradients(self, latents: Tensor) -> StepWeights:
        """One product over all steps for each, after :meth:`backward`."""
        before, after = self.before.flatten(0, 1), latents.flatten(0, 1)
        entry, core = self.entry.leaving.flatten(0, 1), self.core.leaving.flatten(0, 1)
        posterior, logits = self.posterior.leaving.flatten(0, 1), self.to_logits.flatten(2).flatten(0, 1)
        gates = self.to_gates.transpose(0, 1).flatten(3).flatten(1, 2)  # (k, T * B, 3 D / k)
        return StepWeights(
            deter=multiply(entry[:, 0].t(), before[:, : self.width]),
            stoch=multiply(entry[:, 1].t(), before[:, self.width :]),
            entry_bias=entry.sum(0),
            entry_scale=self.entry.scale_gradient(),
            shared=multiply(core.t(), self.entry.y.flatten(2).flatten(0, 1)),
            own=multiply(self._blockwise(before[:, : self.width]).mT, self._blockwise(core)),
            core_scale=self.core.scale_gradient(),
            gates=multiply(self._blockwise(self.core.y.flatten(0, 1)).mT, gates),
            gates_bias=gates.sum(1, keepdim=True),
            posterior=multiply(posterior.t(), after[:, : self.width]),
            posterior_scale=self.posterior.scale_gradient(),
            output=multiply(logits.t(), self.posterior.y.flatten(0, 1)),
            output_bias=logits.sum(0),
        )

    def _split(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Memory and latent variables (..., D) and (..., W), as views."""
        return latent[..., : self.width], latent[..., self.width :]

    def _blockwise(self, x: Tensor) -> Tensor:
        """A view (..., k, N, D / k) of (..., N, D)."""
        return x.unflatten(-1, (self.blocks, -1)).transpose(-3, -2)


def _round_matrices(weights: StepWeights) -> StepWeights:
    """With the factors of products in the run's precision; biases, scales and all gradients stay as they are."""
    return weights._replace(**{name: dense(rounded(getattr(weights, name))) for name in MATRICES})


def _steps(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """What belongs to each step, of tensors (T, ...)."""
    return list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))
