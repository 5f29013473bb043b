"""Gymnasium's Box2D envs: LunarLander, BipedalWalker, CarRacing."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.envs.batch_task import same_ids
from reverie.envs.repairs import BeforeReset
from reverie.envs.suite import NO_KEY, Env, KeyMap, Suite
from reverie.envs.vary import Variation

_WALKER = ("gymnasium.envs.box2d.bipedal_walker", "BipedalWalker")
_BRIGHTEST = 245.0
"""CarRacing adds up to 10 to the colour of a tile, and 255 is the most that pygame draws."""


def _repair(env: Env) -> Env:
    names = [(base.__module__, base.__name__) for base in type(env.unwrapped).__mro__]
    return BeforeReset(env, _renew_world) if _WALKER in names else env


def _renew_world(walker: Any) -> None:
    """BipedalWalker keeps its Box2D world across resets, and earlier bodies in it change the solver's results."""
    walker._destroy()  # before the world of these bodies is replaced
    walker.world = type(walker.world)()


def _variations(env: Any) -> dict[str, Variation]:
    """CarRacing's: friction is that of the road, whose tiles the reset makes, like the car. Grass stays at 0.6."""
    if not hasattr(env, "road_color"):
        return {}
    names = ("road_color", "bg_color", "grass_color")
    colours = {name: np.array(getattr(env, name)) for name in names}

    def write_colour(factors: Array) -> None:
        for name, colour in colours.items():
            setattr(env, name, np.clip(colour * factors, 0, _BRIGHTEST))

    def write_mass(factors: Array) -> None:
        for body in (env.car.hull, *env.car.wheels):
            for fixture in body.fixtures:
                fixture.density *= float(factors[0])
            body.ResetMassData()

    def write_friction(factors: Array) -> None:
        for tile in env.road:
            tile.road_friction = float(factors[0])

    return {
        "colour": Variation(write_colour),
        "mass": Variation(write_mass, after_reset=True),
        "friction": Variation(write_friction, after_reset=True),
    }


SUITE = Suite(
    name="box2d",
    title="LunarLander, BipedalWalker and CarRacing",
    example="LunarLander-v3",
    id_forms=("LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"),
    modules=("gymnasium.envs.box2d",),
    extra="box2d",
    packages={"Box2D": "Box2D"},
    # Where warnings are errors, this one ends the interpreter.
    ignored_warnings=("builtin type .* has no __module__",),
    repair=_repair,
    variations=_variations,
    envpool=same_ids(
        (
            "LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3",
            "CarRacing-v3",
        )
    ),
    keys={
        "LunarLander": KeyMap({"left": 1, "up": 2, "right": 3, NO_KEY: 0}, fps=30),
        "CarRacing": KeyMap({"right": 1, "left": 2, "up": 3, "down": 4, NO_KEY: 0}),
    },
    continuous_keys={
        "LunarLander": KeyMap({"left": (0, -1), "right": (0, 1), "up": (1, 0), NO_KEY: (0, 0)}, fps=30),
        "CarRacing": KeyMap(
            {"left": (-1, 0, 0), "right": (1, 0, 0), "up": (0, 1, 0), "down": (0, 0, 0.8), NO_KEY: (0, 0, 0)}
        ),
        "BipedalWalker": KeyMap(
            {
                "w": (1, 0, 0, 0), "s": (-1, 0, 0, 0), "e": (0, 1, 0, 0), "d": (0, -1, 0, 0), "u": (0, 0, 1, 0),
                "j": (0, 0, -1, 0), "i": (0, 0, 0, 1), "k": (0, 0, 0, -1), NO_KEY: (0, 0, 0, 0),
            }
        ),
    },
)  # fmt: skip
