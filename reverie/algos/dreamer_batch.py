"""From rows as the buffer serves them to what Dreamer's networks take, in as many parts as memory wants, and back.

All that is drawn for an update is drawn for the whole batch, and each part gets what belongs to its rows. So nothing
that is learnt depends on the number of parts, up to the order in which sums are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie import backend
from reverie.algos.dreamer_config import DreamerConfig
from reverie.core.types import NOTE, Batch, WriteBack
from reverie.data.rows import with_context
from reverie.models.rssm import Latent, Observed
from reverie.models.world_model import WorldModel


class DreamNoise(NamedTuple):
    """All chance in dreams of H steps from N rows."""

    latent: Tensor  # (H, N, S)
    action: Tensor  # (H, N, A)


class Part(NamedTuple):
    """Stretches that torch works on at a time: all of a batch, or some where memory is short."""

    start: Latent  # (B, ...): before the first row
    rows: dict[str, Tensor]  # (B, T, ...)
    noise: Tensor  # (B, T, S): of the latents
    dreams: DreamNoise | None  # from all B * T rows, if there are any
    share: float = 1.0
    """How much of the batch this is."""

    def cut(self) -> list[Part]:
        """In as many parts as the backend wants."""
        count = len(self.noise)
        size = backend.part_size(count)
        return [self] if size >= count else [self._take(i, min(i + size, count)) for i in range(0, count, size)]

    def _take(self, begin: int, end: int) -> Part:
        """Some of the stretches, and the dreams from their rows."""
        count, length = self.noise.shape[:2]
        dreams = self.dreams and DreamNoise(*(noise[:, begin * length : end * length] for noise in self.dreams))
        rows = {key: value[begin:end] for key, value in self.rows.items()}
        start = Latent(*(part[begin:end] for part in self.start))
        return Part(start, rows, self.noise[begin:end], dreams, (end - begin) / count)


def prepare(batch: Batch, model: WorldModel, config: DreamerConfig) -> tuple[Latent, dict[str, Tensor]]:
    """Where the stretches start, and their rows (B, T) on the device.

    If some rows do not count, all have a ``weight``, of mean 1 over the batch: plain means of weighted losses, also
    over parts of the batch, are means over the rows that count.
    """
    sequences = with_context(batch)  # before the rows are on the device: it has to know whether all are valid
    context, rows = backend.to_tensors(sequences.context), backend.to_tensors(sequences.rows)
    if sequences.weight is not None:
        weight = torch.as_tensor(sequences.weight, device=backend.device())
        rows["weight"] = weight / weight.mean().clamp(min=1 / weight.numel())
    rows = press_rewards(rows, config)
    notes = {key.removeprefix(NOTE): value for key, value in context.items() if key.startswith(NOTE)}
    if notes and config.replay_context:
        return model.rssm.unpack(notes), rows
    return model.initial(len(context["is_first"])), rows


def weigh(losses: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Losses per row (B, T), with those of rows that do not count as 0."""
    return {name: loss * rows["weight"] for name, loss in losses.items()} if "weight" in rows else dict(losses)


def press_rewards(rows: dict[str, Tensor], config: DreamerConfig) -> dict[str, Tensor]:
    return {**rows, "reward": rows["reward"].tanh()} if config.reward_transform == "tanh" else rows


def latent_noise(model: WorldModel, rng: np.random.Generator, *leading: int) -> Tensor:
    """What latents (...) are drawn with."""
    return torch.as_tensor(model.rssm.draw_noise(rng, *leading), device=backend.device())


def join(parts: Sequence[Observed]) -> Observed:
    """What was observed in each part, as one."""
    if len(parts) == 1:
        return parts[0]
    latents, posteriors = zip(*parts, strict=True)
    return Observed(Latent(*map(torch.cat, zip(*latents, strict=True))), torch.cat(posteriors))


def write_back(batch: Batch, observed: Observed, model: WorldModel, surprise: Sequence[Tensor]) -> WriteBack | None:
    """The new latents for the rows they belong to, and priorities for a sampler that goes by them.

    It draws a stretch by the row before, its context: so each row has the priority of the stretch behind it.
    """
    if "id" not in batch:
        return None
    ids = np.asarray(batch["id"])
    columns = {f"{NOTE}{key}": value for key, value in model.rssm.pack(observed.latent).items()}
    if "importance" in batch:
        counts = torch.as_tensor(batch["valid"][:, 1:], device=backend.device()) if "valid" in batch else None
        columns["priority"] = mean_from_here(torch.cat(list(surprise)), counts).cpu().numpy()
    return WriteBack(ids[:, 1:], columns, priority_ids=ids[:, :-1])


def mean_from_here(x: Tensor, counts: Tensor | None = None) -> Tensor:
    """(B, T): the mean of each column and all later ones, as far as they are known and count; 0 where none does."""
    length = x.shape[1]
    later = torch.ones(length, length, device=x.device).tril()  # cumsum has no deterministic form on GPUs
    if counts is None or bool(counts.all()):
        return x @ (later / torch.arange(length, 0, -1, device=x.device))
    weight = counts.to(x)
    return (x * weight) @ later / (weight @ later).clamp(min=1)


def mean_of(parts: Sequence[Mapping[str, Tensor]], shares: Sequence[float]) -> dict[str, Tensor]:
    """Numbers of a batch from those of its parts."""
    return {
        name: torch.stack([share * part[name] for part, share in zip(parts, shares, strict=True)]).sum()
        for name in parts[0]
    }
