"""A small algorithm and its parts, so that the config layer is tested without torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.schedule import Scheduled


class Narrow:
    class Config(ComponentConfig):
        kind: str = "narrow"
        units: tuple[int, ...] = (8,)
        """Widths of the layers."""


class Wide:
    class Config(ComponentConfig):
        kind: str = "wide"
        units: tuple[int, ...] = (64, 64)
        """Widths of the layers."""
        bias: bool = True


class NoConfig:
    pass


class Head(Config):
    units: tuple[int, ...] = (4,)
    scale: float = 1.0


class ToyAlgorithm:
    hooks = ("update", "update_model")

    class Config(ComponentConfig):
        kind: str = "toy"
        learning_rate: Scheduled = 3e-4  # type: ignore[assignment]
        """Step size."""
        gamma: float = Field(0.99, ge=0, le=1)
        """Discount."""
        epochs: int = 2
        batch_size: int | float = 64
        part: Annotated[ComponentConfig, Component("toy_part")] = Narrow.Config(units=(16,))
        """The trunk."""
        head: Head = Head()
        extra: Annotated[ComponentConfig, Component("toy_part")] | None = None


class OtherAlgorithm:
    hooks = ("update",)

    class Config(ComponentConfig):
        kind: str = "other"
        gamma: float = 0.5
