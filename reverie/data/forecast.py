"""What a buffer will take once it is full, worked out from its config and the env's sizes before anything is built.

Every column is an array of known size, so the forecast is a sum of products and no measurement. What it cannot know by
itself it is told by examples: ``extras`` that the algorithm keeps with each row (and ``log/*`` numbers of the env),
``annotations`` that updates write back. Both are arrays of shape (N, ...), of which only shape and dtype count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reverie.core import registry
from reverie.core.types import Array

if TYPE_CHECKING:
    from reverie.core.config import ComponentConfig
    from reverie.core.specs import Specs

NONE: Mapping[str, Array] = MappingProxyType({})


class Forecast(NamedTuple):
    """Bytes of a full buffer."""

    memory: int
    disk: int = 0
    """Files that it keeps while it runs; checkpoints share them."""


def forecast_buffer(
    config: ComponentConfig,
    specs: Specs,
    num_envs: int,
    extras: Mapping[str, Array] = NONE,
    annotations: Mapping[str, Array] = NONE,
    rollout_rows: int = 0,
) -> Forecast:
    """What the buffer of this config takes when full; ``rollout_rows`` are the rows, over all envs, between two reads
    of a buffer that keeps only those. A buffer class of the user's own that has no forecast counts as nothing."""
    forecast = getattr(registry.load("buffer", config.kind), "forecast", None)
    if forecast is None:
        return Forecast(0)
    found: Forecast = forecast(config, specs, num_envs, extras, annotations, rollout_rows)
    return found


def forecast_bytes(
    config: ComponentConfig,
    specs: Specs,
    num_envs: int,
    extras: Mapping[str, Array] = NONE,
    annotations: Mapping[str, Array] = NONE,
    rollout_rows: int = 0,
) -> int:
    """The memory in bytes; see :func:`forecast_buffer`."""
    return forecast_buffer(config, specs, num_envs, extras, annotations, rollout_rows).memory
