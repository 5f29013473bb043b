"""The three commands of ``reverie config``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reverie.cli.config import app
from reverie.config.compose import compose
from reverie.config.files import config_to_yaml
from reverie.config.resolve import resolve_numbers
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _importable_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry._TABLE["toy_part"], "missing")


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "80", "TERM": "dumb"})
    if result.exception:
        raise result.exception
    assert all(len(line) <= 80 for line in result.stdout.splitlines()) or "--json" in words
    return result.stdout


def run_json(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


def test_show_lists_values_and_sources() -> None:
    lines = [line.split() for line in run("show", "Toy-v0:toy", "tiny", "seed=3").splitlines()]
    assert ["seed", "3", "command", "line"] in lines
    assert ["gamma", "0.9", "./env/Toy-v0.yaml", "(toy)"] in lines
    assert ["units", "[2]", "preset", "tiny"] in lines
    assert ["vector", "auto", "default"] in lines


def test_show_prints_notes() -> None:
    assert "No tuned values for toy on Other-v0" in run("show", "Other-v0:toy", "env.num_envs=4")


def test_show_as_json_writes_schedules_in_full() -> None:
    shown = run_json("show", "Toy-v0:slow")
    assert shown["config"]["algorithm"]["learning_rate"]["to"] == 20_000
    assert shown["sources"]["env.num_envs"] == "./presets/env/Toy-v0.yaml"
    assert shown["notes"] == []


def test_show_checks_that_the_parts_fit() -> None:
    with pytest.raises(ConfigError, match=r"phases\.learn\.collect\.rows \(command line\)"):
        run("show", "Toy-v0:toy", "phases.learn.collect.rows=3")


def test_show_prints_the_config_of_a_run(toy: Path) -> None:
    folder = toy / "runs" / "Toy-v0-toy-s3-1"
    folder.mkdir(parents=True)
    config = load_config(resolve_numbers(compose("Toy-v0:toy", ["seed=3"]).tree))
    (folder / "config.yaml").write_text(config_to_yaml(config))
    (folder / "manifest.json").write_text('{"created": 1}')
    assert run_json("show", "@last")["config"]["seed"] == 3
    assert ["seed", "3", "config.yaml"] in [line.split() for line in run("show", "Toy-v0-toy").splitlines()]
    with pytest.raises(ConfigError, match="names an existing run"):
        run("show", "@last", "seed=4")
    with pytest.raises(ConfigError, match="names no algorithm or variant"):
        run("show", "Other-v0")


def test_explain_prints_meaning_type_and_default() -> None:
    text = run("explain", "env.num_envs")
    assert "Number of copies that run in parallel." in text
    assert "whole number, at least 1; default 1" in text


def test_explain_a_spec_shows_its_values() -> None:
    entries = {entry["key"]: entry for entry in run_json("explain", "Toy-v0:toy")}
    assert (entries["algorithm.gamma"]["value"], entries["algorithm.gamma"]["default"]) == (0.9, 0.99)
    assert "default 0.99; in this config 0.9" in run("explain", "Toy-v0:toy")


def test_explain_marks_required_keys() -> None:
    text = run("explain", "env.id")
    assert "; required" in text
    assert "default" not in text


def test_explain_of_all_keys_fits_the_screen() -> None:
    assert "horizon_steps" in run("explain")


def test_diff_of_specs_and_runs(toy: Path) -> None:
    folder = toy / "runs" / "Toy-v0-toy-s3-1"
    folder.mkdir(parents=True)
    config = load_config(resolve_numbers(compose("Toy-v0:toy", ["seed=3"]).tree))
    (folder / "config.yaml").write_text(config_to_yaml(config))
    assert run_json("diff", "Toy-v0:toy", str(folder)) == {"seed": {"left": 0, "right": 3}}
    assert ["seed", "0", "3"] in [line.split() for line in run("diff", "Toy-v0:toy", str(folder)).splitlines()]
    assert run_json("diff", "Toy-v0:toy", "Toy-v0:slow")["algorithm.gamma"] == {"left": 0.9, "right": 0.99}
    assert run("diff", "Toy-v0:toy", "Toy-v0:toy") == "No differences.\n"
