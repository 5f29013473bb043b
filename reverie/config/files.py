"""Read and write config.yaml, which alone rebuilds the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reverie.config.migrate import migrate
from reverie.config.schema import RunConfig
from reverie.config.tree import Tree
from reverie.config.validate import load_config
from reverie.config.yaml_text import dump_yaml, load_yaml
from reverie.core.errors import ConfigError
from reverie.store import documents


def config_to_tree(config: RunConfig) -> Tree:
    """A config as plain nested data, complete and in the order of the schema."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    return tree


def config_to_yaml(config: RunConfig) -> str:
    """A config as text. :func:`read_config` returns an equal one."""
    return dump_yaml(config_to_tree(config))


def read_tree(path: Path) -> Tree:
    """The values in a config file, migrated to the current layout but not yet checked."""
    try:
        text = documents.read_text(path)
    except ValueError as error:
        raise ConfigError(f"Cannot read the config file '{path}': {error}.", "It should be plain YAML.") from error
    except OSError as error:
        fix = "Check its name and permissions."
        raise ConfigError(f"Cannot read the config file '{path}': {error.strerror}.", fix) from error
    tree = load_yaml(text, str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"'{path}' holds no config.", "It should be the config.yaml of a run folder.")
    return migrate(tree)[0]


def read_config(path: Path) -> RunConfig:
    """The config in a file: migrated if it is old, then checked."""
    tree = read_tree(path)
    return load_config(tree, dict.fromkeys(tree, str(path)))
