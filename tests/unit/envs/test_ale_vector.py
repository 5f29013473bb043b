"""ale_py's own vector: the frames of the other vectors, and the same meaning of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_vector
from reverie.envs.snapshot import probe_snapshot

pytestmark = pytest.mark.needs("atari")
STACK = {"kind": "frame_stack", "frames": 4}


def make(vector: str, num_envs: int = 1, game: str = "Breakout", stack: int = 4, seed: int = 0, **settings: Any) -> Any:
    """A game without chance. 105x80 is half the screen, where every way of resizing averages the same pixels."""
    atari = {"kind": "atari", "noops": 0, "height": 105, "width": 80, **settings.pop("atari", {})}
    wrappers = [atari, *([{**STACK, "frames": stack}] if stack > 1 else [])]
    kwargs = {"repeat_action_probability": 0.0}
    given = {
        "id": f"ALE/{game}-v5",
        "obs": "gray",
        "vector": vector,
        "wrappers": wrappers,
        "kwargs": kwargs,
        **settings,
    }
    return make_vector(EnvConfig.model_validate(given), seed, num_envs=num_envs)


@pytest.mark.parametrize(
    "settings",
    [
        {"obs": "gray"},
        {"obs": "rgb", "atari": {"fire": True}},
        {"obs": "rgb", "stack": 1},
        {"atari": {"max_frames": False}, "game": "Pong"},
        {"max_episode_steps": 7, "stack": 3},
    ],
)
def test_frames_rewards_and_ends_are_those_of_sync(settings: dict[str, Any]) -> None:
    sync, native = make("sync", **settings), make("native", **settings)
    one, other = sync.reset(), native.reset()
    for action in np.random.default_rng(0).integers(0, sync.specs.action.classes[0], (60, 1)):
        assert one["obs"].shape == other["obs"].shape
        if not one["truncated"]:  # the wrapper atari leaves out the last frame before a time limit
            assert np.abs(one["obs"].astype(int) - other["obs"]).max() <= 1
        assert all(one[key] == other[key] for key in ("reward", "is_first", "terminated", "truncated"))
        one, other = sync.step(action), native.step(action)


def test_a_lost_life_ends_an_episode_and_the_game_goes_on() -> None:
    vector = make("native", 2, atari={"life_loss": True, "fire": True})
    vector.reset()
    ends = 0
    for _ in range(150):
        before = vector._pending.copy()
        row = vector.step(np.ones(2, np.int64))
        assert (row["is_first"] == before).all()
        assert not row["truncated"].any()
        ends += int(row["terminated"].sum())
        first = row["obs"][row["is_first"]]
        assert (first == first[..., :1]).all()
        assert first.any() or not len(first)
    assert ends >= 2


def test_rows_stay_as_they_were_returned() -> None:
    vector = make("native", 2, stack=1)
    first = vector.reset()
    kept = first["obs"].copy()
    for _ in range(5):
        vector.step(np.ones(2, np.int64))
    assert first["obs"].tobytes() == kept.tobytes()


def test_seeds_decide_the_no_ops() -> None:
    def starts(seed: int) -> list[bytes]:
        vector = make("native", 8, "Pong", stack=1, seed=seed, atari={"noops": 30})
        rows = [vector.reset(), *(vector.step(np.zeros(8, np.int64)) for _ in range(30))]
        return [row.tobytes() for row in rows[-1]["obs"]]

    one, same, other = starts(0), starts(0), starts(1)
    assert one == same != other
    assert len(set(one)) > 1


def test_a_resume_truncates_the_games_and_starts_new_ones() -> None:
    vector = make("native", 2)
    now = vector.reset()
    for _ in range(5):
        now = vector.step(np.ones(2, np.int64))
    restored = make("native", 2)
    restored.load_state(vector.state())
    assert restored.check_restored(now) == 2
    rows = [restored.step(np.ones(2, np.int64)) for _ in range(3)]
    assert rows[0]["truncated"].all()
    assert rows[0]["obs"].tobytes() == now["obs"].tobytes()
    assert [row["is_first"].tolist() for row in rows] == [[False] * 2, [True] * 2, [False] * 2]


def test_an_env_that_rests_keeps_its_next_episode() -> None:
    vector = make("native", 2, max_episode_steps=3)
    vector.reset()
    for _ in range(3):
        row = vector.step(np.ones(2, np.int64))
    assert row["truncated"].all()
    rest = vector.step(np.ones(2, np.int64), np.array([False, True]))
    assert rest["is_first"].all()
    assert not rest["obs"][0].any()
    after = vector.step(np.ones(2, np.int64))
    assert after["is_first"].tolist() == [True, False]


def test_presets_run_in_it_and_snapshots_are_declared() -> None:
    config = make_config("atari/pong:ppo", ["env.vector=native"]).env
    rows = make_vector(config, 0, num_envs=2).reset()
    assert rows["obs"].shape == (2, 84, 84, 4)
    verdict = probe_snapshot(config)
    assert (verdict.kind, verdict.method) == ("statistical", "none")
    assert "new episodes" in verdict.reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"obs": "ram"}, "only images"),
        ({"wrappers": ()}, "must come first"),
        ({"kwargs": {"mode": 1}}, r"env\.kwargs\.mode"),
        ({"log_keys": ("lives",)}, r"env\.log_keys"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_way_out(settings: dict[str, Any], message: str) -> None:
    given = {"id": "ALE/Pong-v5", "vector": "native", "wrappers": ({"kind": "atari"},), **settings}
    with pytest.raises(ConfigError, match=message) as caught:
        make_vector(EnvConfig.model_validate(given), 0)
    assert "env.vector=sync" in caught.value.fix


def test_the_first_images_of_an_episode_fill_its_stacks() -> None:
    from reverie.envs.ale_vector import _repeat_first

    images: Array = np.arange(1, 13, dtype=np.uint8).reshape(3, 4, 1)
    filled = _repeat_first(images, np.array([0, 2, 9]))[..., 0]
    assert filled.tolist() == [[4, 4, 4, 4], [6, 6, 7, 8], [9, 10, 11, 12]]
    assert images[0, 0, 0] == 1
