"""``sources.json``: the source of each value in a run's config, and the values that env and variant alone would give.

It is written when the run is created, while the presets are at hand. A report can read it on any machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reverie.config.compose import DECIDED, Composed, compose, split_spec
from reverie.config.explain import ABSENT, diff
from reverie.config.fields import fill_defaults
from reverie.config.files import config_to_tree
from reverie.config.path_names import PathNames
from reverie.config.schema import RunConfig
from reverie.config.tree import get, leaves, split_path
from reverie.config.typed import TYPED
from reverie.config.validate import source_of
from reverie.store.run_folder import write_json

BUDGET = "--steps"
CHOSEN = (*TYPED, "preset ")
"""Prefixes of sources other than the schema and the files of env and variant."""


def write_sources(run: Path, spec: str, config: RunConfig, composed: Composed) -> None:
    """Record the sources of all values beside config.yaml."""
    preset = preset_differences(spec, composed)
    tree = config_to_tree(config)
    names = PathNames(tree)
    sources = {
        (key := names.shown(path)): _source(path, key, value, composed)
        for path, value in leaves(tree, whole_schedules=True)
    }
    sources |= {key: BUDGET for key in preset if not sources.get(key, "").startswith((*CHOSEN, DECIDED))}
    write_json(run / "sources.json", {"sources": sources, "preset": preset})


def run_name(spec: str, config: RunConfig, composed: Composed) -> str:
    """``<env>:<variant>`` for the run's name. If the user chose another algorithm, its name replaces the variant."""
    is_chosen = source_of(composed.sources, "algorithm.kind").startswith(CHOSEN)
    return f"{split_spec(spec)[0]}:{config.algorithm.kind.rpartition('.')[2]}" if is_chosen else spec


def preset_differences(spec: str, composed: Composed) -> dict[str, Any]:
    """The values of ``<env>:<variant>`` alone where the run differs. The seed does not count."""
    differences = diff(fill_defaults(compose(spec).tree), fill_defaults(composed.tree))
    return {
        entry.key: entry.left for entry in differences if entry.left != ABSENT and split_path(entry.key) != ("seed",)
    }


def _source(path: tuple[str, ...], key: str, value: Any, composed: Composed) -> str:
    """The source of a value. A value that was left open (0, null, auto) was resolved when the run was created."""
    given = get(composed.tree, path)
    source = source_of(composed.sources, key).removeprefix("presets/")
    return DECIDED if given != value and given in (None, 0, "auto") else source
