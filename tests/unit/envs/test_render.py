"""What drawing needs: which envs draw, and what is set where there is no screen."""

from __future__ import annotations

import os
import sys

import pytest

from reverie.envs import render
from reverie.envs.config import EnvConfig
from reverie.envs.render import can_draw, has_screen, prepare_drawing


def test_which_envs_draw() -> None:
    assert can_draw(EnvConfig(id="CartPole-v1"))
    assert not can_draw(EnvConfig(id="Reverie/Constant-v0"))
    assert not can_draw(EnvConfig(id="NoSuchEnv-v0"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ":0", "SDL_VIDEODRIVER": "dummy"}, False),
    ],
)
def test_a_screen_is_found(variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    _surround(monkeypatch, variables)
    assert has_screen() == expected


@pytest.mark.parametrize(
    ("libraries", "expected"),
    [({"libEGL.so.1", "libOSMesa.so.8"}, "egl"), ({"libOSMesa.so.6"}, "osmesa"), (set(), None)],
)
def test_without_a_screen_things_are_drawn_in_memory(
    libraries: set[str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(render, "_is_loadable", lambda library: library in libraries)
    _surround(monkeypatch, {})
    prepare_drawing()
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ.get("MUJOCO_GL") == expected


def test_what_is_set_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    _surround(monkeypatch, {"MUJOCO_GL": "glfw"})
    prepare_drawing()
    assert os.environ["MUJOCO_GL"] == "glfw"
    _surround(monkeypatch, {"DISPLAY": ":0"})
    prepare_drawing()
    assert "SDL_VIDEODRIVER" not in os.environ


def _surround(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_AUDIODRIVER", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # so that it is as before in the end, also if it was not there
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
