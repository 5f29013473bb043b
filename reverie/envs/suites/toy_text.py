"""Gymnasium's toy text envs: FrozenLake, CliffWalking, Taxi, Blackjack. Comes with Gymnasium."""

from __future__ import annotations

from reverie.envs.batch_task import BatchTask, only_arguments, same_ids
from reverie.envs.config import EnvConfig
from reverie.envs.suite import KeyMap, Suite

_same = same_ids(("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"))


def _envpool(config: EnvConfig) -> BatchTask | None:
    """Without Blackjack, whose usable aces are others there: in 19 % of the rows, in Gymnasium in 12 %."""
    if config.id == "Taxi-v4":
        return BatchTask("Taxi-v3", only_arguments(config), config.wrappers)
    return _same(config)


SUITE = Suite(
    name="toy_text",
    title="Gymnasium's toy text",
    example="CliffWalkingSlippery-v1",
    id_forms=("Taxi-v4", "FrozenLake-v1"),
    modules=("gymnasium.envs.toy_text",),
    envpool=_envpool,
    keys={
        "FrozenLake": KeyMap({"left": 0, "down": 1, "right": 2, "up": 3}),
        "CliffWalking": KeyMap({"up": 0, "right": 1, "down": 2, "left": 3}),
        "Taxi": KeyMap({"down": 0, "up": 1, "right": 2, "left": 3, "p": 4, "d": 5}),
        "Blackjack": KeyMap({"s": 0, "h": 1}),
    },
)
