"""Debian packages of shared libraries that envs load, so that an error about a missing one says what to install."""

from __future__ import annotations

import re

DEBIAN_PACKAGES = {
    "libEGL.so": "libegl1",
    "libGL.so": "libgl1",
    "libGLU.so": "libglu1-mesa",
    "libOSMesa.so": "libosmesa6",
    "libOpenGL.so": "libopengl0",
    "libQt5Core.so": "libqt5core5a",
    "libQt5Gui.so": "libqt5gui5",
    "libSDL2": "libsdl2-2.0-0",
    "libX11.so": "libx11-6",
    "libglfw.so": "libglfw3",
    "libglib-2.0.so": "libglib2.0-0",
    "libgthread-2.0.so": "libglib2.0-0",
    "libopenal.so": "libopenal1",
}
"""By the beginning of the library's file name."""
_MISSING = re.compile(r"(lib[\w.+-]*\.so[\w.]*): cannot open shared object file")


def install_library(error: BaseException) -> str:
    """The command that installs the shared library which an error reports as missing. Empty for other errors."""
    found = _MISSING.search(str(error))
    if found is None:
        return ""
    file = found[1]
    package = next((package for start, package in DEBIAN_PACKAGES.items() if file.startswith(start)), None)
    return (
        f"sudo apt-get install {package}"
        if package
        else f"Install the Debian package with {file}: apt-file search {file}"
    )
