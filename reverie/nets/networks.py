"""From a network's config to the network, with the initial weights that the config asks for."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Recurrent
from reverie.core.errors import ConfigError
from reverie.nets.encoders import Observations, choose_network_kind
from reverie.nets.layers import initialise

_ROWS = 2
_PROMISE = (
    "A network is a torch module that is built with (config, observations), sets self.features (a whole number) and "
    "whose forward turns a dict of observations (B, ...) into a tensor (B, features): see docs/networks.md."
)


def make_network(config: ComponentConfig, observations: Observations) -> Any:
    """A trunk over these observations; ``auto`` is what the spaces ask for."""
    if config.kind == "auto":
        config = resolve_network(config, observations)
    kind = config.kind
    build = registry.load("network", kind)
    with _blaming(kind, build):
        network: Any = build(config, observations)
    _check_network(network, kind, observations)
    how = getattr(config, "initialiser", None)
    if how is not None:
        initialise(network, how)
    network.is_initialised = how is not None  # else the algorithm may have its own way
    return network


def _check_network(network: Any, kind: str, observations: Observations) -> None:
    """What heads and agents rely on, which a class of one's own may lack."""
    if not isinstance(getattr(network, "features", None), Integral) or not callable(network):
        raise ConfigError(f"The network '{kind}' does not say how many features it gives.", _PROMISE)
    if "." not in kind:
        return
    has_memory = isinstance(network, Recurrent)
    with _blaming(kind, type(network)), torch.no_grad():
        output = _try_memory(network, kind, observations) if has_memory else network(_zeros(observations))
        shape = tuple(output.shape)
    if shape != (_ROWS, network.features):
        said = f"features = {network.features}, but turns {_ROWS} rows into a tensor of shape {shape}"
        raise ConfigError(f"The network '{kind}' has {said}.", _PROMISE)


def _try_memory(network: Any, kind: str, observations: Observations) -> Tensor:
    """The features of rows of zeros; the memory behind them must be like the one before."""
    before = {key: torch.as_tensor(value) for key, value in network.initial_memory(_ROWS).items()}
    features, after = network.step(_zeros(observations), torch.ones(_ROWS, dtype=torch.bool), before)
    shapes = [{key: tuple(value.shape) for key, value in memory.items()} for memory in (before, after)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"The network '{kind}' begins with a memory of shapes {shapes[0]}, and its step gives one of {shapes[1]}.",
            "Let initial_memory and step agree: see docs/networks.md.",
        )
    found: Tensor = features
    return found


def _zeros(observations: Observations) -> dict[str, Tensor]:
    """A few rows that show nothing."""
    rows = {key: np.zeros((_ROWS, *spec.shape), spec.dtype) for key, spec in observations.items()}
    return {key: torch.from_numpy(array) for key, array in rows.items()}


@contextmanager
def _blaming(kind: str, owner: Any) -> Iterator[None]:
    """Tell errors in a class of one's own by the last line of its file on the way to them."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if "." not in kind:
            raise
        frames = traceback.extract_tb(error.__traceback__)
        where = next((frame for frame in reversed(frames) if frame.filename == inspect.getfile(owner)), frames[-1])
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"The network '{kind}' failed ({Path(where.filename).name}, line {where.lineno}): {what}.", _PROMISE
        ) from error


def resolve_network(config: ComponentConfig, observations: Observations) -> ComponentConfig:
    """The config of the kind that ``auto`` stands for; what was given to auto stays."""
    kind = choose_network_kind(observations)
    given = {key: value for key, value in config.model_dump().items() if value is not None}
    resolved: ComponentConfig = registry.load("network", kind).Config.model_validate({**given, "kind": kind})
    return resolved
