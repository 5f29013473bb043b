"""Datasets as sources of buffers: opened, checked against the env, and split into training and held-out episodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reverie.core.errors import ConfigError
from reverie.core.rng import derive_seed
from reverie.core.types import ARRIVING, Row
from reverie.data.dataset import DESCRIPTION, read_dataset
from reverie.log.progress import progress

if TYPE_CHECKING:
    from reverie.core.specs import ActionSpec, Specs

MINARI = "minari:"


class Source(Protocol):
    """A dataset of ours or of Minari."""

    @property
    def specs(self) -> Specs: ...

    @property
    def num_episodes(self) -> int: ...

    def episodes(self) -> Iterator[Row]: ...


def open_source(text: str) -> Source:
    """Open the dataset that a config's ``source`` names: a folder (ours or Minari's) or ``minari:NAME``."""
    from reverie.data.minari_format import MinariSource, find_minari, is_minari

    if text.startswith(MINARI):
        name = text.removeprefix(MINARI)
        return MinariSource(find_minari(name), name)
    folder = Path(text)
    if (folder / DESCRIPTION).exists():
        return read_dataset(folder)
    if is_minari(folder):
        return MinariSource(folder, text)
    raise ConfigError(
        f"'{text}' does not contain a dataset.",
        "Export one: reverie data export @last --out DIR. For installed Minari datasets write minari:NAME.",
    )


def check_fits(source: Source, specs: Specs, text: str) -> None:
    """Raise ConfigError if the observations or actions of the data differ from those of the env."""
    theirs = source.specs
    for key in sorted({*theirs.observations, *specs.observations}):
        stored, wanted = theirs.observations.get(key), specs.observations.get(key)
        if stored is None or wanted is None or (stored.shape, stored.dtype) != (wanted.shape, wanted.dtype):
            raise ConfigError(
                f"The data in '{text}' do not fit the env: '{key}' is {_describe(stored)} in the data and "
                f"{_describe(wanted)} in the env.",
                "Use the env and the wrappers that the data were recorded with.",
            )
    if _action_layout(theirs.action) != _action_layout(specs.action):
        raise ConfigError(
            f"The data in '{text}' do not fit the env: actions are {theirs.action.kind} of shape "
            f"{theirs.action.shape} in the data and {specs.action.kind} of shape {specs.action.shape} in the env.",
            "Use the env and the wrappers that the data were recorded with.",
        )


def _action_layout(action: ActionSpec) -> tuple[Any, ...]:
    """What must be equal for actions to mean the same."""
    return action.kind, action.shape, action.classes, *map(_action_layout, action.parts)


def read_episodes(text: str, specs: Specs, holdout: float, held_out: bool) -> Iterator[Row]:
    """The held-out episodes, or all others, with the columns that a collector would store."""
    source = open_source(text)
    check_fits(source, specs, text)
    with progress(f"reading {text}"):
        for number, episode in enumerate(source.episodes()):
            if is_held_out(number, holdout) == held_out:
                logs = [key for key in episode if key.startswith("log/")]
                yield {key: episode[key] for key in (*specs.observations, *ARRIVING, "action", *logs)}


def is_held_out(number: int, holdout: float) -> bool:
    """Whether an episode is held out. Depends only on its number, so all runs hold out the same episodes."""
    return _threshold(number) < holdout


def check_holdout(source: Source, holdout: float, key: str) -> None:
    """Raise ConfigError if this fraction holds out none of the episodes, or all."""
    thresholds = sorted(map(_threshold, range(source.num_episodes)))
    held_out = sum(threshold < holdout for threshold in thresholds)
    if 0 < held_out < len(thresholds):
        return
    enough = f"{math.floor(100 * thresholds[0]) / 100 + 0.01:.2f} or more"
    if held_out:
        enough = f"{math.floor(100 * thresholds[-1]) / 100:.2f} or less"
    raise ConfigError(
        f"{held_out} of {len(thresholds)} episodes are held out with {key}={holdout}.",
        f"Set {key}={enough}, or store more episodes." if len(thresholds) > 1 else "Store more episodes.",
    )


def _threshold(number: int) -> float:
    """The fraction, between 0 and 1, above which this episode is held out."""
    return derive_seed("holdout", number) / (1 << 31)


def _describe(spec: object) -> str:
    return "missing" if spec is None else f"{spec.dtype} of shape {spec.shape}"  # type: ignore[attr-defined]
