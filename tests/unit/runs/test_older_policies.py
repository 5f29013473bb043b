"""Saved policies of earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie.api import make_config
from reverie.config.schema import SCHEMA_VERSION
from reverie.core.errors import ConfigError
from reverie.policy import read_bundle
from reverie.runs.policies import PolicyShelf, load_policy
from reverie.store.run_folder import RunFolder, create_run
from tests.sessions import started

FORMER = {"target_rate": "slow_rate", "exploration_noise": "explore_noise", "image_bias_init": "images_start"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with the policy of a small Dreamer."""
    run = create_run(tmp_path, "CartPole-v1:dreamer", 1, "", [])
    config = make_config("CartPole-v1", ["debug"], algorithm="dreamer", seed=1)
    with started(config) as trained:
        PolicyShelf(run).save(trained.session, "final")
    return run


def change_bundle(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, **about: Any) -> None:
    """Let the policy read as one of an earlier version."""

    def read(path: Path) -> Any:
        bundle = read_bundle(path)
        settings = bundle["algorithm_config"]
        bundle["algorithm_config"] = {FORMER.get(name, name): value for name, value in settings.items()}
        bundle["about"]["backend"]["products"] = bundle["about"]["backend"].pop("matmul")
        bundle["about"].pop("schema_version", None)
        bundle["about"] |= about
        return bundle

    monkeypatch.setattr("reverie.runs.policies.read_bundle", read)


def test_settings_of_an_earlier_version_are_migrated(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, current = load_policy(folder.path, "final")
    change_bundle(folder, monkeypatch)
    policy, about = load_policy(folder.path, "final")
    assert policy.algorithm.config == expected.algorithm.config
    assert about["backend"]["matmul"] == current["backend"]["matmul"]


def test_a_policy_of_a_newer_version_is_refused(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    change_bundle(folder, monkeypatch, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(ConfigError, match="made by a newer Reverie"):
        load_policy(folder.path, "final")
