"""Rendering: whether an env renders frames, its frame rate, and rendering without a screen."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym

from reverie.envs import gl
from reverie.machine.libraries import install_library

DEFAULT_FPS = 30.0


def prepare_rendering() -> None:
    """Let pygame render without a screen if there is none, and choose MuJoCo's GL backend.

    Keeps environment variables that are already set.
    """
    if not gl.has_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    gl.choose_backend()


def has_frames(env: gym.Env[Any, Any]) -> bool:
    """Whether an env declares that it renders frames."""
    return "rgb_array" in (env.metadata.get("render_modes") or ())


def explain_rendering(error: Exception) -> str:
    """What to do about an exception that rendering raised."""
    if advice := install_library(error):
        return advice
    text = f"{type(error).__name__} {error}"
    if any(word in text for word in ("mujoco", "MUJOCO", "OpenGL", "GLFW", "glfw", "EGL", "gladLoadGL")):
        return f"Without a screen, MuJoCo renders with MUJOCO_GL=egl or MUJOCO_GL=osmesa: {gl.INSTALL}"
    return str(getattr(error, "fix", ""))


def render_fps(env: gym.Env[Any, Any]) -> float:
    """Agent steps per second of video, from the env's metadata and its action repeats."""
    fps = env.metadata.get("render_fps")
    repeats = 1
    while isinstance(env, gym.Wrapper):
        repeats *= getattr(env, "steps_per_action", 1)
        env = env.env
    return float(fps or DEFAULT_FPS) / repeats
