"""What the first update of a run sees: rewards and stored observations that are already normalised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reverie.config.schema import RunConfig
from reverie.core.types import Batch, Update
from reverie.data.source import read_episodes
from reverie.envs.config import EnvConfig
from reverie.runs.datasets import EpisodeRecorder
from tests.sessions import checking_config, started


def updates_of(config: RunConfig) -> list[tuple[Batch, Mapping[str, Any]]]:
    """Every batch that reaches the algorithm, and the state of the normaliser at that moment."""
    seen: list[tuple[Batch, Mapping[str, Any]]] = []
    with started(config) as run:

        def learn(hook: str, batch: Batch) -> Update:
            seen.append((batch, run.session.normaliser.state()))
            return Update({}, 1)

        run.orchestrator.learn = learn  # type: ignore[method-assign]
        assert run.orchestrator.run()
    return seen


def test_the_first_rollout_is_scaled_by_its_own_rewards() -> None:
    phase = {"hooks": [{"collect": {"rows": 60}}, {"update": {}}], "duration_cycles": 2}
    (first, before), (_, after) = updates_of(checking_config(phase, normaliser={"reward": True}))
    steps = first["obs"][..., 1]  # a row's reward is the number of its step
    samples = int((~first["is_first"]).sum())
    returns = before["returns"]
    assert returns["count"] == samples > 30
    scale = 1 / np.sqrt(returns["squares"] / samples + 1e-8)
    np.testing.assert_allclose(first["reward"], steps * scale, rtol=1e-6)
    assert after["returns"]["count"] > samples
    assert after["pending_rewards_length"] == 0


def test_observation_statistics_stand_still_until_the_cycle_ends() -> None:
    phase = {"hooks": [{"collect": {"rows": 60}}, {"update": {}}], "duration_cycles": 1}
    normaliser = {"observation": "rolling", "observation_clip": 1e9, "reward": True}
    ((batch, state),) = updates_of(checking_config(phase, normaliser=normaliser))
    assert state["observations"]["obs"]["count"] == 0
    assert state["pending_length"] == 21
    assert batch["obs"].max() > 10  # as the env showed it, and as the policy saw it


def test_stored_rows_of_all_lanes_normalise_the_first_update(tmp_path: Path) -> None:
    kwargs = {"length": 9, "varied": True}
    env = EnvConfig(id="Reverie/Counting-v0", kwargs=kwargs)
    player = EpisodeRecorder.of_random_play(env)
    source = str(player.record(13, 0, tmp_path / "data"))
    episodes = list(read_episodes(source, player.specs, 0, held_out=False))
    rows = np.concatenate([episode["obs"] for episode in episodes]).astype(np.float64)
    config = checking_config(
        {"type": "offline", "hooks": [{"update_windows": {"updates": 1}}], "duration_updates": 1},
        env={"kwargs": kwargs, "num_envs": 5},
        buffers={"main": {"kind": "replay", "capacity": 1000, "source": source}},
        normaliser={"observation": "rolling", "reward": True, "observation_clip": 1e6},
    )
    ((_, state),) = updates_of(config)
    found = state["observations"]["obs"]
    assert found["count"] == len(rows)
    np.testing.assert_allclose(found["mean"], rows.mean(axis=0))
    assert state["returns"]["count"] == len(rows) - len(episodes)
