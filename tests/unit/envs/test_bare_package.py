"""Importing a module of a package whose own import fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from reverie.envs.bare_package import skip_init


def test_a_module_can_be_imported_although_its_package_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('needs the old gym')")
    (package / "tasks.py").write_text("from broken_package.parts import NUMBER")
    (package / "parts.py").write_text("NUMBER = 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="old gym"):
        importlib.import_module("broken_package.tasks")
    for _ in range(2):
        skip_init("broken_package")
        assert importlib.import_module("broken_package.tasks").NUMBER == 5
    for name in [name for name in sys.modules if name.startswith("broken_package")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_missing_package_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        skip_init("no_such_package")
