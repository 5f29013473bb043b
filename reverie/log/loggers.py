"""Which sinks a run has besides JSONL and the console: CSV, TensorBoard, W&B and classes of one's own.

Each is a component of the group ``logger``: a class with a nested ``Config`` that is built as ``Class(config, run)``
and has ``write(kind, record)`` and ``close()``.
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

EXTRAS = {"tensorboard": "tensorboard", "wandb": "wandb"}


@dataclass(frozen=True)
class RunInfo:
    """What a sink may want to know of its run."""

    folder: Path
    env_steps: int = 0
    """Where the run stands: files hold what was recorded up to here."""
    updates: int = 0
    """The same in updates."""
    counter: str = "env_steps"
    """What curves go over: ``updates`` where a run only learns from stored data."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole config as plain data."""


def make_loggers(configs: Sequence[ComponentConfig], run: RunInfo, warn: Callable[[str], None]) -> list[GuardedSink]:
    """The sinks, each guarded; one that cannot start for reasons outside of the config is left out."""
    made = []
    for config in configs:
        try:
            sink = _make_logger(_kept_here(config, warn), run)
        except ReverieError:
            raise
        except Exception as error:
            warn(f"{config.kind} could not start and is left out ({describe(error)}); metrics.jsonl goes on")
            continue
        made.append(GuardedSink(config.kind, sink, warn))
    return made


def sends_elsewhere(config: ComponentConfig) -> bool:
    """Whether this sink of ours talks to a server."""
    return config.kind == "wandb" and getattr(config, "mode", None) not in ("offline", "disabled")


def _kept_here(config: ComponentConfig, warn: Callable[[str], None]) -> ComponentConfig:
    """A run folder must not make the machine talk to anybody: W&B of a stranger's run stays offline unless trusted."""
    if registry.is_own() or not sends_elsewhere(config):
        return config
    warn(
        "Nothing is sent to W&B: this run was not made here, so log.wandb counts only with --trust. "
        "`wandb sync` sends it later."
    )
    return config.model_copy(update={"mode": "offline"})


def _make_logger(config: ComponentConfig, run: RunInfo) -> Sink:
    """The sink, or how to install what it needs."""
    try:
        sink: Sink = registry.load("logger", config.kind)(config, run)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(config.kind)
        fix = f'pip install "reverie[{extra}]"' if extra else f"pip install {error.name}"
        raise ConfigError(f"log.{config.kind} needs a package that is missing: {error.name}.", fix) from error
    return sink
