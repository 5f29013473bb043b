"""Pictures of an env: whether there are any, how fast they follow each other, and how to draw without a screen."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import Any

import gymnasium as gym

from reverie.core.errors import ReverieError
from reverie.envs.config import EnvConfig

DEFAULT_FPS = 30.0
OPEN_GL = {"egl": ("libEGL.so.1",), "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6")}
"""How MuJoCo can draw without a screen, and the library that each way needs."""


def has_screen() -> bool:
    """Whether a window could be opened here, as far as the surroundings tell."""
    if os.environ.get("SDL_VIDEODRIVER") in ("dummy", "offscreen"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare_drawing() -> None:
    """Without a screen, tell pygame and MuJoCo to draw into memory; whatever is set already stays."""
    if has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux" and "MUJOCO_GL" not in os.environ:
        way = next(iter(ways_to_draw()), None)
        if way is not None:
            os.environ["MUJOCO_GL"] = way


def ways_to_draw() -> list[str]:
    """How MuJoCo could draw without a screen here, the best first."""
    return [way for way, libraries in OPEN_GL.items() if any(map(_is_loadable, libraries))]


def can_draw(config: EnvConfig) -> bool:
    """Whether the env says that it gives pictures; an env that cannot even be made gives none."""
    from reverie.envs.make import make_env  # which prepares drawing by this module

    try:
        env = make_env(config)
    except ReverieError:
        return False
    modes = env.metadata.get("render_modes") or ()
    env.close()
    return "rgb_array" in modes


def explain_drawing(error: Exception) -> str:
    """What to do when an env fails to draw."""
    text = f"{type(error).__name__} {error}"
    if any(word in text for word in ("mujoco", "MUJOCO", "OpenGL", "GLFW", "glfw", "EGL", "gladLoadGL")):
        return "Without a screen, MuJoCo draws with MUJOCO_GL=egl (libegl1) or MUJOCO_GL=osmesa (libosmesa6)."
    return str(getattr(error, "fix", ""))


def render_fps(env: gym.Env[Any, Any]) -> float:
    """How many of the agent's steps make a second, by the env's own word."""
    fps = env.metadata.get("render_fps")
    repeats = 1
    while isinstance(env, gym.Wrapper):
        repeats *= getattr(env, "steps_per_action", 1)
        env = env.env
    return float(fps or DEFAULT_FPS) / repeats


def _is_loadable(library: str) -> bool:
    with suppress(OSError):
        ctypes.CDLL(library)
        return True
    return False
