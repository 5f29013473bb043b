"""Reports: what a run folder tells, as one page for people. Reads files only; never torch, never code of a run.

``reverie.report(...)`` is also a function of the Python API. Importing this package puts the package in its place, so
calling the package calls that function.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("reverie.api").report(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
