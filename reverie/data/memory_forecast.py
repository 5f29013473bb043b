"""What a buffer will take once it is full, worked out from its config and the env's sizes before anything is built.

Every column is an array of known size, so the forecast is a sum of products and no measurement. What it cannot know by
itself it is told by examples: ``extras`` that the algorithm keeps with each row (and ``log/*`` numbers of the env),
``annotations`` that updates write back. Both are arrays of shape (N, ...), of which only shape and dtype count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from reverie.core import registry
from reverie.core.contracts import KnowsExtras
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
    each_checkpoint: int = 0
    """Of the memory, what each checkpoint writes for itself: annotations, and rows that fill no chunk yet."""


class ExpectedRows(NamedTuple):
    """What will be put into a buffer."""

    specs: Specs
    num_envs: int
    extras: Mapping[str, Array] = NONE
    """Examples of what the algorithm keeps with each row."""
    annotations: Mapping[str, Array] = NONE
    """Examples of what updates write back."""
    rollout_rows: int = 0
    """Rows, over all envs, between two reads of a buffer that keeps only those."""


@runtime_checkable
class HasForecast(Protocol):
    """A buffer class that forecasts its size."""

    @staticmethod
    def forecast(config: Any, expected: ExpectedRows) -> Forecast: ...


def known_extras(algorithm: ComponentConfig) -> Mapping[str, Array]:
    """What the algorithm of this config says that it will keep with each row; nothing if it does not say."""
    found = registry.load("algorithm", algorithm.kind)
    return found.extras_of(algorithm) if isinstance(found, KnowsExtras) else NONE


def forecast_buffer(config: ComponentConfig, expected: ExpectedRows) -> Forecast:
    """What the buffer of this config takes when full; a class of the user's own that has no forecast, nothing."""
    found = registry.load("buffer", config.kind)
    return found.forecast(config, expected) if isinstance(found, HasForecast) else Forecast(0)
