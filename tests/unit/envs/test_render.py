"""Rendering: which envs render frames, and the environment variables without a screen."""

from __future__ import annotations

import os
import sys

import pytest

from reverie.envs import gl
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env
from reverie.envs.render import has_frames, prepare_rendering


def test_which_envs_render_frames() -> None:
    assert has_frames(make_env(EnvConfig(id="CartPole-v1")))
    assert not has_frames(make_env(EnvConfig(id="Reverie/Constant-v0")))


@pytest.mark.parametrize("chosen", ["egl", None])
def test_without_a_screen_frames_are_rendered_in_memory(chosen: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    backends = (gl.Backend("egl", "libegl1", lambda: chosen is not None),)
    monkeypatch.setattr(gl, "BACKENDS", backends)
    _surround(monkeypatch, {})
    prepare_rendering()
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ.get("MUJOCO_GL") == chosen


def test_what_is_set_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    _surround(monkeypatch, {"MUJOCO_GL": "glfw"})
    prepare_rendering()
    assert os.environ["MUJOCO_GL"] == "glfw"
    _surround(monkeypatch, {"DISPLAY": ":0"})
    prepare_rendering()
    assert "SDL_VIDEODRIVER" not in os.environ


def _surround(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_AUDIODRIVER", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # so that it is as before in the end, also if it was not there
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
