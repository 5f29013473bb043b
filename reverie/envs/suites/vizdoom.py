"""ViZDoom: first-person tasks in the engine of Doom (Kempka et al. 2016). Needs the extra ``vizdoom``.

Ids are those of the package (``VizdoomBasic-v1``) and ``Vizdoom/<name>`` for your own ``<name>.cfg``. Configs are
looked for in the folder ``VIZDOOM_SCENARIOS_DIR``, then among those of the package. An observation is a dict of the
screen and the game variables that the config lists.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.errors import ConfigError, nearest
from reverie.envs.suite import NO_KEY, Env, KeyMap, Suite

FOLDER_VARIABLE = "VIZDOOM_SCENARIOS_DIR"
_OWN_PREFIX = "Vizdoom/"
_ENTRY_POINT = "reverie.envs.suites.vizdoom:make_game"
_LONGEST_NOTIFICATION = 80
_DELTA_RANGE = 90.0
"""Degrees or units that a continuous button may change in one tic. ViZDoom declares the whole range of floats."""


class Game(gym.Wrapper[Any, Any, Any, Any]):
    """Adds the last image of an episode, tells a time limit from a death, and keeps files out of the way."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self.metadata = {**env.metadata, "render_fps": env.metadata["render_fps"] / game.frame_skip}
        self.observation_space = _with_short_texts(env.observation_space)
        self.action_space = _with_bounds(env.action_space)
        self._folder = tempfile.TemporaryDirectory(prefix="reverie-vizdoom-")
        self._last: Any = None

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        with contextlib.chdir(self._folder.name):  # the engine writes its settings into the current folder
            observation, info = self.env.reset(**arguments)
        self._last = self._shorten(observation)
        return self._last, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not terminated:  # after the end there is no image, only zeros
            self._last = self._shorten(observation)
        return self._last, reward, terminated and not truncated, truncated, info

    def _shorten(self, observation: Any) -> Any:
        if "notifications" in observation:
            observation["notifications"] = observation["notifications"][:_LONGEST_NOTIFICATION]
        return observation

    def close(self) -> None:
        with contextlib.chdir(self._folder.name):
            super().close()
        self._folder.cleanup()


def _with_short_texts(space: Any) -> spaces.Dict:
    def shorten(part: Any) -> Any:
        if not isinstance(part, spaces.Text):
            return part
        return spaces.Text(_LONGEST_NOTIFICATION, min_length=0, charset=frozenset(part.character_set))

    return spaces.Dict({key: shorten(part) for key, part in space.spaces.items()})


def _with_bounds(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _with_bounds(part) for key, part in space.spaces.items()})
    return spaces.Box(-_DELTA_RANGE, _DELTA_RANGE, space.shape, np.float32) if isinstance(space, spaces.Box) else space


def make_game(
    scenario_config_file: str = "", config_path: str = "", wad_path: str = "", **settings: Any
) -> gym.Env[Any, Any]:
    """One game. ``config_path`` and ``wad_path`` replace the config of the id and the map in it.

    All other arguments go to ViZDoom: frame_skip, max_buttons_pressed, and keys of its configs in lower case, such as
    screen_resolution.
    """
    import vizdoom
    from vizdoom.gymnasium_wrapper.base_gymnasium_env import VizdoomEnv

    config = _find_file(config_path or scenario_config_file, Path(vizdoom.scenarios_path))
    if wad_path:
        settings["doom_scenario_path"] = str(_find_file(wad_path, Path(vizdoom.scenarios_path)))
    env = VizdoomEnv(config_file=str(config), **settings)
    for wad in (env.game.get_doom_game_path(), env.game.get_doom_scenario_path()):
        if wad and not (Path(wad).is_file() or Path(vizdoom.root_path, Path(wad).name).is_file()):
            raise _missing_wad(config, wad)
    made: gym.Env[Any, Any] = env
    return made


def _find_file(name: str, of_package: Path) -> Path:
    """A config or wad: as the path says, in the folder of the user, or in that of the package."""
    own = os.environ.get(FOLDER_VARIABLE, "")
    folders = [Path(), *([Path(own).expanduser()] if own else []), of_package]
    found = next((path for folder in folders if (path := folder / Path(name).expanduser()).is_file()), None)
    if found is not None:
        return found.resolve()
    known = sorted({path.name for folder in folders[1:] for path in folder.glob(f"*{Path(name).suffix}")})
    where = f"here or in {' or '.join(str(folder) for folder in folders[1:])}"
    advice = f"Give its path, or put it into a folder and set {FOLDER_VARIABLE} to that folder."
    raise ConfigError(f"ViZDoom's file '{name}' is not {where}.", f"{nearest(name, known)} {advice}".strip())


def _missing_wad(config: Path, wad: str) -> ConfigError:
    """Doom's own wads are sold, not shipped with ViZDoom."""
    return ConfigError(
        f"ViZDoom's config {config.name} needs a file that is missing: {wad}",
        f"Put your own wad and a copy of {config.name} into one folder, and set {FOLDER_VARIABLE} to it. "
        "Freedoom comes with ViZDoom: VizdoomFreedoom1E1M1-S1-v0, VizdoomFreedoom2MAP01-S1-v0 ...",
    )


def _register(env_id: str) -> None:
    importlib.import_module("vizdoom.gymnasium_wrapper")  # registers all its ids
    if env_id.startswith(_OWN_PREFIX):
        config = f"{env_id.removeprefix(_OWN_PREFIX)}.cfg"
        gym.register(env_id, _ENTRY_POINT, kwargs={"config_path": config, "max_buttons_pressed": 1})
    for spec in gym.registry.values():
        if str(spec.entry_point).startswith("vizdoom."):
            spec.entry_point = _ENTRY_POINT


def _repair(env: Env) -> Env:
    doom: Any = env.unwrapped
    tics = doom.game.get_episode_timeout()
    # The game truncates its episodes itself, but nobody could read its limit.
    return gym.wrappers.TimeLimit(Game(env), math.ceil(tics / doom.frame_skip)) if tics else Game(env)


SUITE = Suite(
    name="vizdoom",
    title="ViZDoom",
    prefixes=("Vizdoom",),
    example="VizdoomDefendCenter-v1",
    id_forms=("VizdoomBasic-v1", "VizdoomFreedoom1E1M1-S1-v0", "Vizdoom/<your config>"),
    modules=("vizdoom",),
    register=_register,
    extra="vizdoom",
    packages={"vizdoom": "vizdoom"},
    repair=_repair,
    keys={"VizdoomBasic-v1": KeyMap({NO_KEY: 0, "space": 1, "right": 2, "left": 3})},
)
