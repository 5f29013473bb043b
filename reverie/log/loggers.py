"""Builds the optional sinks of a run: CSV, TensorBoard, W&B and your own classes.

Each is a component of the group ``logger``: a class with a nested ``Config``, built as ``Class(config, run)``, with
``write(kind, record)`` and ``close()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError, ReverieError
from reverie.log.guarded_sink import GuardedSink, describe
from reverie.log.recorder import Sink
from reverie.machine.installation import install_command

EXTRAS = {"tensorboard": "tensorboard", "wandb": "wandb"}


@dataclass(frozen=True)
class RunInfo:
    """Facts about the run, for its sinks."""

    folder: Path
    env_steps: int = 0
    """Env steps so far. The files hold records up to here."""
    updates: int = 0
    """Updates so far."""
    counter: str = "env_steps"
    """The x axis of curves: ``updates`` in runs that only learn from stored data."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole config as plain data."""


def make_loggers(configs: Sequence[ComponentConfig], run: RunInfo, warn: Callable[[str], None]) -> list[GuardedSink]:
    """The sinks, each guarded. A sink that cannot start for reasons outside of the config is left out."""
    made = []
    for config in configs:
        try:
            sink = _make_logger(_kept_here(config, warn), run)
        except ReverieError:
            raise
        except Exception as error:
            warn(f"{config.kind} could not start and is left out ({describe(error)}). metrics.jsonl is still written.")
            continue
        made.append(GuardedSink(config.kind, sink, warn))
    return made


def sends_elsewhere(config: ComponentConfig) -> bool:
    """Whether this built-in sink sends data to a server."""
    return config.kind == "wandb" and getattr(config, "mode", None) not in ("offline", "disabled")


def _kept_here(config: ComponentConfig, warn: Callable[[str], None]) -> ComponentConfig:
    """Keep W&B offline for a run made by somebody else, unless it is trusted: its config must not send data."""
    if registry.is_own() or not sends_elsewhere(config):
        return config
    warn(
        "Nothing is sent to W&B: this run was not made here, so log.wandb needs --trust. "
        "`wandb sync` can send it later."
    )
    return config.model_copy(update={"mode": "offline"})


def _make_logger(config: ComponentConfig, run: RunInfo) -> Sink:
    """Build the sink, or say how to install the package that it needs."""
    try:
        sink: Sink = registry.load("logger", config.kind)(config, run)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(config.kind)
        fix = install_command(extra) if extra else f"pip install {error.name}"
        raise ConfigError(f"log.{config.kind} needs the package {error.name}, which is not installed.", fix) from error
    return sink
