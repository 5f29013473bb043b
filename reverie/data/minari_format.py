"""Reads and writes Minari datasets (https://minari.farama.org, extra ``minari``).

Minari stores observations and actions in the env's own spaces. Columns of rows that Minari does not have, among them
the agent's scaled action, are stored in the infos, so a dataset that we wrote is read back exactly. Other datasets have
no such columns: their actions are mapped to the agent's range.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError, RunError
from reverie.core.specs import ActionSpec, Specs, read_specs
from reverie.core.types import ARRIVING, Array, Row
from reverie.envs.episode import make_action_map
from reverie.machine.installation import install_command
from reverie.store import documents

OWN = "reverie"
"""Key of the infos that holds our own columns."""


def write_minari(root: Path, name: str, episodes: Iterable[Row], env: gym.Env[Any, Any], origin: str) -> Path:
    """Write episodes as the Minari dataset ``name`` below ``root``. Returns its folder."""
    _import_minari()
    path = (root / name / "data").absolute()  # Minari resolves a relative path twice
    if path.exists():
        raise RunError(f"'{path}' already contains a Minari dataset.", "Choose another folder, or delete that one.")
    path.mkdir(parents=True)
    try:
        _write(path, name, episodes, env, origin)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)  # an incomplete dataset would look complete
        raise
    return path.parent


def _write(path: Path, name: str, episodes: Iterable[Row], env: gym.Env[Any, Any], origin: str) -> None:
    minari = _import_minari()
    storage = minari.dataset.minari_storage.MinariStorage.new(
        path, observation_space=env.observation_space, action_space=env.action_space, jpeg_encoding=False
    )  # JPEG would change the images
    specs = read_specs(env)
    storage.update_episodes(_to_buffer(number, episode, env, specs) for number, episode in enumerate(episodes))
    metadata = {"dataset_id": name, "algorithm_name": origin, "minari_version": minari.__version__}
    storage.update_metadata(metadata)
    if storage.metadata["total_episodes"] == 0:
        raise RunError("There are no complete episodes to write.", "Collect at least one complete episode first.")


class MinariSource:
    """The episodes of a Minari dataset, as rows."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._dataset = _open(path, name)

    @property
    def specs(self) -> Specs:
        space = gym.Env()
        space.observation_space = self._dataset.spec.observation_space
        space.action_space = self._dataset.spec.action_space
        return read_specs(space)

    @property
    def num_episodes(self) -> int:
        return int(self._dataset.total_episodes)

    def episodes(self) -> Iterator[Row]:
        specs, spec = self.specs, self._dataset.spec
        for episode in self._dataset.iterate_episodes():
            yield _to_rows(episode, spec.observation_space, specs)


def find_minari(name: str) -> Path:
    """The folder of a dataset in Minari's local storage."""
    minari = _import_minari()
    path: Path = minari.storage.get_dataset_path(name) / "data"
    if not path.exists():
        known = ", ".join(sorted(minari.list_local_datasets())) or "none"
        raise ConfigError(
            f"Minari has no dataset '{name}' on this machine.",
            f"Installed datasets: {known}. Download one with: minari download {name}",
        )
    return path


def is_minari(folder: Path) -> bool:
    return (folder / "metadata.json").exists() or (folder / "data" / "metadata.json").exists()


def _import_minari() -> Any:
    try:
        import minari
        import minari.dataset.minari_storage
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Minari datasets need the package {error.name}.", f"Install the extra: {install_command('minari')}"
        ) from error
    return minari


def _open(path: Path, name: str) -> Any:
    data = path if (path / "metadata.json").exists() else path / "data"
    try:
        metadata = documents.read_json(data / "metadata.json")
        has_spaces = {"observation_space", "action_space"} <= set(metadata)
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"The Minari dataset '{name}' cannot be read: {error}.") from error
    if not has_spaces:  # Minari would then make the env that the dataset names, which runs a stranger's code
        raise RunError(
            f"The Minari dataset '{name}' does not contain its observation and action spaces.",
            "Write it again and pass observation_space and action_space to Minari.",
        )
    minari = _import_minari()
    try:
        return minari.MinariDataset(os.fspath(data))
    except (ValueError, KeyError, TypeError, AssertionError, OSError) as error:
        raise RunError(f"The Minari dataset '{name}' cannot be read: {error}") from error


def _refuse_parts(action: ActionSpec) -> None:
    if action.parts:
        raise ConfigError("Minari datasets cannot store Dict or Tuple actions.", "Export without --format minari.")


def _to_buffer(number: int, episode: Row, env: gym.Env[Any, Any], specs: Specs) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    _refuse_parts(specs.action)
    to_env = make_action_map(specs.action, env.action_space)
    actions = np.stack([np.asarray(to_env(action)) for action in episode["action"][:-1]])
    own = [key for key in episode if key not in (*ARRIVING, *specs.observations)]
    return EpisodeBuffer(
        id=number,
        observations=_to_space(env.observation_space, episode),
        actions=actions,
        rewards=episode["reward"][1:],
        terminations=episode["terminated"][1:],
        truncations=episode["truncated"][1:],
        infos={OWN: {key.replace("/", "|"): episode[key] for key in own}},
    )


def _to_rows(episode: Any, space: gym.Space[Any], specs: Specs) -> Row:
    rows = _from_space(space, episode.observations)
    length = len(episode.rewards) + 1
    rows |= {
        "reward": np.concatenate([[0], episode.rewards]).astype(np.float32),
        "is_first": np.arange(length) == 0,
        "terminated": np.concatenate([[False], episode.terminations]).astype(bool),
        "truncated": np.concatenate([[False], episode.truncations]).astype(bool),
    }
    if not (rows["terminated"][-1] or rows["truncated"][-1]):
        rows["truncated"][-1] = True  # the recording stops in mid-episode
    infos = episode.infos or {}
    own = {key.replace("|", "/"): np.asarray(values) for key, values in infos.get(OWN, {}).items()}
    if "action" not in own:
        _refuse_parts(specs.action)
        actions = _to_agent_actions(specs.action, np.asarray(episode.actions))
        own["action"] = np.concatenate([actions, specs.action.zeros(1)])
    return rows | own


def _to_agent_actions(spec: ActionSpec, actions: Array) -> Array:
    """Map actions of the env to the agent's range."""
    shaped = actions.reshape(len(actions), *spec.shape)
    if spec.kind != "continuous":
        counted: Array = shaped - np.array(spec.start or 0).reshape(spec.shape if spec.start else ())
        return counted.astype(spec.dtype)
    if not spec.is_scaled:
        return shaped.astype(spec.dtype)
    low, high = (np.array(side).reshape(spec.shape) for side in (spec.low, spec.high))
    scaled: Array = np.clip(2 * (shaped - low) / (high - low) - 1, -1, 1)
    return scaled.astype(spec.dtype)


def _to_space(space: gym.Space[Any], rows: Row, prefix: str = "obs") -> Any:
    """Observations of rows (T, ...) in the structure, shapes and dtypes of a space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _to_space(sub, rows, f"{prefix}/{key}") for key, sub in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_to_space(sub, rows, f"{prefix}/{i}") for i, sub in enumerate(space.spaces))
    values = rows[prefix]
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        values = values + space.start
    return values.reshape(len(values), *(space.shape or ())).astype(space.dtype)


def _from_space(space: gym.Space[Any], values: Any, prefix: str = "obs") -> Row:
    """Inverse of ``_to_space``: like :func:`reverie.core.specs.flatten_observation`, with a time axis."""
    if isinstance(space, gym.spaces.Dict):
        parts = [(f"{prefix}/{key}", sub, values[key]) for key, sub in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple):
        parts = [(f"{prefix}/{i}", sub, values[i]) for i, sub in enumerate(space.spaces)]
    else:
        return {prefix: _leaf(space, np.asarray(values))}
    return {key: leaf for name, sub, part in parts for key, leaf in _from_space(sub, part, name).items()}


def _leaf(space: gym.Space[Any], values: Array) -> Array:
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return (values - space.start).astype(np.int64)
    if values.dtype != np.uint8 or not isinstance(space, gym.spaces.Box):
        return values.astype(np.float32)
    return values[..., None] if values.ndim == 3 else values


def minari_name(env: str, name: str) -> str:
    """A name that Minari accepts: ``namespace/dataset-v0``."""
    words = [re.sub(r"[^A-Za-z0-9_.-]+", "-", word).strip("-.") for word in (env.lower(), name)]
    return f"{words[0]}/{re.sub(r'-v[0-9]+$', '', words[1])}-v0"
