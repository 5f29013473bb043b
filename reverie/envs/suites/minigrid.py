"""MiniGrid and BabyAI: small grid worlds with missions (Chevalier-Boisvert et al. 2023). Needs the extra ``minigrid``.

An observation is the grid as indices, the agent's direction, and the mission as text. ``env.obs`` chooses the form of
the grid: ``image`` (the agent's view as one 0/255 plane per kind, colour and state), ``symbolic`` (the view as class
indices), ``full`` (the whole grid as class indices) or ``pixels``. Missions become word tokens.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.config import EnvConfig
from reverie.envs.suite import Env, KeyMap, Suite
from reverie.envs.wrappers.text import Sentences

Form = Literal["planes", "indices"]
View = Literal["partial", "full"]
CELL_CLASSES = (11, 6, 4)
"""Kinds of objects, colours, and states of doors or directions of the agent."""
_BABYAI_WORDS = (
    "pick up, open, go to, put the ball next to a box, then; and; after you",
    "red green blue purple yellow grey door key object",
    "in front of you, behind you, on your left, on your right",
)
_BABYAI_LENGTHS = {"action": 17, "and": 35, "seq": 73}
"""Most words in one instruction ("put the red key in front of you next to ..."), in two, and in two pairs of them."""
_OTHER_LENGTH = 35


class Grid(gym.ObservationWrapper[Any, Any, Any]):
    """Replaces the codes of the grid (width, height, 3) by planes or class indices with the rows on axis 0."""

    class Config(ComponentConfig):
        kind: str = "minigrid"
        form: Form = "planes"
        """planes: one plane per kind, colour and state of a cell, 255 where it applies. indices: three class indices
        per cell."""
        view: View = "partial"
        """partial: the cells that the agent sees, turned so that it looks up. full: the whole grid with the agent."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        inner = env.observation_space
        if not (isinstance(inner, spaces.Dict) and hasattr(env.unwrapped, "agent_dir") and "image" in inner.spaces):
            raise ConfigError(f"The wrapper minigrid needs an env of MiniGrid, not {env.unwrapped}.", "Remove it.")
        self._is_full, self._has_planes = config.view == "full", config.form == "planes"
        grid: Any = env.unwrapped
        size = (grid.height, grid.width) if self._is_full else (grid.agent_view_size,) * 2
        self.observation_space = spaces.Dict({**inner.spaces, "image": self._grid_space(size)})

    def _grid_space(self, size: tuple[int, int]) -> spaces.Space[Any]:
        if self._has_planes:
            return spaces.Box(0, 255, (*size, sum(CELL_CLASSES)), np.uint8)
        return spaces.MultiDiscrete(np.broadcast_to(np.array(CELL_CLASSES), (*size, 3)).copy())

    def observation(self, observation: Any) -> dict[str, Any]:
        codes = self._draw_agent() if self._is_full else observation["image"]
        codes = np.swapaxes(codes, 0, 1)
        return {**observation, "image": to_planes(codes) if self._has_planes else codes.astype(np.int64)}

    def _draw_agent(self) -> Array:
        env: Any = self.env.unwrapped
        codes: Array = env.grid.encode()
        codes[env.agent_pos[0], env.agent_pos[1]] = (CELL_CLASSES[0] - 1, 0, env.agent_dir)
        return codes


def to_planes(codes: Array) -> Array:
    """Codes (H, W, 3) as 0/255 planes (H, W, 21)."""
    planes = [codes[..., index, None] == np.arange(classes) for index, classes in enumerate(CELL_CLASSES)]
    return np.concatenate(planes, axis=-1).astype(np.uint8) * 255


class Described(gym.Wrapper[Any, Any, Any, Any]):
    """Declares the words of the missions, and logs ``success``: whether the episode ended with a reward."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        inner = env.observation_space
        assert isinstance(inner, spaces.Dict)
        self.observation_space = spaces.Dict({**inner.spaces, "mission": mission_space(env.unwrapped)})

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**arguments)
        return observation, {**info, "success": 0.0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        success = float(terminated and float(reward) > 0)
        return observation, reward, terminated, truncated, {**info, "success": success}


def mission_space(env: Any) -> Sentences:
    """All words of an env's missions, and the length of the longest."""
    space = env.observation_space["mission"]
    if hasattr(env, "instrs") or "babyai" in type(env).__module__:
        kinds: Sequence[str] = getattr(env, "instr_kinds", ())
        lengths = [_BABYAI_LENGTHS[kind] for kind in kinds]
        return Sentences(_BABYAI_WORDS, max(lengths, default=_OTHER_LENGTH))
    missions = [space.mission_func(*words).split() for words in itertools.product(*space.ordered_placeholders or ())]
    words = {word for mission in missions for word in mission}
    return Sentences(sorted(words), max(map(len, missions)))


def _repair(env: Env) -> Env:
    """Add what MiniGrid leaves out: the words of its missions, and a time limit that others can read."""
    grid: Any = env.unwrapped
    if not (isinstance(env.observation_space, spaces.Dict) and "mission" in env.observation_space.spaces):
        return env
    _check_patterns(grid)
    # BabyAI draws the limit anew in every episode, unless max_steps is given.
    limited = gym.wrappers.TimeLimit(env, grid.max_steps) if getattr(grid, "fixed_max_steps", True) else env
    return Described(limited)


def _check_patterns(env: Any) -> None:
    """The published package lacks the pictures from which its WFC envs are generated."""
    path = getattr(getattr(env, "config", None), "pattern_path", None)
    if path is not None and not Path(path).is_file():
        raise ConfigError(
            f"MiniGrid's package lacks the picture that {type(env).__name__} is generated from: {path}.",
            "Copy the folder minigrid/envs/wfc/patterns of MiniGrid's repository there, or choose another env.",
        )


def _silence_babyai() -> None:
    """BabyAI prints a line for every mission that it rejects."""
    if importlib.util.find_spec("minigrid") is None:
        return
    module: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    module.print = lambda *texts: None


def _register(env_id: str) -> None:
    importlib.import_module("minigrid")  # registers all its envs


def _with_grid(
    form: Literal["planes", "indices"], view: Literal["partial", "full"]
) -> Callable[[EnvConfig], EnvConfig]:
    """A form of observation: the config with the wrapper ``minigrid``, before all others."""

    def apply(config: EnvConfig) -> EnvConfig:
        wrapper = Grid.Config(form=form, view=view)
        return config.model_copy(update={"wrappers": (wrapper, *config.wrappers)})

    return apply


OBSERVATIONS: dict[str, Callable[[EnvConfig], EnvConfig]] = {
    "image": _with_grid(form="planes", view="partial"),
    "symbolic": _with_grid(form="indices", view="partial"),
    "full": _with_grid(form="indices", view="full"),
}

SUITE = Suite(
    name="minigrid",
    title="MiniGrid and BabyAI",
    prefixes=("MiniGrid-", "BabyAI-"),
    example="MiniGrid-LavaGapS5-v0",
    id_forms=("MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToRedBall-v0"),
    modules=("minigrid",),
    register=_register,
    extra="minigrid",
    packages={"minigrid": "minigrid"},
    ignored_warnings=(".*out of date.*",),
    patch=_silence_babyai,
    repair=_repair,
    observations=OBSERVATIONS,
    keys={
        "MiniGrid-": KeyMap({"left": 0, "right": 1, "up": 2, "p": 3, "d": 4, "space": 5}),
        "BabyAI-": KeyMap({"left": 0, "right": 1, "up": 2, "p": 3, "d": 4, "space": 5}),
    },
)
