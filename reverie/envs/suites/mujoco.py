"""Gymnasium's MuJoCo envs: HalfCheetah, Hopper, Ant, Humanoid and others."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import numpy as np

from reverie.core.types import Array, Row
from reverie.envs.batch_task import same_ids
from reverie.envs.suite import Suite
from reverie.envs.vary import Variation

_printed: set[str] = set()
"""Kinds of MuJoCo warnings that were printed in this process."""


class MujocoState:
    """All that the next integration step depends on. Derived values that envs read before it may be outdated."""

    def save(self, env: Any) -> Row:
        return {"mujoco": read_state(env.model, env.data)}

    def load(self, env: Any, arrays: Row) -> None:
        write_state(env.model, env.data, arrays["mujoco"])


def read_state(model: Any, data: Any) -> Array:
    """MuJoCo's integration state as a vector."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, numbers, kind)
    return numbers


def write_state(model: Any, data: Any, numbers: Array) -> None:
    import mujoco

    mujoco.mj_setState(model, data, numbers, mujoco.mjtState.mjSTATE_INTEGRATION)


def vary_model(model: Any, data: Any) -> dict[str, Variation]:
    """Variations of a MuJoCo model and its data, as the ``mujoco`` package has them."""
    import mujoco

    colours = [(table, table.copy()) for table in (model.geom_rgba, model.mat_rgba)]
    masses, inertias, frictions = model.body_mass.copy(), model.body_inertia.copy(), model.geom_friction.copy()

    def write_colour(factors: Array) -> None:
        for table, original in colours:
            table[:, :3] = np.clip(original[:, :3] * factors, 0, 1)

    def write_mass(factors: Array) -> None:
        model.body_mass[:], model.body_inertia[:] = masses * factors, inertias * factors
        mujoco.mj_setConst(model, data)

    def write_friction(factors: Array) -> None:
        model.geom_friction[:, 0] = frictions[:, 0] * factors

    return {"colour": Variation(write_colour), "mass": Variation(write_mass), "friction": Variation(write_friction)}


def _print_warnings() -> None:
    """Print MuJoCo's warnings. By default it also appends each of them to a file in the current folder."""
    with suppress(ImportError):  # reported when the env is made
        import mujoco

        mujoco.set_mju_user_warning(_print_warning)


def _print_warning(text: str) -> None:
    """Print each kind once per process. Skip warnings about deprecated model files, which belong to Gymnasium."""
    kind = text.partition(" at ")[0]  # without the joint and the time
    if kind in _printed or "is deprecated" in text:
        return
    _printed.add(kind)
    with suppress(Exception):  # C calls this function, and an exception would end the process
        print(f"MuJoCo warns: {text}", file=sys.stderr)


_ENVPOOL = (
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum",
    "Pusher", "Reacher", "Swimmer", "Walker2d",
)  # fmt: skip
_ENVPOOL_ARGUMENTS = (
    "frame_skip", "forward_reward_weight", "ctrl_cost_weight", "contact_cost_weight", "healthy_reward",
    "terminate_when_unhealthy", "exclude_current_positions_from_observation", "reset_noise_scale",
)  # fmt: skip

SUITE = Suite(
    name="mujoco",
    title="Hopper, HalfCheetah and the like",
    example="Pusher-v5",
    id_forms=("HalfCheetah-v5", "Hopper-v5"),
    modules=("gymnasium.envs.mujoco",),
    extra="mujoco",
    packages={"mujoco": "mujoco"},
    renderer="gl",
    prepare=_print_warnings,
    variations=lambda env: vary_model(env.model, env.data),
    accelerator=lambda env: MujocoState(),
    envpool=same_ids((f"{name}-v5" for name in _ENVPOOL), _ENVPOOL_ARGUMENTS),
)
