"""Chooses the GL backend that MuJoCo and dm_control render with.

On Linux, ``glfw`` needs a screen, ``egl`` a driver (of the hardware, or Mesa's software driver) and ``osmesa`` only its
library. :func:`choose_backend` tries them in this order and sets ``MUJOCO_GL``, which both packages read when they are
imported. A value set by the user is kept. On other systems MuJoCo's default works.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from reverie.core.errors import ConfigError

VARIABLE = "MUJOCO_GL"
DISABLED = "disable"
"""Value with which dm_control can be imported but cannot render."""
_OSMESA_RGBA = 0x1908


@dataclass(frozen=True)
class Backend:
    """A backend, the Debian package that contains it, and a test whether it works on this machine."""

    name: str
    debian_package: str
    works: Callable[[], bool]


def has_screen() -> bool:
    """Whether there is a screen, according to environment variables."""
    if os.environ.get("SDL_VIDEODRIVER") in ("dummy", "offscreen"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def choose_backend() -> str | None:
    """Set ``MUJOCO_GL`` to the first backend that works, unless it is set. None if none works."""
    if sys.platform != "linux":
        return os.environ.get(VARIABLE, "the system's own")
    if os.environ.get(VARIABLE) in (None, "", DISABLED):
        found = next((backend.name for backend in BACKENDS if backend.works()), None)
        if found is None:
            return None
        os.environ[VARIABLE] = found
    return os.environ[VARIABLE]


def require_backend() -> str:
    """Like :func:`choose_backend`, but raises ConfigError if no backend works."""
    chosen = choose_backend()
    if chosen is None:
        raise ConfigError("MuJoCo cannot render here: no screen, and neither EGL nor OSMesa works.", INSTALL)
    broken = next((backend for backend in BACKENDS if backend.name == chosen and not backend.works()), None)
    if broken is not None and sys.platform == "linux":
        install = f"sudo apt-get install {broken.debian_package}, or unset {VARIABLE}"
        raise ConfigError(
            f"MuJoCo cannot render here: {VARIABLE}={chosen} is set, but {chosen} does not work.",
            install if chosen != "glfw" or has_screen() else f"glfw needs a screen: unset {VARIABLE}",
        )
    return chosen


def _glfw_works() -> bool:
    """Whether a connection to the screen can be opened. DISPLAY may be outdated."""
    if not has_screen() or importlib.util.find_spec("glfw") is None:
        return False
    if os.environ.get("WAYLAND_DISPLAY"):
        return True
    x11 = _load("libX11.so.6")
    if x11 is None:
        return False
    x11.XOpenDisplay.restype = ctypes.c_void_p
    display = x11.XOpenDisplay(None)
    if display:
        x11.XCloseDisplay(ctypes.c_void_p(display))
    return bool(display)


def _egl_works() -> bool:
    """Whether EGL has a device. The library alone is not enough: it may be installed without a driver."""
    egl = _load("libEGL.so.1")
    if egl is None:
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return False
    count = ctypes.c_int(0)
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)
    return bool(query(0, None, ctypes.byref(count))) and count.value > 0


def _osmesa_works() -> bool:
    """Whether OSMesa can create a context."""
    osmesa = _load("libOSMesa.so.8") or _load("libOSMesa.so.6")
    if osmesa is None:
        return False
    osmesa.OSMesaCreateContext.restype = ctypes.c_void_p
    context = osmesa.OSMesaCreateContext(_OSMESA_RGBA, None)
    if context:
        osmesa.OSMesaDestroyContext(ctypes.c_void_p(context))
    return bool(context)


def _load(library: str) -> ctypes.CDLL | None:
    with suppress(OSError):
        return ctypes.CDLL(library)
    return None


BACKENDS = (
    Backend("glfw", "libglfw3", lambda: _glfw_works()),
    Backend("egl", "libegl1", lambda: _egl_works()),
    Backend("osmesa", "libosmesa6", lambda: _osmesa_works()),
)
INSTALL = "sudo apt-get install libegl1 (or libosmesa6)"
