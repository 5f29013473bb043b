"""Kinds and the classes behind them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from reverie.core import registry
from reverie.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {group: dict(kinds) for group, kinds in registry._TABLE.items()}
    monkeypatch.setattr(registry, "_TABLE", table)


def test_a_registered_class_is_found_by_its_name() -> None:
    registry.register("controller", "ordered", "collections.OrderedDict")
    assert registry.load("controller", "ordered") is OrderedDict
    assert "ordered" in registry.kinds("controller")


def test_a_new_group_can_be_registered() -> None:
    registry.register("monitor", "ordered", "collections.OrderedDict")
    assert "monitor" in registry.groups()
    assert registry.kinds("monitor") == ["ordered"]


def test_dotted_path_is_accepted_as_a_kind() -> None:
    assert registry.load("network", "collections.OrderedDict") is OrderedDict


def test_misspelt_kind_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no vector called 'proces'") as caught:
        registry.load("vector", "proces")
    assert "'process'" in caught.value.fix


def test_a_missing_module_is_named() -> None:
    with pytest.raises(ConfigError, match="no module named 'no_such_module'"):
        registry.load("network", "no_such_module.Network")


def test_missing_name_in_a_module_lists_the_nearest_ones() -> None:
    with pytest.raises(ConfigError, match="'collections' has no network 'OrderedDic'") as caught:
        registry.load("network", "collections.OrderedDic")
    assert "'OrderedDict'" in caught.value.fix


def test_foreign_code_is_refused_only_inside_the_block() -> None:
    with registry.known_kinds_only():
        assert registry.load("vector", "sync").__name__ == "SyncVector"
        with pytest.raises(ConfigError, match="was not made here") as caught:
            registry.load("network", "collections.OrderedDict")
        assert "--trust" in caught.value.fix
    assert registry.load("network", "collections.OrderedDict") is OrderedDict


def test_trusted_names_are_loaded_inside_the_block() -> None:
    with registry.known_kinds_only(registry.Trust(frozenset({"collections.OrderedDict"}))):
        assert registry.load("network", "collections.OrderedDict") is OrderedDict
        assert not registry.is_own()
        with pytest.raises(ConfigError, match=r"collections\.Counter"):
            registry.load("network", "collections.Counter")
    assert registry.is_own()


def test_refusal_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), registry.known_kinds_only():
        raise KeyError
    assert registry.load("network", "collections.OrderedDict") is OrderedDict


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the command was started."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_user_folder", "")
    registry.search_in(str(tmp_path))
    return tmp_path


def test_module_in_the_users_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_own_things.py").write_text("class Network:\n    pass\n")
    assert str(folder) not in sys.path
    assert registry.load("network", "my_own_things.Network").__module__ == "my_own_things"
    assert sys.path[-1] == str(folder)
    monkeypatch.delitem(sys.modules, "my_own_things")


def test_installed_modules_take_precedence_over_the_users_folder(folder: Path) -> None:
    (folder / "collections.py").write_text("class Network:\n    pass\n")
    assert registry.load("network", "collections.OrderedDict") is OrderedDict
    assert str(folder) not in sys.path
    with pytest.raises(ConfigError, match="'collections' has no network 'Network'") as caught:
        registry.load("network", "collections.Network")
    assert "Rename yours" in caught.value.fix


@pytest.mark.parametrize("name", ["..a.B", ".B", "a..B", "a.b-c.D", "a."])
def test_invalid_dotted_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not name a network"):
        registry.load("network", name)
