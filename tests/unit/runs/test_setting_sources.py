"""Where the settings of a run came from, as it records it itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reverie.config.pipeline import prepare_new
from reverie.runs.setting_sources import write_sources

SPEC = "CartPole-v1:ppo"


def recorded(run: Path, *words: str, steps: int | None = None) -> dict[str, Any]:
    prepared = prepare_new(SPEC, words, 3, steps)
    write_sources(run, SPEC, prepared.config, prepared.composed)
    found: dict[str, Any] = json.loads((run / "sources.json").read_text())
    return found


def test_every_value_has_a_source(tmp_path: Path) -> None:
    found = recorded(tmp_path, "algorithm.gae_lambda=0.7")
    sources = found["sources"]
    assert sources["algorithm.gae_lambda"] == "command line"
    assert sources["algorithm.gamma"] == "env/CartPole-v1.yaml (ppo)"
    assert sources["early_stop"] == "default"
    assert sources["horizon_steps"] == "decided at the start"
    assert sources["algorithm.network.kind"] == "decided at the start"
    assert all(sources.values())
    assert found["preset"] == {"algorithm.gae_lambda": 0.8}


@pytest.mark.parametrize("words", [(), ("algorithm.gamma=0.98",)])
def test_what_equals_the_preset_is_no_difference(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert recorded(tmp_path, *words)["preset"] == {}


def test_another_budget_is_named(tmp_path: Path) -> None:
    found = recorded(tmp_path, steps=5000)
    assert found["preset"] == {"phases.learn.duration_steps": 100000}
    assert found["sources"]["phases.learn.duration_steps"] == "--steps"
