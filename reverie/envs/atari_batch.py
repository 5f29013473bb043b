"""Atari's preprocessing in the names of EnvPool and of ale_py's own vector.

They do the work of the wrappers ``atari`` and ``frame_stack`` by themselves, so ``env.wrappers`` must begin with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.batch_task import USE_OTHERS, BatchTask, only_arguments
from reverie.envs.config import EnvConfig

_ARGUMENTS = ("obs_type", "frameskip", "repeat_action_probability", "full_action_space")
_OF_ENVPOOL = ("mode", "difficulty")


@dataclass(frozen=True)
class AtariForm:
    """The preprocessing that a config asks for."""

    atari: Any
    """Config of the wrapper ``atari``."""
    frames: int
    """Number of images in an observation."""
    is_gray: bool
    frameskip: int
    sticky: float
    full_actions: bool
    arguments: dict[str, Any]
    """``mode`` and ``difficulty``, where they are set."""
    wrappers: tuple[ComponentConfig, ...]
    """Those that remain."""


def read_form(config: EnvConfig) -> AtariForm:
    """ConfigError if a backend that does the preprocessing by itself cannot do this one."""
    given = only_arguments(config, (*_ARGUMENTS, *(_OF_ENVPOOL if config.vector == "envpool" else ())))
    kinds = [wrapper.kind for wrapper in config.wrappers]
    if not kinds or kinds[0] != "atari":
        raise _refusal(config, "always does the preprocessing of the wrapper atari, which must come first")
    atari: Any = config.wrappers[0]
    has_stack = kinds[1:2] == ["frame_stack"]
    obs_type, skip = given.get("obs_type", "rgb"), given.get("frameskip", 4)
    if obs_type not in ("rgb", "grayscale"):
        raise _refusal(config, "has only images")
    if not isinstance(skip, int):
        raise _refusal(config, "needs a fixed frame skip")
    return AtariForm(
        atari=atari,
        frames=getattr(config.wrappers[1], "frames", 1) if has_stack else 1,
        is_gray=obs_type == "grayscale",
        frameskip=skip,
        sticky=given.get("repeat_action_probability", 0.25),
        full_actions=given.get("full_action_space", False),
        arguments={name: given[name] for name in _OF_ENVPOOL if given.get(name) is not None},
        wrappers=config.wrappers[1 + has_stack :],
    )


def envpool_task(long_id: Callable[[str], str]) -> Callable[[EnvConfig], BatchTask]:
    """EnvPool's tasks. ``long_id`` gives ``ALE/Pong-v5`` for every name of a game."""

    def find(config: EnvConfig) -> BatchTask:
        form = read_form(config)
        if not form.atari.max_frames and form.frameskip > 1:
            raise _refusal(config, "always shows the maximum of two frames")
        if form.atari.noops == 0:
            raise _refusal(config, "starts every game with at least one frame without an action")
        kwargs = {
            "stack_num": form.frames, "frame_skip": form.frameskip, "noop_max": form.atari.noops,
            "episodic_life": form.atari.life_loss, "use_fire_reset": form.atari.fire, "gray_scale": form.is_gray,
            "img_height": form.atari.height, "img_width": form.atari.width, "reward_clip": False,
            "repeat_action_probability": form.sticky, "full_action_space": form.full_actions,
        }  # fmt: skip
        name = long_id(config.id).removeprefix("ALE/")
        return BatchTask(name, {**kwargs, **form.arguments}, form.wrappers, _channels_last)

    return find


def ale_task(config: EnvConfig) -> BatchTask:
    """The game and the arguments of ``ale_py.vector_env.AtariVectorEnv``."""
    form = read_form(config)
    waits = form.atari.noops and form.atari.noops + 1  # it waits for 0 to noop_max - 1 frames
    kwargs = {
        "stack_num": form.frames, "frameskip": form.frameskip, "noop_max": waits,
        "episodic_life": form.atari.life_loss, "use_fire_reset": form.atari.fire, "grayscale": form.is_gray,
        "img_height": form.atari.height, "img_width": form.atari.width, "reward_clipping": False,
        "maxpool": form.atari.max_frames, "repeat_action_probability": form.sticky,
        "full_action_space": form.full_actions,
    }  # fmt: skip
    game = str(gym.registry[config.id].kwargs["game"])
    return BatchTask(game, kwargs, form.wrappers, _channels_last if form.is_gray else _frames_last)


def _frames_last(images: Array) -> Array:
    """(N, F, H, W, C) to (N, H, W, F x C)."""
    count, _, height, width, _ = images.shape
    return images.transpose(0, 2, 3, 1, 4).reshape(count, height, width, -1)


def _channels_last(images: Array) -> Array:
    """(N, C, H, W) to (N, H, W, C)."""
    return images.transpose(0, 2, 3, 1)


def _refusal(config: EnvConfig, what: str) -> ConfigError:
    return ConfigError(f"env.vector={config.vector} {what} ('{config.id}').", USE_OTHERS)
