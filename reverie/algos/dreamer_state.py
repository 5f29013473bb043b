"""Checkpoints of Dreamer from earlier versions."""

from __future__ import annotations

from reverie.core.errors import RunError
from reverie.core.types import State

STORED_LATENTS = 2
"""Format of categorical latents in carries and replay. In format 1 the first class was 0, which also meant no class."""

RENAMED = {"encoder.pyramid.": "encoder.conv.", "decoder.pyramid.": "decoder.conv.", "slow.": "target."}
"""Parameter names that have changed, by their beginning."""

RENAMED_METRICS = {
    "advantage_size": "advantage_magnitude", "dream_reward": "imagined_reward", "dream_return": "imagined_return",
    "dream_continuation": "imagined_continuation", "dream_value": "imagined_value",
}  # fmt: skip


def with_current_names(state: State) -> State:
    """The state of a module with today's parameter names."""
    return {_current_name(name): value for name, value in state.items()}


def _current_name(name: str) -> str:
    for old, new in RENAMED.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def check_stored_latents(state: State) -> None:
    """Refuse a checkpoint whose replay has categorical latents in another format."""
    if state.get("stored_latents", 1) != STORED_LATENTS:
        raise RunError(
            "The checkpoint stores latents in replay in an older format, which would be read as other latents.",
            "Start a new run with --init-from, which takes over the weights of this one.",
        )
