"""Shell completion: environments, variants, presets and runs, without loading anything heavy."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reverie.cli import names
from reverie.cli.main import app
from reverie.config import presets
from tests.unit.test_startup import HEAVY, loaded_by


def in_bash(words: str, place: int) -> list[str]:
    """What bash is offered for the word at a place; it splits words at colons before."""
    env = {"_REVERIE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = CliRunner().invoke(app, env=env, prog_name="reverie")
    assert done.exit_code == 0, done.output
    return done.output.split()


def in_fish(words: str) -> list[str]:
    env = {"_REVERIE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = CliRunner().invoke(app, env={**env, "_TYPER_COMPLETE_ARGS": words}, prog_name="reverie")
    assert done.exit_code == 0, done.output
    return done.output.split()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/Pole-1", "runs/Pole-2", "runs/Swing-1", "other/Pole-3"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "runs" / "no-run").mkdir()


def test_specs() -> None:
    assert in_bash("reverie train CartP", 2) == ["CartPole-v1"]
    assert in_bash("reverie train CartPole-v1 :", 3) == presets.variant_names("CartPole-v1")
    assert in_bash("reverie train CartPole-v1 : p", 4) == ["ppo"]
    assert in_fish("reverie train CartP") == ["CartPole-v1:"]
    assert in_fish("reverie train CartPole-v1:p") == ["CartPole-v1:ppo"]
    assert in_bash("reverie train CartPole-v1 : ppo offl", 5) == ["offline"]
    assert in_fish("reverie train CartPole-v1:ppo offl") == ["offline"]


def test_ids_without_a_preset_are_those_of_gymnasium() -> None:
    assert in_bash("reverie envs check CliffWalkingSl", 3) == ["CliffWalkingSlippery-v1"]
    assert in_bash("reverie envs check NoSuchEnv", 3) == []
    assert names.complete_env(None, "")[0] == names.env_names()[0]  # type: ignore[arg-type]


@pytest.mark.usefixtures("runs")
def test_runs() -> None:
    assert in_bash("reverie eval Po", 2) == ["Pole-1", "Pole-2"]
    assert in_bash("reverie resume ", 2) == ["@last", "@best", "Pole-1", "Pole-2", "Swing-1"]
    assert in_bash("reverie eval --runs-dir other Po", 4) == ["Pole-3"]
    assert in_bash("reverie play Pol", 2) == ["Pole-1", "Pole-2"]
    assert in_bash("reverie play CartP", 2) == ["CartPole-v1"]
    assert in_bash("reverie config show Sw", 3) == ["Swing-1"]
    assert in_fish("reverie config show CartPole-v1:pp") == ["CartPole-v1:ppo"]
    assert in_bash("reverie report Po", 2) == ["Pole-1", "Pole-2"]


def test_names_are_those_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names.env_names() == presets.env_names()
    assert all(names.variant_names(env) == presets.variant_names(env) for env in names.env_names())
    assert set(names.variant_names("Other-v0")) <= set(presets.variant_names("Other-v0"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets" / "env").mkdir(parents=True)
    (tmp_path / "presets" / "env" / "Mine-v0.yaml").write_text("variants: {quick: {}, slow: {}}\n")
    assert "Mine-v0" in names.env_names()
    assert names.variant_names("Mine-v0") == ["quick", "slow"]
    (tmp_path / "presets" / "env" / "Mine-v0.yaml").write_text("variants: [")
    assert "ppo" in names.variant_names("Mine-v0")


def test_completion_loads_nothing_heavy() -> None:
    words = {"_REVERIE_COMPLETE": "complete_bash", "COMP_WORDS": "reverie train CartPole-v1 :", "COMP_CWORD": "3"}
    code = f"import os, sys\nos.environ.update({words})\nfrom reverie.cli.main import run\nsys.argv = ['reverie']\n"
    loaded = loaded_by(code + "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code")
    assert "yaml" in loaded  # the variants were looked up
    assert loaded & HEAVY == set()


def test_help_tells_how_to_install_it() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
