"""Action distributions as numpy arrays, and agents run over rows, for inspection."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from reverie.core.types import Array, Batch, Carry, Inspection, Row
from reverie.nets.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    Joint,
    MultiCategorical,
    NoisyTanh,
    SquashedGaussian,
)

InspectRow = Callable[[Row, Carry], tuple[Row, Array | None, Carry]]
"""From rows (N, ...) and the carry to the action distribution, values (N,) or None, and the next carry."""


def describe_policy(policy: Distribution | SquashedGaussian | NoisyTanh) -> Row:
    """``mode`` (N, *shape); ``probs`` (N, sum of classes) of choices; ``std`` (N, A) of numbers, before any tanh."""
    found = {name: torch.cat(parts, -1).cpu().numpy() for name, parts in _parts_of(policy).items() if parts}
    return {"mode": policy.mode().cpu().numpy(), **found}


def inspect_rows(inspect_row: InspectRow, rows: Batch, carry: Carry) -> Inspection:
    """Run an agent without a world model over rows (B, T)."""
    moments = []
    for time in range(rows["is_first"].shape[1]):
        policy, value, carry = inspect_row({key: values[:, time] for key, values in rows.items()}, carry)
        moments.append(policy if value is None else policy | {"value": value})
    columns = {key: np.stack([moment[key] for moment in moments], axis=1) for key in moments[0]}
    return Inspection(columns, columns.pop("value", None))


def _parts_of(policy: Distribution | SquashedGaussian | NoisyTanh) -> Mapping[str, list[torch.Tensor]]:
    if isinstance(policy, Categorical):
        return {"probs": [policy.log_probs.exp()], "std": []}
    if isinstance(policy, MultiCategorical | Joint):
        parts = [_parts_of(part) for part in policy.parts]
        return {name: [tensor for part in parts for tensor in part[name]] for name in ("probs", "std")}
    assert isinstance(policy, Gaussian | SquashedGaussian | NoisyTanh)
    return {"probs": [], "std": [policy.log_std.exp().expand_as(policy.mean).flatten(1)]}
