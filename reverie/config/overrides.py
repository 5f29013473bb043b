"""Overrides of phases: settings that are read at each use, and settings that envs are rebuilt from."""

from __future__ import annotations

import copy
from typing import Any

from reverie.config.fields import default_of, field_shape
from reverie.config.files import config_to_tree
from reverie.config.phases import Phase
from reverie.config.schema import RunConfig
from reverie.config.tree import put, split_path
from reverie.config.validate import load_config
from reverie.core.errors import nearest
from reverie.envs.config import EnvConfig

ALLOWED = "Allowed are env.* (but num_envs) and plain numbers and switches of algorithm.*"


def phase_config(config: RunConfig, phase: Phase) -> RunConfig:
    """The config that holds during a phase."""
    if not phase.overrides:
        return config
    tree = copy.deepcopy(config_to_tree(config))
    for key, value in phase.overrides.items():
        put(tree, split_path(key), copy.deepcopy(value))
    return load_config(tree, dict.fromkeys(phase.overrides, f"overrides of phase '{phase.name}'"))


def refusal(config: RunConfig, key: str) -> tuple[str, str] | None:
    """Why a phase may not set a key, and what to do instead; None if it may."""
    group, _, rest = key.partition(".")
    name = rest.split(".")[0]
    known: dict[str, Any] = {
        "env": EnvConfig.model_fields,
        "algorithm": type(config.algorithm).model_fields,
    }
    if group not in known or not rest:
        return f"a phase cannot set '{key}'", f"{ALLOWED}."
    if name not in known[group]:
        return f"there is no key '{key}'", nearest(name, known[group])
    if key == "env.num_envs":
        return "a phase cannot change the number of envs", "Set env.num_envs for the whole run."
    is_built_once = name in type(config.algorithm).built_once or not _is_plain(known[group][name], name)
    if group == "algorithm" and is_built_once:
        return f"a phase cannot change '{key}', which is built once", f"{ALLOWED}."
    return None


def _is_plain(field: Any, name: str) -> bool:
    """Whether a setting of an algorithm is a number, a switch or a schedule, not the structure of a part."""
    return name != "kind" and field_shape(field).form == "leaf" and not isinstance(default_of(field), (list, str))
