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
from reverie.envs.suites import SUITES, find_suite, register_suites


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_envs(filter: str = "") -> list[EnvEntry]:
    """Presets first, then the other ids. ``filter`` keeps envs whose name, id, suite or summary contains it."""
    register_suites()
    presets = [_entry(name, "preset", find_in_folder("env", name)) for name in env_names()]
    covered = {entry.name for entry in presets}
    of_suites = {suite.name: find_in_folder("suite", suite.name) for suite in SUITES}
    others = [
        _entry(env_id, "gymnasium", of_suites.get(_suite_name(env_id)))
        for env_id in sorted(gym.registry)
        if env_id not in covered
    ]
    return [entry for entry in presets + others if filter.lower() in _searched_text(entry)]


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
    text = config.spec
    return EnvEntry(
        name=name,
        id=config.id,
        source=source,
        suite=_suite_name(config.id),
        summary=text.summary,
        observation=text.observation,
        actions=text.actions,
        reward=text.reward,
        solved_at=text.solved_at,
        max_episode_steps=config.max_episode_steps or _registered_limit(config.id),
        variants=tuple(preset.body.get("variants", {})) if preset else (),
    )


def _env_section(name: str, preset: Preset | None) -> dict[str, Any]:
    return {"id": name, **(preset.body.get("env", {}) if preset else {})}


def _suite_name(env_id: str) -> str:
    suite = find_suite(env_id)
    return "" if suite is None else suite.name


def _registered_limit(env_id: str) -> int | None:
    return gym.registry[env_id].max_episode_steps if env_id in gym.registry else None
