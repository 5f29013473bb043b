"""How much memory and disk a full buffer takes, computed from its config and the specs before anything is built.

Every column is an array of known size, so the forecast is exact arithmetic, not a measurement. Columns that specs do
not describe are given as examples of shape (N, ...), of which only shapes and dtypes matter: ``extras`` that the
algorithm stores with each row (and ``log/*`` numbers of the env) and ``annotations`` that updates write back.
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
    """Chunk files, which checkpoints share."""
    each_checkpoint: int = 0
    """What every checkpoint writes anew: annotations and the growing chunk."""


class ExpectedRows(NamedTuple):
    """The rows that a buffer will store."""

    specs: Specs
    num_envs: int
    extras: Mapping[str, Array] = NONE
    """Examples of what the algorithm stores with each row."""
    annotations: Mapping[str, Array] = NONE
    """Examples of what updates write back."""
    rollout_rows: int = 0
    """Rows over all envs between two reads, for rollout buffers."""


@runtime_checkable
class HasForecast(Protocol):
    """A buffer class that forecasts its size."""

    @staticmethod
    def forecast(config: Any, expected: ExpectedRows) -> Forecast: ...


def known_extras(algorithm: ComponentConfig) -> Mapping[str, Array]:
    """Examples of the extras of an algorithm that knows them, otherwise none."""
    found = registry.load("algorithm", algorithm.kind)
    return found.extras_of(algorithm) if isinstance(found, KnowsExtras) else NONE


def forecast_buffer(config: ComponentConfig, expected: ExpectedRows) -> Forecast:
    """What a full buffer of this config takes. 0 for your own buffer classes without a ``forecast``."""
    found = registry.load("buffer", config.kind)
    return found.forecast(config, expected) if isinstance(found, HasForecast) else Forecast(0)
