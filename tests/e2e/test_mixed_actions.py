"""Mixed actions, from the env to the loaded agent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reverie import api
from reverie.core.errors import ConfigError


def test_mixed_actions_work_from_env_to_policy(tmp_path: Path) -> None:
    """A Dict of discrete and continuous actions works in the whole loop. Unsupported algorithms are refused."""
    words = (
        "log.report=false",
        "env.kwargs.action=mixed",
        "env.num_envs=2",
        "env.vector=sync",
        "evaluate.final_episodes=1",
    )
    phases = (
        "phases.prefill.duration_steps=30", "phases.prefill.collect.rows=30", "phases.learn.duration_steps=16",
        "phases.learn.collect.rows=8", "phases.learn.update.train_ratio=8", "evaluate.num_envs=1",
    )  # fmt: skip
    run = api.train("Reverie/Counting-v0:dreamer", "debug", *words, *phases, runs_dir=tmp_path)
    assert run.status["state"] == "finished"
    action = run.agent().act(np.zeros(4, np.float32))
    assert set(action) == {"buttons", "force"}
    assert action["force"].shape == (2,)
    with pytest.raises(ConfigError, match="this env has mixed ones"):
        api.train("Reverie/Counting-v0:ppo", *words, runs_dir=tmp_path)
