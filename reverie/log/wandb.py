"""The sink for Weights & Biases, and the overrides of a run that was started by a W&B sweep agent.

The id of the W&B run is kept in the run folder, so a resume continues the same W&B run. Sent records cannot be deleted:
a resume sends the records since its checkpoint a second time, with equal numbers.
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
    """Sends the run to Weights & Biases, which reads settings that are left out from its environment variables."""

    kind: str = "wandb"
    project: str | None = "reverie"
    """The W&B project."""
    entity: str | None = None
    """The W&B user or team."""
    mode: Literal["online", "offline", "disabled"] | None = None
    """offline keeps everything in the run folder until you call `wandb sync`."""
    group: str | None = None
    """Name that groups the runs of one experiment."""
    tags: tuple[str, ...] = ()
    """Tags of the W&B run."""


class WandbSink:
    """Sends metrics, scores, alerts and media, over env steps, or over updates in runs without env steps."""

    Config = WandbConfig

    def __init__(self, config: WandbConfig, run: RunInfo) -> None:
        if config.mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline includes W&B's crash reports
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
            self._run.log({self._counter: record[self._counter], record["name"]: self._media(kind, record)})

    def close(self) -> None:
        self._run.finish()

    def _media(self, kind: str, record: Mapping[str, Any]) -> Any:
        if kind == "histogram":
            return self._wandb.Histogram(record["values"])
        if kind == "figure":
            return self._wandb.Image(record["image"])
        return self._wandb.Video(io.BytesIO(encode_gif(record["frames"], record["fps"])), format="gif")


def _run_id(folder: Path) -> str | None:
    """The id of the W&B run, kept in the run folder. None if a sweep agent has chosen the id."""
    if os.environ.get("WANDB_RUN_ID"):
        return None
    path = folder / ID_FILE
    with suppress(OSError, ValueError):
        if re.fullmatch(r"[a-z0-9]{1,64}", known := documents.read_text(path).strip()):
            return known
    made = secrets.token_hex(4)  # not from the run's random streams
    path.write_text(made + "\n")
    return made


def sweep_overrides(environment: Mapping[str, str]) -> list[str]:
    """The parameters that a W&B sweep agent has chosen, as ``key=value`` overrides. Empty without an agent."""
    path = environment.get("WANDB_SWEEP_PARAM_PATH")
    if not environment.get("WANDB_SWEEP_ID") or not path:
        return []
    import yaml

    try:
        chosen = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return [f"{key}={json.dumps(entry['value'])}" for key, entry in chosen.items() if key != "wandb_version"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"The parameters of the W&B sweep agent are in '{path}', which cannot be read: {error}",
            "Start the agent again, or unset WANDB_SWEEP_ID to train without it.",
        ) from error
