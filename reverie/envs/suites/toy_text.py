"""Gymnasium's toy text envs: FrozenLake, CliffWalking, Taxi, Blackjack. Comes with Gymnasium."""

from __future__ import annotations

from reverie.envs.suite import KeyMap, Suite

SUITE = Suite(
    name="toy_text",
    title="Gymnasium's toy text",
    example="CliffWalkingSlippery-v1",
    id_forms=("Taxi-v4", "FrozenLake-v1"),
    modules=("gymnasium.envs.toy_text",),
    keys={
        "FrozenLake": KeyMap({"left": 0, "down": 1, "right": 2, "up": 3}),
        "CliffWalking": KeyMap({"up": 0, "right": 1, "down": 2, "left": 3}),
        "Taxi": KeyMap({"down": 0, "up": 1, "right": 2, "left": 3, "p": 4, "d": 5}),
        "Blackjack": KeyMap({"s": 0, "h": 1}),
    },
)
