"""The base of every config class: frozen, typed, unknown keys refused, each field explained beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import core_schema

from reverie.core import registry


class Config(BaseModel):
    """Base of all configs. The text under a field is its meaning; ``reverie config explain`` prints it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class ComponentConfig(Config):
    """The config of a component that the registry can replace."""

    built_once: ClassVar[frozenset[str]] = frozenset()
    """Fields that only count when the component is built, so a phase cannot change them."""

    kind: str
    """Which class to use: a registered name, or the dotted path of your own class."""


@dataclass(frozen=True)
class Component:
    """Marks a field whose class depends on its ``kind``: ``Annotated[ComponentConfig, Component("network")]``."""

    group: str

    def config_class(self, kind: str) -> type[ComponentConfig]:
        config: type[ComponentConfig] = registry.load(self.group, kind).Config
        return config

    def parse(self, value: Any) -> ComponentConfig:
        """A mapping with a ``kind``, or the bare kind, as the config it stands for."""
        if isinstance(value, ComponentConfig):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise ValueError(f"needs a 'kind', one of: {', '.join(registry.kinds(self.group))}")
        return self.config_class(value["kind"]).model_validate(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        # Without its own serialiser a field typed by a base class would dump the base's fields only.
        dump = core_schema.plain_serializer_function_ser_schema(_dump)
        return core_schema.no_info_plain_validator_function(self.parse, serialization=dump)


def _dump(value: ComponentConfig) -> dict[str, Any]:
    return value.model_dump(mode="json")
