"""The base of configs and the fields whose class depends on their kind."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from reverie.core import registry
from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.errors import ConfigError


class Small:
    class Config(ComponentConfig):
        kind: str = "small"
        width: int = 3


class Whole(Config):
    part: Annotated[ComponentConfig, Component("toy")] = Small.Config()
    others: tuple[Annotated[ComponentConfig, Component("toy")], ...] = ()


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, "toy", {"small": f"{__name__}.Small"})
    monkeypatch.setattr(registry, "import_name", lambda target, what: Small)


def test_a_dump_keeps_the_fields_of_the_chosen_class() -> None:
    whole = Whole.model_validate({"part": {"kind": "small", "width": 9}, "others": ["small"]})
    dumped = whole.model_dump(mode="json")
    assert dumped == {"part": {"kind": "small", "width": 9}, "others": [{"kind": "small", "width": 3}]}
    assert Whole.model_validate(dumped) == whole


def test_kind_without_settings_uses_the_defaults() -> None:
    assert Whole.model_validate({"part": "small"}).part == Small.Config()
    given = Small.Config(width=5)
    assert Whole(part=given).part is given


@pytest.mark.parametrize("wrong", [{}, {"width": 3}, 5, None, {"kind": 3}])
def test_missing_kind_lists_the_known_ones(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="needs a 'kind', one of: small"):
        Whole.model_validate({"part": wrong})


def test_unknown_kind_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        Whole.model_validate({"part": "smal"})
    assert "'small'" in caught.value.fix


def test_configs_are_frozen_and_refuse_unknown_keys() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Small.Config().width = 4  # type: ignore[misc]
    with pytest.raises(ValidationError, match="withd"):
        Whole.model_validate({"part": {"kind": "small", "withd": 3}})
