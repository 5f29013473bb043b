"""The code on the page about your own algorithms trains as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import reverie as package
from tests.e2e.conftest import Command
from tests.unit.test_project import FENCED, ROOT

BLOCKS = FENCED.findall((ROOT / "docs" / "own_algorithm.md").read_text())
SMALL = ("evaluate.final_episodes=2", "preflight.enabled=false", "env.vector=sync")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Path]:
    """Writes the page's files into the folder of the commands."""
    code = [block for language, block in BLOCKS if language == "python"]
    (tmp_path / "my_module.py").write_text("\n".join(code))
    (tmp_path / "actor_critic.yaml").write_text(next(block for language, block in BLOCKS if language == "yaml"))
    yield tmp_path
    sys.modules.pop("my_module", None)


def test_example_is_as_short_as_documented() -> None:
    example = next(block for language, block in BLOCKS if language == "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 62


def test_the_example_learns_resumes_and_plays(page: Path, reverie: Command) -> None:
    done = reverie("train", "CartPole-v1:my_module.ActorCritic", "actor_critic.yaml", *SMALL, "--steps", "1000")
    assert done.code == 0, done.err
    run = package.find("@last", page / "runs")
    assert run.name == "CartPole-v1-ActorCritic-s0-1"
    agent = package.load(run)
    before = agent.policy.algorithm.policy_state()
    assert agent.act(np.zeros(4, np.float32)) in (0, 1)
    assert reverie("resume", "@last", "--steps", "2000").code == 0
    after = package.load(run, which="final").policy.algorithm.policy_state()
    assert any(not np.array_equal(before[key], after[key]) for key in before)
    losses = [line["update/loss"] for line in run.metrics() if "update/loss" in line]
    assert np.isfinite(losses).all()
    assert len(losses) > 5


def test_ppo_variant_uses_tuned_values(page: Path, reverie: Command) -> None:
    words = ("phases.learn.collect.rows=32", "algorithm.epochs=1", *SMALL)
    done = reverie("train", "CartPole-v1:ppo", "algorithm.kind=my_module.CautiousPPO", *words, "--steps", "64")
    assert done.code == 0, done.err
    run = package.find("@last", page / "runs")
    assert run.name == "CartPole-v1-CautiousPPO-s0-1"
    config = (run.path / "config.yaml").read_text()
    assert "gamma: 0.98" in config
    assert "reward_scale: 0.1" in config
