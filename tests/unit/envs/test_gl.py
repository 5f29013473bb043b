"""Which GL backend is chosen, and what is said where none works."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from reverie.core.errors import ConfigError
from reverie.envs import gl
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env

VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL")


@pytest.fixture(autouse=True)
def _bare_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    surround(monkeypatch)


def surround(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # restores the old value after the test, even if there was none
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def let_work(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = tuple(replace(backend, works=lambda name=backend.name: name in names) for backend in gl.BACKENDS)
    monkeypatch.setattr(gl, "BACKENDS", found)


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
    surround(monkeypatch, **variables)
    assert gl.has_screen() == expected


@pytest.mark.parametrize(
    ("working", "chosen"),
    [(("egl", "osmesa"), "egl"), (("osmesa",), "osmesa"), (("glfw", "egl"), "glfw"), ((), None)],
)
def test_the_first_backend_that_works_is_chosen(
    working: tuple[str, ...], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_work(monkeypatch, *working)
    assert gl.choose_backend() == chosen
    assert os.environ.get("MUJOCO_GL") == chosen


def test_the_users_choice_stays_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    surround(monkeypatch, MUJOCO_GL="osmesa")
    let_work(monkeypatch, "egl")
    assert gl.choose_backend() == "osmesa"
    with pytest.raises(ConfigError, match="MUJOCO_GL=osmesa is set") as caught:
        gl.require_backend()
    assert "apt-get install libosmesa6" in caught.value.fix
    let_work(monkeypatch, "osmesa")
    assert gl.require_backend() == "osmesa"


def test_glfw_without_a_screen_is_not_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    surround(monkeypatch, MUJOCO_GL="glfw")
    let_work(monkeypatch, "egl")
    with pytest.raises(ConfigError, match="MUJOCO_GL=glfw is set") as caught:
        gl.require_backend()
    assert caught.value.fix == "glfw needs a screen: unset MUJOCO_GL"
    surround(monkeypatch, MUJOCO_GL="glfw", DISPLAY=":0")
    with pytest.raises(ConfigError) as caught:
        gl.require_backend()
    assert "apt-get install libglfw3" in caught.value.fix


def test_no_backend_names_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    let_work(monkeypatch)
    with pytest.raises(ConfigError, match="cannot render here") as caught:
        gl.require_backend()
    assert "apt-get install libegl1" in caught.value.fix


@pytest.mark.parametrize(
    ("config", "render_mode"),
    [
        pytest.param(EnvConfig(id="Hopper-v5"), "rgb_array", marks=pytest.mark.needs("mujoco")),
        pytest.param(EnvConfig(id="dmc/cartpole_swingup"), "rgb_array", marks=pytest.mark.needs("dmc")),
        pytest.param(
            EnvConfig(id="dmc/cartpole_swingup", kwargs={"image": True}), None, marks=pytest.mark.needs("dmc")
        ),
    ],
)
def test_envs_that_must_render_say_so(
    config: EnvConfig, render_mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_work(monkeypatch)
    with pytest.raises(ConfigError, match="MuJoCo cannot render here"):
        make_env(config, render_mode)


def test_a_display_that_is_gone_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    surround(monkeypatch, DISPLAY=":987")
    assert not next(backend for backend in gl.BACKENDS if backend.name == "glfw").works()


@pytest.mark.parametrize("name", ["egl", "osmesa"])
def test_a_library_that_is_missing_does_not_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl, "_load", lambda library: None)
    assert not next(backend for backend in gl.BACKENDS if backend.name == name).works()


@pytest.mark.needs("mujoco")
@pytest.mark.needs("gl")
def test_the_chosen_backend_renders() -> None:
    env = make_env(EnvConfig(id="Hopper-v5"), "rgb_array")
    env.reset(seed=0)
    frame = env.render()
    env.close()
    assert frame is not None
    assert frame.std() > 1  # type: ignore[union-attr]
