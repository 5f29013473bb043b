"""Reports: one page about a run, or a comparison of several. Reads files only: no torch, and no code of the run.

``reverie.report(...)`` is also a function of the Python API. Importing this package replaces that attribute, so calling
the package calls the function.
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
