"""Observing a sequence as one autograd function, with its gradient written out.

A sequence of rows is a long chain of small matmuls. With plain autograd every step adds to every weight's gradient, and
the bookkeeping costs more than the matmuls. Here the backward pass carries only what must pass from step to step:
factors are prepared for all steps at once, and each weight's gradient is one big matmul over all steps.

``RSSM.observe_stepwise`` is the plain form that tests compare with. Time comes first: (T, B, ...). One step, with d for
``deter``, s for ``stoch`` and n() for norm and SiLU:

    entry = n([d W, s W] + bias)
    core = n(entry W + blocks(d) + action_input)
    reset, candidate, update = blocks(core) + bias
    d' = d + sigmoid(update - 1) * (tanh(sigmoid(reset) * candidate) - d)
    probs = softmax(n(d' W + token_input) W + bias), mixed with the uniform distribution;  s' is sampled from it
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from reverie.functional.categorical import sample_one_hot
from reverie.nets.blocks import NORM_EPSILON
from reverie.nets.matmul import Matmul


class ScanWeights(NamedTuple):
    """Weights of a step, for ``deter`` of width D, ``stoch`` of width W, layers of width h and k blocks."""

    deter: Tensor  # (h, D)
    stoch: Tensor  # (h, W)
    entry_bias: Tensor  # (2, h), for deter and stoch
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


class ScanInputs(NamedTuple):
    """The latents before the first step, and projected observations and actions."""

    start: Tensor  # (B, D + W): deter and stoch before the first step
    token_input: Tensor  # (T, B, h)
    action_input: Tensor  # (T, B, D)
    keep: Tensor  # (T, B, 1): 0 where an episode begins
    uniform: Tensor  # (T, B, S): noise


def observe_scan(inputs: ScanInputs, weights: ScanWeights, unimix: float, matmul: Matmul) -> tuple[Tensor, Tensor]:
    """Latents as features (T, B, D + W), and the posterior probabilities (T, B, K, S) that they were sampled from."""
    if torch.is_grad_enabled():
        found: tuple[Tensor, Tensor] = _ObserveScan.apply(unimix, matmul, *inputs, *weights)
        return found
    return _Scan(inputs, weights, unimix, matmul).forward()


class _ObserveScan(torch.autograd.Function):
    """Gradients for everything but ``keep`` and ``uniform``. Those of samples go to their probabilities, unchanged."""

    @staticmethod
    def forward(ctx: Any, unimix: float, matmul: Matmul, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        count = len(ScanInputs._fields)
        ctx.scan = _Scan(ScanInputs(*tensors[:count]), ScanWeights(*tensors[count:]), unimix, matmul)
        latents, probs = ctx.scan.forward()
        ctx.save_for_backward(latents, probs)
        return latents, probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, latents_grad: Tensor, probs_grad: Tensor) -> tuple[Tensor | None, ...]:
        scan, ctx.scan = ctx.scan, None
        latents, probs = ctx.saved_tensors
        start = scan.backward(probs, latents_grad, probs_grad)
        weights = scan.weight_gradients(latents)
        return None, None, start, scan.posterior.input_grad, scan.core.input_grad, None, None, *weights


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
        """The caller fills ``output_grad``; :meth:`backward` fills ``input_grad``."""
        self.normed = self.x * self.inverse
        inner = self.normed * self.scale
        self.slope = torch.ops.aten.silu_backward(torch.ones_like(inner), inner)
        self.output_grad, self.input_grad = torch.empty_like(inner), torch.empty_like(inner)
        factor = (self.slope * self.scale).mul_(self.inverse)
        self.back_steps = _steps(factor, self.normed, self.output_grad, self.input_grad)

    def backward(self, step: int) -> Tensor:
        factor, normed, output_grad, input_grad = self.back_steps[step]
        torch.mul(output_grad, factor, out=input_grad)
        radial = (input_grad * normed).sum(-1, keepdim=True)
        return input_grad.addcmul_(normed, radial, value=-1 / normed.shape[-1])

    def scale_gradient(self) -> Tensor:
        total = self.output_grad.mul_(self.slope).mul_(self.normed)
        return total.sum(tuple(range(total.ndim - self.scale.ndim)))


class _Scan:
    """The steps, and everything that the backward pass needs of each."""

    def __init__(self, inputs: ScanInputs, weights: ScanWeights, unimix: float, matmul: Matmul) -> None:
        weights = _prepare_matrices(weights, matmul)
        self.inputs, self.weights, self.unimix, self.matmul = inputs, weights, unimix, matmul
        self.num_steps, self.count, _ = inputs.keep.shape
        self.hidden, self.width = weights.posterior.shape
        self.blocks = len(weights.own)
        self.variables = inputs.uniform.shape[-1]
        self.classes = len(weights.output) // self.variables
        leading = (self.num_steps, self.count)
        empty = inputs.start.new_empty
        self.before = empty(*leading, inputs.start.shape[-1])
        self.entry = _Norm(empty(*leading, 2, self.hidden), weights.entry_scale)
        self.core = _Norm(inputs.action_input.clone(memory_format=torch.contiguous_format), weights.core_scale)
        self.posterior = _Norm(inputs.token_input.clone(memory_format=torch.contiguous_format), weights.posterior_scale)
        self.gates = empty(self.num_steps, self.blocks, self.count, 3 * self.width // self.blocks)
        self.candidate = empty(self.num_steps, self.blocks, self.count, self.width // self.blocks)
        self.deter_bias, self.stoch_bias = weights.entry_bias
        matrices = (weights.deter, weights.stoch, weights.shared, weights.posterior, weights.output)
        self.deter, self.stoch, self.shared, self.posterior_weight, self.output = (matrix.t() for matrix in matrices)

    def forward(self) -> tuple[Tensor, Tensor]:
        latents = torch.empty_like(self.before)
        probs = latents.new_empty(self.num_steps, self.count, self.classes, self.variables)
        deters, stochs = self._split(latents)
        steps = _steps(self.before, self.inputs.keep, self.inputs.uniform, latents, stochs.view_as(probs), probs)
        deter_views, posterior_views = self._deter_views(deters), _steps(self.posterior.x, deters)
        latent = self.inputs.start
        for step, (before, keep, uniform, after, stoch, step_probs) in enumerate(steps):
            torch.mul(latent, keep, out=before)
            self._next_deter(step, *deter_views[step])
            self._posterior_probs(step, step_probs, *posterior_views[step])
            stoch.copy_(sample_one_hot(step_probs, uniform))
            latent = after
        return latents, probs

    def _deter_views(self, deters: Tensor) -> list[tuple[Tensor, ...]]:
        """The views that :meth:`_next_deter` works on, made once: making them takes as long as some of the matmuls."""
        before, stoch = self._split(self.before)
        entry = (*self.entry.x.unbind(2), self.entry.y.flatten(2))
        core = (self.core.x, self._blockwise(self.core.x), self._blockwise(self.core.y))
        gates = (self.gates, *self.gates.chunk(3, -1), self.candidate)
        return _steps(before, self._blockwise(before), stoch, *entry, *core, *gates, self._blockwise(deters))

    def _next_deter(self, step: int, *views: Tensor) -> None:
        """Write ``deter`` after the step into the last of the views."""
        deter, blocks, stoch, from_deter, from_stoch, entry, core, core_blocks, hidden, *gates, after = views
        weights = self.weights
        self.matmul.affine(self.deter_bias, deter, self.deter, out=from_deter)
        self.matmul.affine(self.stoch_bias, stoch, self.stoch, out=from_stoch)
        self.entry.forward(step)
        self.matmul.add_product(core, entry, self.shared)
        core_blocks.add_(self.matmul.multiply(blocks, weights.own))
        self.core.forward(step)
        all_gates, reset, inner, update, candidate = gates
        self.matmul.affine(weights.gates_bias, hidden, weights.gates, out=all_gates)
        torch.mul(reset.sigmoid_(), inner, out=candidate).tanh_()
        torch.lerp(blocks, candidate, update.sub_(1).sigmoid_(), out=after)

    def _posterior_probs(self, step: int, probs: Tensor, hidden: Tensor, deter: Tensor) -> None:
        """Write the posterior probabilities (B, K, S) into ``probs``."""
        self.matmul.add_product(hidden, deter, self.posterior_weight)
        logits = self.matmul.affine(self.weights.output_bias, self.posterior.forward(step), self.output)
        torch.softmax(logits.view_as(probs), 1, out=probs)
        probs.mul_(1 - self.unimix).add_(self.unimix / self.classes)

    def backward(self, probs: Tensor, latents_grad: Tensor, probs_grad: Tensor) -> Tensor:
        """Fill the gradients at the output and input of each layer for all steps. Returns the gradient of the start."""
        for norm in (self.entry, self.core, self.posterior):
            norm.prepare_backward()
        self._prepare_gates()
        softmax = probs - self.unimix / self.classes  # times 1 - unimix
        self.logits_grad = torch.empty_like(softmax)
        posterior_views = _steps(
            softmax, probs_grad, self.logits_grad, self.logits_grad.flatten(2), self.posterior.output_grad
        )
        deter_views, keeps = self._deter_backward_views(), self.inputs.keep.unbind(0)
        earlier = torch.cat([torch.zeros_like(latents_grad[:1]), latents_grad[:-1]]).unbind(0)
        gradient = latents_grad[-1].clone()
        for step in reversed(range(self.num_steps)):
            deter_grad, stoch_grad = self._split(gradient)
            self._posterior_backward(step, deter_grad, stoch_grad, *posterior_views[step])
            before_grad = self._deter_backward(step, deter_grad, *deter_views[step])
            gradient = torch.addcmul(earlier[step], before_grad, keeps[step])
        return gradient

    def _posterior_backward(self, step: int, deter_grad: Tensor, stoch_grad: Tensor, *views: Tensor) -> None:
        """Add the gradient that comes through the posterior to ``deter_grad``."""
        softmax, probs_grad, logits_grad, flat, output_grad = views
        weighted = (probs_grad + stoch_grad.view_as(softmax)).mul_(softmax)
        total = weighted.sum(1, keepdim=True)
        torch.addcmul(weighted, softmax, total, value=-1 / (1 - self.unimix), out=logits_grad)
        self.matmul.multiply(flat, self.weights.output, out=output_grad)
        self.matmul.add_product(deter_grad, self.posterior.backward(step), self.weights.posterior)

    def _prepare_gates(self) -> None:
        """The factors (T, k, B, 3, D / k) from the gradient of ``deter`` to those of the gates."""
        reset, inner, update = self.gates.chunk(3, -1)
        before, after = self._blockwise(self.before[..., : self.width]), self.candidate
        slope = update * (1 - after.square())
        factors = (slope * inner * reset * (1 - reset), slope * reset, (after - before) * update * (1 - update))
        self.gate_factors = torch.stack(factors, -2)
        self.kept = 1 - update
        self.gates_grad = torch.empty_like(self.gate_factors)
        self.gates_back, self.own_back = self.weights.gates.mT, self.weights.own.mT

    def _deter_backward_views(self) -> list[tuple[Tensor, ...]]:
        gates = (self.gate_factors, self.gates_grad, self.gates_grad.flatten(3), self.kept)
        core = (self._blockwise(self.core.output_grad), self._blockwise(self.core.input_grad))
        return _steps(*gates, *core, self.entry.output_grad.flatten(2), *self.entry.input_grad.unbind(2))

    def _deter_backward(self, step: int, deter_grad: Tensor, *views: Tensor) -> Tensor:
        """From the gradient of ``deter`` after a step to that of the latent before it (B, D + W)."""
        factors, gates_grad, flat, kept, hidden_grad, core_blocks_grad, entry_grad, from_deter, from_stoch = views
        weights, gradient = self.weights, self._blockwise(deter_grad)
        torch.mul(factors, gradient.unsqueeze(-2), out=gates_grad)
        hidden_grad.copy_(self.matmul.multiply(flat, self.gates_back))
        core_grad = self.core.backward(step)
        direct = self.matmul.add_product(torch.mul(gradient, kept), core_blocks_grad, self.own_back)
        self.matmul.multiply(core_grad, weights.shared, out=entry_grad)
        self.entry.backward(step)
        before_grad = torch.empty_like(self.inputs.start)
        before_deter, before_stoch = self._split(before_grad)
        self.matmul.multiply(from_deter, weights.deter, out=before_deter)
        self.matmul.multiply(from_stoch, weights.stoch, out=before_stoch)
        self._blockwise(before_deter).add_(direct)
        return before_grad

    def weight_gradients(self, latents: Tensor) -> ScanWeights:
        """One matmul over all steps for each weight. Call after :meth:`backward`."""
        before, after = self.before.flatten(0, 1), latents.flatten(0, 1)
        entry, core = self.entry.input_grad.flatten(0, 1), self.core.input_grad.flatten(0, 1)
        posterior, logits = self.posterior.input_grad.flatten(0, 1), self.logits_grad.flatten(2).flatten(0, 1)
        gates = self.gates_grad.transpose(0, 1).flatten(3).flatten(1, 2)  # (k, T * B, 3 D / k)
        return ScanWeights(
            deter=self.matmul.multiply(entry[:, 0].t(), before[:, : self.width]),
            stoch=self.matmul.multiply(entry[:, 1].t(), before[:, self.width :]),
            entry_bias=entry.sum(0),
            entry_scale=self.entry.scale_gradient(),
            shared=self.matmul.multiply(core.t(), self.entry.y.flatten(2).flatten(0, 1)),
            own=self.matmul.multiply(self._blockwise(before[:, : self.width]).mT, self._blockwise(core)),
            core_scale=self.core.scale_gradient(),
            gates=self.matmul.multiply(self._blockwise(self.core.y.flatten(0, 1)).mT, gates),
            gates_bias=gates.sum(1, keepdim=True),
            posterior=self.matmul.multiply(posterior.t(), after[:, : self.width]),
            posterior_scale=self.posterior.scale_gradient(),
            output=self.matmul.multiply(logits.t(), self.posterior.y.flatten(0, 1)),
            output_bias=logits.sum(0),
        )

    def _split(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """``deter`` (..., D) and ``stoch`` (..., W) as views."""
        return latent[..., : self.width], latent[..., self.width :]

    def _blockwise(self, x: Tensor) -> Tensor:
        """A view (..., k, N, D / k) of (..., N, D)."""
        blocks: Tensor = x.unflatten(-1, (self.blocks, -1)).transpose(-3, -2)
        return blocks


def _prepare_matrices(weights: ScanWeights, matmul: Matmul) -> ScanWeights:
    """Weights of matmuls in the backend's precision. Biases, scales and gradients stay float32."""
    return weights._replace(**{name: matmul.prepared(getattr(weights, name)) for name in MATRICES})


def _steps(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors (T, ...) as a list of T tuples."""
    return list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))
