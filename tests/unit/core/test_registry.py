"""Kinds and the classes behind them."""

from __future__ import annotations

from collections import OrderedDict

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


def test_a_dotted_path_is_a_kind() -> None:
    assert registry.load("network", "collections.OrderedDict") is OrderedDict


def test_a_near_miss_names_the_right_kind() -> None:
    with pytest.raises(ConfigError, match="no vector called 'proces'") as caught:
        registry.load("vector", "proces")
    assert "'process'" in caught.value.fix


def test_a_missing_module_is_named() -> None:
    with pytest.raises(ConfigError, match="no module named 'no_such_module'"):
        registry.load("network", "no_such_module.Network")


def test_a_missing_name_in_a_module_is_answered_with_near_ones() -> None:
    with pytest.raises(ConfigError, match="'collections' has no network 'OrderedDic'") as caught:
        registry.load("network", "collections.OrderedDic")
    assert "'OrderedDict'" in caught.value.fix


def test_foreign_code_is_refused_inside_the_block_only() -> None:
    with registry.known_kinds_only():
        assert registry.load("vector", "sync").__name__ == "SyncVector"
        with pytest.raises(ConfigError, match="not imported unless you say so") as caught:
            registry.load("network", "collections.OrderedDict")
        assert "--trust" in caught.value.fix
    assert registry.load("network", "collections.OrderedDict") is OrderedDict


def test_refusal_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), registry.known_kinds_only():
        raise KeyError
    assert registry.load("network", "collections.OrderedDict") is OrderedDict
