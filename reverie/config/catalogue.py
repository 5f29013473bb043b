"""The catalogue of envs: Reverie's presets, and every id in Gymnasium's registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import gymnasium as gym

from reverie.config.compose import override_assignments
from reverie.config.presets import Preset, env_names, find_env_preset, find_in_folder
from reverie.config.tree import put
from reverie.config.validate import load_part
from reverie.envs.config import EnvConfig
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES, add_installed, find_suite, register_env, register_suites


@dataclass(frozen=True)
class EnvEntry:
    """An env in the catalogue. ``variants`` may follow the colon in ``reverie train CartPole-v1:ppo``."""

    name: str
    id: str
    source: Literal["preset", "gymnasium"]
    suite: str = ""
    summary: str = ""
    observation: str = ""
    actions: str = ""
    reward: str = ""
    solved_at: float | None = None
    max_episode_steps: int | None = None
    variants: tuple[str, ...] = ()
    install: str = ""
    """The command that installs what the env needs. Empty if it is installed."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SuiteEntry:
    """A suite in the catalogue."""

    name: str
    title: str
    ids: tuple[str, ...]
    variants: tuple[str, ...]
    install: str
    """The command that installs it. Empty if it is installed."""


def list_suites(filter: str = "") -> list[SuiteEntry]:
    """The suites, or those that a filter of :func:`list_envs` names."""
    add_installed()
    found = [suite for suite in SUITES if not filter or _is_named(suite, filter.lower())]
    return [
        SuiteEntry(
            suite.name, suite.title, suite.id_forms or (suite.example,), _variants(find_in_folder("suite", suite.name)),
            "" if suite.is_installed else suite.install_hint,
        )
        for suite in found
    ]  # fmt: skip


def list_envs(filter: str = "", every_id: bool = False) -> list[EnvEntry]:
    """Presets first, then the other ids. ``filter`` keeps envs whose name, id, suite or summary contains it.

    Many suites register their ids only on demand. They are listed if the filter names the suite or the beginning of its
    ids, or with ``every_id``. Of a suite that is not installed, only the example is known.
    """
    register_suites()
    presets = [_entry(name, "preset", find_in_folder("env", name)) for name in env_names()]
    covered = {entry.name for entry in presets}
    of_suites = {suite.name: find_in_folder("suite", suite.name) for suite in SUITES}
    asked = [suite for suite in SUITES if every_id or _is_named(suite, filter.lower())]
    known = {env_id for suite in asked for env_id in _ids_of(suite)}
    others = [
        _entry(env_id, "gymnasium", of_suites.get(_suite_name(env_id)))
        for env_id in sorted({*gym.registry, *known} - covered)
    ]
    return [entry for entry in presets + others if filter.lower() in _searched_text(entry)]


def find_entry(name: str) -> EnvEntry:
    """The entry of one env, whether or not it exists."""
    register_suites()
    source: Literal["preset", "gymnasium"] = "gymnasium" if find_in_folder("env", name) is None else "preset"
    return _entry(name, source, find_env_preset(name))


def example_entries() -> list[EnvEntry]:
    """The entry of the example of each suite."""
    add_installed()
    return [find_entry(suite.example) for suite in SUITES if suite.example]


def _is_named(suite: Suite, word: str) -> bool:
    """Whether a word (lower case) is part of a suite's name or title, or the beginning of its ids."""
    starts = [prefix.lower() for prefix in suite.prefixes]
    is_id = any(start.startswith(word) or word.startswith(start) for start in starts)
    return bool(word) and (word in f"{suite.name} {suite.title.lower()}" or is_id)


def _ids_of(suite: Suite) -> list[str]:
    """All ids of a suite. Imports its packages."""
    if not suite.is_installed:
        return [suite.example]
    if suite.env_ids is not None:
        return list(suite.env_ids())
    if suite.register is not None and suite.example:
        register_env(suite.example)
    return []  # all in the registry


def _searched_text(entry: EnvEntry) -> str:
    return f"{entry.name} {entry.id} {entry.suite} {entry.summary}".lower()


def find_env_config(name: str, overrides: Sequence[str] = ()) -> EnvConfig:
    """The ``env`` section of a preset, or a plain env with that id, with ``env.key=value`` overrides applied."""
    tree: dict[str, Any] = {"env": _env_section(name, find_env_preset(name))}
    for path, value in override_assignments(overrides):
        put(tree, path, value)
    return load_part(EnvConfig, tree["env"], ("env",))


def _entry(name: str, source: Literal["preset", "gymnasium"], preset: Preset | None) -> EnvEntry:
    config = load_part(EnvConfig, _env_section(name, preset), ("env",))
    text, suite = config.spec, find_suite(config.id)
    return EnvEntry(
        name=name,
        id=config.id,
        source=source,
        suite="" if suite is None else suite.name,
        summary=text.summary,
        observation=text.observation,
        actions=text.actions,
        reward=text.reward,
        solved_at=text.solved_at,
        max_episode_steps=config.max_episode_steps or _registered_limit(config.id),
        variants=_variants(preset),
        install="" if suite is None or suite.is_installed else suite.install_hint,
    )


def _variants(preset: Preset | None) -> tuple[str, ...]:
    return tuple(preset.body.get("variants", {})) if preset else ()


def _env_section(name: str, preset: Preset | None) -> dict[str, Any]:
    return {"id": name, **(preset.body.get("env", {}) if preset else {})}


def _suite_name(env_id: str) -> str:
    suite = find_suite(env_id)
    return "" if suite is None else suite.name


def _registered_limit(env_id: str) -> int | None:
    return gym.registry[env_id].max_episode_steps if env_id in gym.registry else None
