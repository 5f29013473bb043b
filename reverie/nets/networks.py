"""From a network's config to the network, with the initial weights that the config asks for."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.nets.encoders import Observations, choose_network_kind
from reverie.nets.layers import initialise


def make_network(config: ComponentConfig, observations: Observations) -> Any:
    """A trunk over these observations; ``auto`` is what the spaces ask for."""
    if config.kind == "auto":
        config = resolve_network(config, observations)
    network: Any = registry.load("network", config.kind)(config, observations)
    _check_network(network, config.kind)
    how = getattr(config, "initialiser", None)
    if how is not None:
        initialise(network, how)
    network.is_initialised = how is not None  # else the algorithm may have its own way
    return network


def _check_network(network: Any, kind: str) -> None:
    """What heads and agents rely on, which a class of one's own may lack."""
    if not isinstance(getattr(network, "features", None), Integral) or not callable(network):
        raise ConfigError(
            f"The network '{kind}' does not say how many features it gives.",
            "A network is a torch module that sets self.features (a whole number) and whose forward turns a dict of "
            "observations (B, ...) into a tensor (B, features): see docs/networks.md.",
        )


def resolve_network(config: ComponentConfig, observations: Observations) -> ComponentConfig:
    """The config of the kind that ``auto`` stands for; what was given to auto stays."""
    kind = choose_network_kind(observations)
    given = {key: value for key, value in config.model_dump().items() if value is not None}
    resolved: ComponentConfig = registry.load("network", kind).Config.model_validate({**given, "kind": kind})
    return resolved
