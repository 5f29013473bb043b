"""Weights & Biases as a sink, and the overrides of a run that a W&B sweep agent has started.

The run's id is kept in its folder, so a resume goes on in the same W&B run. What was sent cannot be taken back: after a
resume the stretch since the checkpoint is sent a second time, with the same numbers.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.log.loggers import RunInfo
from reverie.log.media import encode_gif
from reverie.log.sinks import ALERTS
from reverie.store import documents

ID_FILE = "wandb_id.txt"
NOT_CURVES = ("phase", "time")


class WandbConfig(ComponentConfig):
    """Where a run is sent. What is left out, W&B takes from its own settings and environment variables."""

    kind: str = "wandb"
    project: str | None = "reverie"
    """The W&B project."""
    entity: str | None = None
    """The user or team."""
    mode: Literal["online", "offline", "disabled"] | None = None
    """offline keeps everything in the run folder until `wandb sync` is called."""
    group: str | None = None
    """Runs of one experiment."""
    tags: tuple[str, ...] = ()
    """Words to find the run by."""


class WandbSink:
    """Sends metrics, scores, alerts and pictures, all over env steps, or updates without them."""

    Config = WandbConfig

    def __init__(self, config: WandbConfig, run: RunInfo) -> None:
        if config.mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline is meant for that as well
        import wandb

        self._wandb = wandb
        self._run = wandb.init(
            project=config.project, entity=config.entity, mode=config.mode, group=config.group,
            tags=list(config.tags), name=run.folder.name, id=_run_id(run.folder),
            resume="allow", dir=str(run.folder), config=dict(run.config),
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self._counter = run.counter
        self._run.define_metric(run.counter)
        self._run.define_metric("*", step_metric=run.counter)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ALERTS:
            self._run.alert(title=record["rule"], text=record["message"])
        elif kind == "scores":
            named = {"episode/return": record["return"], "episode/length": record["length"]}
            self._run.log({"env_steps": record["env_steps"], **named})
        elif kind in ("metrics", "machine"):
            self._run.log({key: value for key, value in record.items() if key not in NOT_CURVES})
        elif kind in ("histogram", "video", "figure"):
            self._run.log({self._counter: record[self._counter], record["name"]: self._picture(kind, record)})

    def close(self) -> None:
        self._run.finish()

    def _picture(self, kind: str, record: Mapping[str, Any]) -> Any:
        if kind == "histogram":
            return self._wandb.Histogram(record["values"])
        if kind == "figure":
            return self._wandb.Image(record["image"])
        return self._wandb.Video(io.BytesIO(encode_gif(record["frames"], record["fps"])), format="gif")


def _run_id(folder: Path) -> str | None:
    """The id that the run has had since its first start; an agent has chosen one already."""
    if os.environ.get("WANDB_RUN_ID"):
        return None
    path = folder / ID_FILE
    with suppress(OSError, ValueError):
        if re.fullmatch(r"[a-z0-9]{1,64}", known := documents.read_text(path).strip()):
            return known
    made = secrets.token_hex(4)  # a name, not a draw of the run
    path.write_text(made + "\n")
    return made


def sweep_overrides(environment: Mapping[str, str]) -> list[str]:
    """What a W&B sweep agent has chosen for this run, as ``key=value`` words; nothing if there is no agent."""
    path = environment.get("WANDB_SWEEP_PARAM_PATH")
    if not environment.get("WANDB_SWEEP_ID") or not path:
        return []
    import yaml

    try:
        chosen = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return [f"{key}={json.dumps(entry['value'])}" for key, entry in chosen.items() if key != "wandb_version"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"The W&B agent names its choices in '{path}', which cannot be read: {error}",
            "Start the agent again, or unset WANDB_SWEEP_ID to train without it.",
        ) from error
