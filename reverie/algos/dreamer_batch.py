"""Dreamer's batches: rows from the buffer as tensors with noise, split into microbatches, and what is written back.

All noise of an update is sampled for the whole batch, and each microbatch gets the noise of its rows. So results do not
depend on the number of microbatches, up to the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.algos.dreamer_config import DreamerConfig
from reverie.algos.sequences import load_sequences
from reverie.backend import Backend
from reverie.core.types import NOTE, Batch, WriteBack
from reverie.models.latent import Latent
from reverie.models.world_model import RSSMWorldModel


class ImaginationNoise(NamedTuple):
    """Noise for H imagined steps from N rows."""

    latent: Tensor  # (H, N, S)
    action: Tensor  # (H, N, A)


@dataclass(frozen=True)
class SequenceBatch:
    """B sequences of T rows on the device, with all noise that the loss needs."""

    context: Latent  # (B, ...): before the first row
    rows: dict[str, Tensor]  # (B, T, ...)
    noise: Tensor  # (B, T, S): for the posteriors
    imagination: ImaginationNoise | None = None
    """For trajectories from all B * T rows; None if only the world model is trained."""
    trains_model: bool = True
    fraction: float = 1.0
    """Which fraction of the whole batch this is."""

    @property
    def is_whole(self) -> bool:
        """Whether this is the whole batch, not a microbatch."""
        return self.fraction == 1

    @property
    def is_padded(self) -> bool:
        return "weight" in self.rows

    @property
    def weights(self) -> Tensor:
        """Weights of the rows (B, T): 0 for padding, with mean 1 over the whole batch."""
        return self.rows["weight"] if self.is_padded else torch.ones_like(self.rows["reward"])

    def drop_padding(self, x: Tensor) -> Tensor:
        """The columns of x (H, B * T) that belong to valid rows."""
        return x[:, self.weights.flatten() > 0] if self.is_padded else x

    def split(self, size: int) -> list[SequenceBatch]:
        """Microbatches of ``size`` sequences each. The last one may have fewer."""
        count = len(self.noise)
        return [self] if size >= count else [self._take(i, min(i + size, count)) for i in range(0, count, size)]

    def _take(self, begin: int, end: int) -> SequenceBatch:
        """The sequences from ``begin`` to ``end``, and the noise for trajectories from their rows."""
        count, length = self.noise.shape[:2]
        starts = slice(begin * length, end * length)
        noise = self.imagination and ImaginationNoise(*(noise[:, starts] for noise in self.imagination))
        return replace(
            self,
            context=Latent(*(values[begin:end] for values in self.context)),
            rows={key: value[begin:end] for key, value in self.rows.items()},
            noise=self.noise[begin:end],
            imagination=noise,
            fraction=(end - begin) / count,
        )


def prepare(
    batch: Batch, model: RSSMWorldModel, config: DreamerConfig, backend: Backend
) -> tuple[Latent, dict[str, Tensor]]:
    """The latents before the sequences, and their rows (B, T) on the device. See :func:`load_sequences`."""
    context, rows = load_sequences(batch, backend)
    rows = transform_rewards(rows, config)
    notes = {key.removeprefix(NOTE): value for key, value in context.items() if key.startswith(NOTE)}
    if notes and config.replay_context:
        return model.rssm.unpack(notes), rows
    return model.initial(len(context["is_first"])), rows


def transform_rewards(rows: dict[str, Tensor], config: DreamerConfig) -> dict[str, Tensor]:
    return {**rows, "reward": rows["reward"].tanh()} if config.reward_transform == "tanh" else rows


def write_back(batch: Batch, latent: Latent, model: RSSMWorldModel, model_error: Tensor) -> WriteBack | None:
    """New latents for their rows, and priorities if the sampler uses them.

    The sampler picks the row before a sequence, so that row carries the sequence's priority: the mean of
    ``model_error`` (B, T) over the rows after it.
    """
    if "id" not in batch:
        return None
    ids = np.asarray(batch["id"])
    columns = {f"{NOTE}{key}": value for key, value in model.rssm.pack(latent).items()}
    if "importance" in batch:
        valid = torch.as_tensor(batch["valid"][:, 1:], device=model_error.device) if "valid" in batch else None
        columns["priority"] = mean_from_here(model_error, valid).cpu().numpy()
    return WriteBack(ids[:, 1:], columns, priority_ids=ids[:, :-1])


def mean_from_here(x: Tensor, valid: Tensor | None = None) -> Tensor:
    """(B, T): the mean of each column and all later valid ones; 0 if none is valid."""
    length = x.shape[1]
    later = torch.ones(length, length, device=x.device).tril()  # cumsum has no deterministic form on GPUs
    if valid is None or bool(valid.all()):
        return x @ (later / torch.arange(length, 0, -1, device=x.device))
    weight = valid.to(x)
    return (x * weight) @ later / (weight @ later).clamp(min=1)
