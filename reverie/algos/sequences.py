"""Sequences from a replay buffer as tensors, for world models that learn from rows in order."""

from __future__ import annotations

from torch import Tensor

from reverie.backend import Backend
from reverie.core.types import Batch
from reverie.data.rows import with_context


def load_sequences(batch: Batch, backend: Backend) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The rows (B, ...) before the sequences, and the rows (B, T, ...) of the sequences, on the device.

    If some rows are padding, ``weight`` is 0 for those and has mean 1 over the batch. Plain means of weighted losses
    are then means over valid rows, also when they are added up over microbatches.
    """
    sequences = with_context(batch)  # on the host, where finding padding does not wait for the device
    context, rows = backend.to_tensors(sequences.context), backend.to_tensors(sequences.rows)
    if sequences.weight is not None:
        weight = backend.to_tensor(sequences.weight)
        rows["weight"] = weight / weight.mean().clamp(min=1 / weight.numel())
    return context, rows
