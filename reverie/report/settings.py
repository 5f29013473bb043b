"""The recorded settings of a run: values, their sources, and differences from the preset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.config.path_names import PathNames
from reverie.config.secrets import hide, hide_in_tree
from reverie.config.tree import Tree, get, leaves, split_path
from reverie.config.yaml_text import load_yaml
from reverie.core.errors import ConfigError
from reverie.core.schedule import shorten
from reverie.report.safe_files import Lines, read_bytes, read_mapping

CONFIG, SOURCES, RESUMES = "config.yaml", "sources.json", "resumes.jsonl"
LARGEST_CONFIG = 256 << 10
MOST_SETTINGS = 2000
UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Setting:
    """One value of config.yaml."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Difference:
    """A value that differs from the preset, or that a resume changed."""

    key: str
    before: Any
    value: Any
    source: str


@dataclass
class Settings:
    """Everything about a run's config."""

    tree: Tree = field(default_factory=dict)
    values: list[Setting] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    has_sources: bool = False

    def text(self, *path: str) -> str:
        """A value as text. Empty if it is missing."""
        value = get(self.tree, path)
        return "" if value is None or isinstance(value, dict | list) else str(value)

    def leaves(self) -> dict[str, Any]:
        return {setting.key: setting.value for setting in self.values}


def read_settings(run: Path, problems: list[str]) -> Settings:
    """The settings of a run folder. Notes in ``problems`` what is missing."""
    tree = hide_in_tree(_read_tree(run, problems))  # reports are passed around
    recorded = read_mapping(run, SOURCES, problems)
    sources, preset = _mapping(recorded.get("sources")), _mapping(recorded.get("preset"))
    horizon = tree.get("horizon_steps")
    names = PathNames(tree)
    sources, preset = _by_name(sources, names), _by_name(preset, names)
    values = [
        Setting(key := names.shown(path), shorten(value, horizon), str(sources.get(key, UNKNOWN)))
        for path, value in leaves(tree, whole_schedules=True)
    ][:MOST_SETTINGS]
    known = {setting.key: setting for setting in values}
    differences = [
        Difference(key, before, known[key].value, known[key].source) for key, before in preset.items() if key in known
    ]
    return Settings(tree, values, [*differences, *_changes(run, problems)], bool(sources))


def _by_name(recorded: dict[str, Any], names: PathNames) -> dict[str, Any]:
    """Recorded keys with phases and hooks by name. Older runs recorded their numbers."""
    return {names.shown(names.find(split_path(key))): value for key, value in recorded.items()}


def show_value(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show_value, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _read_tree(run: Path, problems: list[str]) -> Tree:
    data = read_bytes(run, CONFIG, problems, LARGEST_CONFIG)
    if data is None:
        problems.append(f"{CONFIG} is missing: env, algorithm and settings are unknown.")
        return {}
    try:
        tree = load_yaml(data.decode("utf-8", "replace"), CONFIG)
    except (ConfigError, ValueError) as error:
        problems.append(f"{CONFIG} is damaged: {str(error).splitlines()[0]}")
        return {}
    return _mapping(tree)


def _changes(run: Path, problems: list[str]) -> list[Difference]:
    """The settings that resumes changed, in order."""
    changes: list[Difference] = []
    for entry in Lines(run, RESUMES, problems):
        items = entry.get("changes")
        for change in items if isinstance(items, list) else []:
            if isinstance(change, dict) and len(changes) < MOST_SETTINGS:
                source, key = f"resume {entry.get('number', '')}".strip(), str(change.get("key"))
                before, value = (hide(key, change.get(side)) for side in ("old", "new"))
                changes.append(Difference(key, before, value, source))
    return changes


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
