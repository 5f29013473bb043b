"""Builds networks from their configs, initialises them, and checks networks of your own."""

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
_CONTRACT = (
    "A network is a torch module with a constructor (config, observations) that sets self.features (an int). "
    "Its forward maps a dict of observations (B, ...) to a tensor (B, features): see docs/networks.md."
)


def make_network(config: ComponentConfig, observations: Observations) -> Any:
    """A trunk for these observations. ``auto`` chooses the kind that fits them."""
    if config.kind == "auto":
        config = resolve_network(config, observations)
    kind = config.kind
    build = registry.load("network", kind)
    with _errors_located(kind, build):
        network: Any = build(config, observations)
    _check_network(network, kind, observations)
    how = getattr(config, "initialiser", None)
    if how is not None:
        initialise(network, how)
    network.is_initialised = how is not None  # otherwise the algorithm may initialise it
    return network


def _check_network(network: Any, kind: str, observations: Observations) -> None:
    """Check what heads and agents rely on, because a class of your own may lack it."""
    if not isinstance(getattr(network, "features", None), Integral) or not callable(network):
        raise ConfigError(f"The network '{kind}' has no attribute features with its number of outputs.", _CONTRACT)
    if "." not in kind:
        return
    if isinstance(network, Recurrent) and not hasattr(network, "encoder"):
        raise ConfigError(
            f"The recurrent network '{kind}' has no encoder.",
            "Call super().__init__(config, observations), which makes it: see docs/networks.md.",
        )
    with _errors_located(kind, type(network)), torch.no_grad():
        zeros = _zeros(observations)
        output = _try_step(network, kind, zeros) if isinstance(network, Recurrent) else network(zeros)
        shape = tuple(output.shape)
    if shape != (_ROWS, network.features):
        problem = f"has features = {network.features}, but maps {_ROWS} rows to a tensor of shape {shape}"
        raise ConfigError(f"The network '{kind}' {problem}.", _CONTRACT)


def _try_step(network: Any, kind: str, rows: dict[str, Tensor]) -> Tensor:
    """The features of rows. Checks that the next hidden state has the shapes of the initial one."""
    before = {key: torch.as_tensor(value) for key, value in network.initial_hidden(_ROWS).items()}
    features, after = network.step(rows, torch.ones(_ROWS, dtype=torch.bool), before)
    shapes = [{key: tuple(value.shape) for key, value in hidden.items()} for hidden in (before, after)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"The network '{kind}' starts with a hidden state of shapes {shapes[0]}, but its step returns {shapes[1]}.",
            "Let initial_hidden and step agree: see docs/networks.md.",
        )
    found: Tensor = features
    return found


def _zeros(observations: Observations) -> dict[str, Tensor]:
    """Rows of zeros for the check."""
    rows = {key: np.zeros((_ROWS, *spec.shape), spec.dtype) for key, spec in observations.items()}
    return {key: torch.from_numpy(array) for key, array in rows.items()}


@contextmanager
def _errors_located(kind: str, owner: Any) -> Iterator[None]:
    """Report an error in your own class with the last line of its file in the traceback."""
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
            f"The network '{kind}' failed ({Path(where.filename).name}, line {where.lineno}): {what}.", _CONTRACT
        ) from error


def resolve_network(config: ComponentConfig, observations: Observations) -> ComponentConfig:
    """Replace ``auto`` by the kind that fits the observations, keeping the settings given to ``auto``."""
    kind = choose_network_kind(observations)
    given = {key: value for key, value in config.model_dump().items() if value is not None}
    resolved: ComponentConfig = registry.load("network", kind).Config.model_validate({**given, "kind": kind})
    return resolved
