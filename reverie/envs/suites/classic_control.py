"""Gymnasium's classic control: CartPole, MountainCar, Acrobot, Pendulum. Comes with Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.errors import RunError
from reverie.core.types import Array, State
from reverie.core.wording import count
from reverie.envs.batch_task import same_ids
from reverie.envs.suite import NO_KEY, KeyMap, Suite


class CartPoleState:
    """Gymnasium's ``CartPoleVectorEnv``: its arrays and its random generator."""

    def save(self, env: Any) -> State | None:
        if env.state is None:
            return None
        arrays = {"state": env.state.copy(), "steps": env.steps.copy(), "prev_done": env.prev_done.copy()}
        return {**arrays, "random": _plain(env.np_random)}

    def load(self, env: Any, state: State | None) -> None:
        if state is None:
            env.state = None
            return
        if state["steps"].shape != (env.num_envs,):
            raise RunError(
                f"The checkpoint has {count(len(state['steps']), 'env')}, this run has {env.num_envs}.",
                f"Set env.num_envs={len(state['steps'])} to continue, or start a new run.",
            )
        for name in ("state", "steps", "prev_done"):
            setattr(env, name, state[name].copy())
        numbers = {key: int(value) for key, value in state["random"]["state"].items()}
        env.np_random.bit_generator.state = {**state["random"], "state": numbers}

    def pending(self, env: Any) -> Array:
        done: Array = env.prev_done.copy()
        return done


def _plain(rng: np.random.Generator) -> State:
    """A generator's state with its 128-bit numbers as text: JSON readers may round big integers."""
    state: Any = rng.bit_generator.state
    return {**state, "state": {key: str(number) for key, number in state["state"].items()}}


SUITE = Suite(
    name="classic_control",
    title="Gymnasium's classic control",
    example="CartPole-v1",
    id_forms=("CartPole-v1", "Acrobot-v1"),
    modules=("gymnasium.envs.classic_control",),
    envpool=same_ids(
        ("CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
    ),
    vector_states={"gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": CartPoleState()},
    keys={
        "CartPole": KeyMap({"left": 0, "right": 1, NO_KEY: (0, 1)}, fps=15),
        "MountainCar": KeyMap({"left": 0, "right": 2, NO_KEY: 1}),
        "Acrobot": KeyMap({"left": 0, "right": 2, NO_KEY: 1}),
    },
    continuous_keys={
        "MountainCarContinuous": KeyMap({"left": (-1,), "right": (1,), NO_KEY: (0,)}),
        "Pendulum": KeyMap({"left": (2,), "right": (-2,), NO_KEY: (0,)}),
    },
)
