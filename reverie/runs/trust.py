"""Which names of a run's config are trusted without ``--trust``: those in configs that this user signed.

A config can name code by dotted paths, and servers to send data to. In a run that this user created, these names are
the user's own choice. The signature (:mod:`reverie.store.signature`) covers only configs, so only names in a signed
config are trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from reverie.config.tree import Tree, join_path, leaves
from reverie.config.yaml_text import load_yaml
from reverie.core.errors import ConfigError
from reverie.envs.make import is_dotted
from reverie.store.signature import signed_configs

NAMES_CODE = ("kind", "controller")


def is_made_here(run: Path) -> bool:
    """Whether the run's config is unchanged since this user made it."""
    return "config.yaml" in signed_configs(run) and not _is_inside(run)


def own_names(run: Path) -> frozenset[str] | None:
    """Names from outside of Reverie in configs that this user made. None if somebody else made the run's config."""
    configs = signed_configs(run)
    if "config.yaml" not in configs or _is_inside(run):
        return None
    return frozenset().union(*map(_names_in, configs.values()))


@lru_cache(maxsize=128)
def _names_in(data: bytes) -> frozenset[str]:
    """The names in one config. Cached: a run has a config per resume, and parsing one takes 50 ms."""
    with suppress(ConfigError, UnicodeDecodeError):  # reported when the config is read
        tree = load_yaml(data.decode(), "config.yaml")
        return foreign_names(tree) if isinstance(tree, dict) else frozenset()
    return frozenset()


def _is_inside(run: Path) -> bool:
    """Whether the current folder is inside the run. Names could then load unsigned modules from the run folder."""
    try:
        return Path.cwd().resolve().is_relative_to(run.resolve())
    except OSError:  # the current folder is gone
        return False


def foreign_names(tree: Tree) -> frozenset[str]:
    """The classes and envs in a config that are outside of Reverie, in components, controllers and phases."""
    return frozenset(_foreign_names(tree))


def _foreign_names(tree: Tree) -> Iterator[str]:
    for path, value in leaves(tree):
        key = join_path(path)
        if not isinstance(value, str) or key.startswith("env.kwargs."):
            continue
        is_env = key.endswith("env.id") and (":" in value or is_dotted(value))
        if is_env or (key.rpartition(".")[2] in NAMES_CODE and "." in value):
            yield value
