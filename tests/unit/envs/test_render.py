"""What drawing needs: which envs draw, and what is set where there is no screen."""

from __future__ import annotations

import os
import sys

import pytest

from reverie.envs import gl
from reverie.envs.config import EnvConfig
from reverie.envs.render import can_render, prepare_rendering


def test_which_envs_draw() -> None:
    assert can_render(EnvConfig(id="CartPole-v1"))
    assert not can_render(EnvConfig(id="Reverie/Constant-v0"))
    assert not can_render(EnvConfig(id="NoSuchEnv-v0"))


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
