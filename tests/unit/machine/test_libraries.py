"""Errors about missing shared libraries name the Debian package."""

from __future__ import annotations

import ctypes

import pytest

from reverie.envs import make
from reverie.envs.render import explain_rendering
from reverie.machine.libraries import install_library


@pytest.mark.parametrize(
    ("library", "advice"),
    [
        ("libGL.so.1", "sudo apt-get install libgl1"),
        ("libGLU.so.1", "sudo apt-get install libglu1-mesa"),
        ("libSDL2-2.0.so.0", "sudo apt-get install libsdl2-2.0-0"),
        ("libgthread-2.0.so.0", "sudo apt-get install libglib2.0-0"),
        ("libunheard.so.7", "Install the Debian package with libunheard.so.7: apt-file search libunheard.so.7"),
    ],
)
def test_a_missing_library_names_its_package(library: str, advice: str) -> None:
    error = ImportError(f"{library}: cannot open shared object file: No such file or directory")
    assert install_library(error) == advice
    assert explain_rendering(error) == advice
    assert advice in make._missing_package("CartPole-v1", error).fix


def test_the_text_is_that_of_the_loader() -> None:
    with pytest.raises(OSError, match="libunheard") as caught:
        ctypes.CDLL("libunheard.so.7")
    assert "libunheard.so.7" in install_library(caught.value)
    assert install_library(ImportError("No module named 'box'")) == ""
