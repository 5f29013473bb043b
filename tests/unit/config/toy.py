"""A small algorithm and its parts, so that the config layer is tested without torch."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config
from reverie.core.contracts import BufferTraits, Traits
from reverie.core.reads import Rollout
from reverie.core.schedule import Scheduled


class Narrow:
    traits = BufferTraits(serves=(Rollout,))

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


def never(*arguments: object) -> None:
    raise AssertionError("the config layer acts and learns nothing")


class Complete:
    """The methods of every algorithm."""

    reads: ClassVar = dict.fromkeys(("update", "update_model"), Rollout())
    initial_carry = act = state = load_state = policy_state = load_policy_state = update = update_model = never

    def __init__(self, *arguments: object) -> None:
        """Builds nothing."""


class ToyAlgorithm(Complete):
    traits = Traits(hooks=("update", "update_model"))

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


class OtherAlgorithm(Complete):
    traits = Traits()

    class Config(ComponentConfig):
        kind: str = "other"
        gamma: float = 0.5


class ToyChild(ToyAlgorithm):
    """Adds a setting to those of its parent."""

    class Config(ToyAlgorithm.Config):
        kind: str = "tests.unit.config.toy.ToyChild"
        more: int = 1


class Estranged(ToyAlgorithm):
    """Has none of its parent's settings."""

    class Config(ComponentConfig):
        kind: str = "tests.unit.config.toy.Estranged"


class NoTraits(Complete):
    Config = OtherAlgorithm.Config


class FormerHooks(Complete):
    """Declares its capabilities as in earlier versions."""

    hooks = ("update", "update_model")
    is_on_policy = True
    uses_memory = False
    Config = OtherAlgorithm.Config


class FormerChild(ToyAlgorithm):
    uses_priorities = True


class NothingButTraits:
    traits = Traits()
    Config = OtherAlgorithm.Config


class WrongHooks(Complete):
    traits = Traits(hooks="update")  # type: ignore[arg-type]
    Config = OtherAlgorithm.Config


class WrongActions(Complete):
    traits = Traits(actions=("discreet",))  # type: ignore[arg-type]
    Config = OtherAlgorithm.Config


class NoMethod(Complete):
    traits = Traits(hooks=("update", "update_dreams"))
    Config = OtherAlgorithm.Config


class HalfAModel(Complete):
    traits = Traits()
    imagine = observe = never
    Config = OtherAlgorithm.Config


class PlainConfig(Complete):
    traits = Traits()

    class Config:
        gamma = 0.5
