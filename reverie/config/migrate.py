"""Migrate old config files to the current layout: one small function per version, applied in turn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from reverie.config.schema import SCHEMA_VERSION
from reverie.config.tree import Path, Tree, get, join_path, put, split_path
from reverie.core.errors import ConfigError

Migration = Callable[[Tree], list[str]]
"""Changes a tree in place to the next version and returns a note for every change."""


def migrate(tree: Tree) -> tuple[Tree, list[str]]:
    """The tree in the current layout, and a note for every change. A tree without a version has version 0."""
    version = tree.get("schema_version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ConfigError(f"schema_version = {version!r} is not a version.", f"It should be {SCHEMA_VERSION}.")
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"This config was made by a newer Reverie (layout {version}, known here: {SCHEMA_VERSION}).",
            "Update Reverie to read it.",
        )
    tree = copy.deepcopy(tree)
    notes: list[str] = []
    for step in range(version, SCHEMA_VERSION):
        notes += MIGRATIONS[step](tree)
        tree["schema_version"] = step + 1
    return tree, notes


def rename(tree: Tree, old: str, new: str) -> list[str]:
    """Move a value to its new key; a key that has both keeps the new one."""
    old_path, new_path = split_path(old), split_path(new)
    if not _has(tree, old_path):
        return []
    value = get(tree, old_path[:-1]).pop(old_path[-1])
    if _has(tree, new_path):
        return [f"{join_path(old_path)} was dropped: {join_path(new_path)} is set as well."]
    put(tree, new_path, value)
    return [f"{join_path(old_path)} is now called {join_path(new_path)}."]


def _has(tree: Tree, path: Path) -> bool:
    parent = get(tree, path[:-1])
    return isinstance(parent, dict) and path[-1] in parent


def _from_0(tree: Tree) -> list[str]:
    """Version 0 had no version number and a shorter name for the learning rate."""
    return rename(tree, "algorithm.lr", "algorithm.learning_rate")


def _from_1(tree: Tree) -> list[str]:
    """Version 1 had only float32. Complete configs keep it, because auto might choose another precision."""
    if isinstance(tree.get("backend"), dict):
        tree["backend"].setdefault("precision", "float32")
    return []


def _from_2(tree: Tree) -> list[str]:
    """Version 2 had a target entropy of 0.98 of the maximum for discrete actions. Its runs keep that target."""
    temperature = get(tree, ("algorithm", "temperature"))
    if isinstance(temperature, dict) and temperature.get("kind") == "learned":
        temperature.setdefault("target_share", 0.98)
    return []


def _from_3(tree: Tree) -> list[str]:
    """Version 3 had only torch's own matmuls. Complete configs keep them."""
    if isinstance(tree.get("backend"), dict):
        tree["backend"].setdefault("products", "torch")
    return []


_DREAMER_KEYS = {
    "slow_rate": "target_rate",
    "slow_every": "target_every",
    "slow_weight": "target_regulariser",
    "slow_targets": "bootstrap_from_target",
    "dynamics_share": "reparameterised_weight",
    "explore_noise": "exploration_noise",
    "images_start": "image_bias_init",
}


_DREAMER_METRICS = {
    "advantage_size": "advantage_magnitude", "dream_reward": "imagined_reward", "dream_return": "imagined_return",
    "dream_continuation": "imagined_continuation", "dream_value": "imagined_value",
}  # fmt: skip


def _from_4(tree: Tree) -> list[str]:
    """Version 4 had other names for some settings and metrics of Dreamer, also in phases."""
    keys = {f"algorithm.{old}": f"algorithm.{new}" for old, new in _DREAMER_KEYS.items()}
    notes = [note for old, new in keys.items() for note in rename(tree, old, new)]
    for phase in _all_phases(tree.get("phases")):
        if isinstance(phase.get("overrides"), dict):
            phase["overrides"] = {keys.get(key, key): value for key, value in phase["overrides"].items()}
        if get(tree, ("algorithm", "kind")) == "dreamer" and isinstance(phase.get("until"), dict):
            notes += _rename_metric(phase["until"])
    return notes


def _rename_metric(until: Tree) -> list[str]:
    old = str(until.get("metric"))
    hook, slash, metric = old.rpartition("/")
    if metric not in _DREAMER_METRICS:
        return []
    until["metric"] = f"{hook}{slash}{_DREAMER_METRICS[metric]}"
    return [f"The metric {old} is now called {until['metric']}."]


def _all_phases(phases: object) -> Iterator[Tree]:
    """Phases and their inner phases."""
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, dict):
            yield phase
            yield from _all_phases(phase.get("phases"))


def _from_5(tree: Tree) -> list[str]:
    """Version 5 called the weights of a mixture's samplers shares."""
    buffers = tree.get("buffers")
    samplers = [get(buffers, (name, "sampler")) for name in buffers] if isinstance(buffers, dict) else []
    return _rename_shares(samplers)


def _rename_shares(samplers: list[object]) -> list[str]:
    notes: list[str] = []
    for sampler in samplers:
        for part in sampler.get("parts") or () if isinstance(sampler, dict) else ():
            notes += rename(part, "share", "weight") + _rename_shares([part.get("sampler")])
    return notes


def _from_6(tree: Tree) -> list[str]:
    """Version 6 called the library for matmuls ``products``."""
    return rename(tree, "backend.products", "backend.matmul")


def _from_7(tree: Tree) -> list[str]:
    """Version 7 did not flush denormals. Complete configs keep them, so their runs continue bit for bit."""
    if isinstance(tree.get("backend"), dict):
        tree["backend"].setdefault("flush_denormals", False)
    return []


def _from_8(tree: Tree) -> list[str]:
    """Version 8 had only numpy's own matmuls in the numpy engine. Complete configs keep them."""
    if isinstance(tree.get("backend"), dict):
        tree["backend"].setdefault("numpy_matmul", "numpy")
    return []


MIGRATIONS: dict[int, Migration] = dict(
    enumerate((_from_0, _from_1, _from_2, _from_3, _from_4, _from_5, _from_6, _from_7, _from_8))
)
"""The function that migrates from each version to the next."""
