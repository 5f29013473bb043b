"""Frames per env step, from the env config alone."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.envs.action_repeat import action_repeat
from reverie.envs.config import EnvConfig

REPEAT = {"kind": "action_repeat", "repeats": 3}
LIMIT = {"kind": "time_limit", "steps": 9}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"id": "CartPole-v1"}, 1),
        ({"id": "CartPole-v1", "wrappers": [REPEAT, LIMIT, {"kind": "action_repeat"}]}, 6),
        ({"id": "ALE/Pong-v5"}, 4),
        ({"id": "ale_py:ALE/Pong-v5", "kwargs": {"frameskip": 1}, "wrappers": [REPEAT]}, 3),
        ({"id": "ale_py:ALE/Pong-v5", "kwargs": {"frameskip": [2, 5]}}, 2),
        ({"id": "VizdoomBasic-v1", "kwargs": {"frame_skip": 4}, "wrappers": [REPEAT]}, 12),
        ({"id": "dmlab/rooms_watermaze"}, 4),
    ],
)
def test_wrappers_and_the_frame_skip_of_the_env_count(settings: dict[str, Any], expected: int) -> None:
    assert action_repeat(EnvConfig.model_validate(settings)) == expected
