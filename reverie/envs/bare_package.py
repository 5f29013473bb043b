"""Imports modules of packages whose own ``__init__.py`` fails here, because it imports the old ``gym``."""

from __future__ import annotations

import importlib.util
import sys


def skip_init(package: str) -> None:
    """Let ``import package.module`` work without running ``package/__init__.py``."""
    if package in sys.modules:
        return
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)
    sys.modules[package] = importlib.util.module_from_spec(spec)
