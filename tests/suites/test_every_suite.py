"""The example of every suite that is installed: random steps, frames, memory, snapshots as declared, a short training.

``make test-envs`` plays 1,000 steps in each (``SUITE_STEPS``), other runs fewer.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from reverie.config.catalogue import find_env_config
from reverie.config.presets import find_env_preset, variant_names
from reverie.envs.config import EnvConfig
from reverie.envs.smoke import smoke_test
from reverie.envs.snapshot import probe_snapshot
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES
from reverie.runs.smoke import train_briefly
from tests.conftest import SCRIPTS

STEPS = int(os.environ.get("SUITE_STEPS", "100"))
TRAINED = {"bandits": "Bandit/Bernoulli-v0"}
"""What is trained where the example has no preset."""


def marked(suite: Suite) -> Any:
    needed = suite.extra or (suite.name if suite.name in SCRIPTS else "")
    return pytest.param(suite, marks=[pytest.mark.needs(needed)] if needed else [], id=suite.name)


each_suite = pytest.mark.parametrize("suite", [marked(suite) for suite in SUITES])


@each_suite
def test_its_example_passes_the_smoke_test(suite: Suite) -> None:
    result = smoke_test(find_env_config(suite.example), STEPS)
    assert result.problems == ()
    assert result.growth is not None


@each_suite
def test_its_snapshots_are_as_declared(suite: Suite) -> None:
    verdict = probe_snapshot(EnvConfig(id=suite.example))
    assert (verdict.kind, verdict.method != "unchecked") == (suite.snapshots, True), verdict


@each_suite
def test_a_short_training(suite: Suite) -> None:
    env = TRAINED.get(suite.name, suite.example)
    assert find_env_preset(env) is not None
    names = variant_names(env)
    problem, detail = train_briefly(f"{env}:{'ppo' if 'ppo' in names else names[0]}", steps=100, timeout=None)
    assert problem == "", detail
