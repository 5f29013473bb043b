"""One observe step for a few envs in numpy: a quarter of the time of torch, which is mostly call overhead."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from reverie.backend import Backend
from reverie.core.types import Array, Row
from reverie.models.observation_codec import Encoder
from reverie.models.rssm import RSSM
from reverie.models.world_model import RSSMWorldModel
from reverie.nets.numpy.blocks import NumpyBlockGRU, NumpyChain, NumpyDense, NumpyLinear, normed_silu, view
from reverie.nets.numpy.mlp import NumpyInput


class NumpyLatent(NamedTuple):
    """The latents of N envs as stored in the carry, and as features for the policy."""

    deter: Array  # (N, D)
    stoch: Array  # (N, S), bytes as RSSM.pack makes them
    features: Array  # (N, D + W)


def runs_in_numpy(model: RSSMWorldModel, backend: Backend) -> bool:
    """Whether the numpy engine is chosen and the latents are categorical."""
    return backend.engine == "numpy" and type(model.rssm) is RSSM


class NumpyObserver:
    """Computes :meth:`RSSMWorldModel.observe` for one row. Images are still encoded by torch."""

    def __init__(self, model: RSSMWorldModel) -> None:
        rssm = model.rssm
        self.config, self.action_input = rssm.config, model.action_input
        self.encode = NumpyEncoder(model.encoder)
        self.entries = [NumpyDense(layer) for layer in (rssm.from_deter, rssm.from_stoch, rssm.from_action)]
        self.core = NumpyBlockGRU(rssm.core)
        self.posterior_deter, self.posterior_token = (
            NumpyLinear(rssm.posterior_deter),
            view(rssm.posterior_token.weight).T,
        )
        self.posterior_scale, self.output = view(rssm.posterior_hidden.scale), NumpyLinear(rssm.posterior_output)
        self.classes = np.arange(1, self.config.classes + 1, dtype=np.uint8)[:, None]

    def __call__(self, now: Row, carry: Row, uniform: Array) -> NumpyLatent:
        """From rows (N, ...) with ``previous_action`` and ``is_first``, the carry, and noise (N, S)."""
        keep = (~now["is_first"]).astype(np.float32)[:, None]
        action = self.action_input(torch.as_tensor(now["previous_action"])).numpy() * keep
        action /= np.maximum(np.abs(action), np.float32(1))
        before = carry["deter"] * keep
        inputs = (before, self._one_hot(carry["stoch"]) * keep, action)
        shared = np.concatenate([entry(x) for entry, x in zip(self.entries, inputs, strict=True)], -1)
        deter = self.core(before, shared)
        hidden = self.posterior_deter(deter)
        hidden += self.encode(now) @ self.posterior_token
        stoch = self._sample(self.output(normed_silu(hidden, self.posterior_scale)), uniform)
        return NumpyLatent(deter, stoch, np.concatenate([deter, self._one_hot(stoch)], -1))

    def _one_hot(self, stoch: Array) -> Array:
        """Classes (N, S) to (N, K * S)."""
        is_class: Array = stoch[:, None] == self.classes
        return is_class.astype(np.float32).reshape(len(stoch), -1)

    def _sample(self, logits: Array, uniform: Array) -> Array:
        """Classes (N, S), counted from 1."""
        probs = logits.reshape(len(logits), len(self.classes), -1)
        probs -= np.maximum.reduce(probs, 1, keepdims=True)
        np.exp(probs, out=probs)
        probs *= (1 - self.config.unimix) / np.add.reduce(probs, 1, keepdims=True)
        probs += np.float32(self.config.unimix / len(self.classes))
        is_above = np.add.accumulate(probs[:, :-1], 1) <= uniform[:, None]
        classes: Array = np.add.reduce(is_above, 1, dtype=np.uint8) + np.uint8(1)
        return classes


class NumpyEncoder:
    """Observations (N, ...) to tokens (N, E)."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.has_images = encoder, bool(encoder.image_keys)
        if not self.has_images:
            self.inputs, self.layers = NumpyInput(encoder.inputs), NumpyChain(*encoder.layers)

    def __call__(self, now: Row) -> Array:
        if self.has_images:
            keys = (*self.encoder.other_keys, *self.encoder.image_keys, "is_first")
            rows = self.encoder.backend.to_tensors({key: now[key][:, None] for key in keys})
            tokens: Array = self.encoder(rows)[:, 0].numpy()
            return tokens
        x, count = self.inputs(now), self.encoder.num_symlog
        if count:
            symlog = np.copysign(np.log1p(np.abs(x[:, :count])), x[:, :count])
            x = symlog if count == x.shape[1] else np.concatenate([symlog, x[:, count:]], axis=1)
        return self.layers(x)
