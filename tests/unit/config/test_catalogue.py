from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reverie.cli.envs import app
from reverie.config import catalogue
from reverie.config.catalogue import find_env_config, list_envs, list_suites
from reverie.core.errors import ConfigError
from reverie.envs.suites import bandits


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs")  # broken_envs


def test_presets_are_listed_first_and_once_with_a_summary() -> None:
    entries = list_envs()
    names = [entry.name for entry in entries]
    assert len(names) == len(set(names))
    assert [entry.source for entry in entries] == sorted((entry.source for entry in entries), reverse=True)
    (cartpole,) = [entry for entry in entries if entry.name == "CartPole-v1"]
    assert (cartpole.source, cartpole.solved_at, cartpole.max_episode_steps) == ("preset", 475, 500)
    assert "ppo" in cartpole.variants
    assert cartpole.summary


def test_every_registered_id_is_listed() -> None:
    assert {"FrozenLake-v1", "Reverie/Counting-v0"} <= {entry.name for entry in list_envs()}


def test_filter_matches_names_and_summaries() -> None:
    assert {entry.name for entry in list_envs("cartpole")} >= {"CartPole-v1", "CartPole-v0"}
    assert "CartPole-v1" in {entry.name for entry in list_envs("POLE UPRIGHT")}
    assert list_envs("nothing is called like this") == []


def test_what_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(bandits.SUITE, packages={"no_such_module": "no-such-package"})
    monkeypatch.setattr(catalogue, "SUITES", [absent])
    monkeypatch.setattr(catalogue, "find_suite", lambda env_id: absent if env_id.startswith("Bandit/") else None)
    installs = {entry.name: entry.install for entry in list_envs()}
    assert (installs["Bandit/Gaussian-v0"], installs["CartPole-v1"]) == ("pip install no-such-package", "")
    (suite,) = list_suites("bandit")
    assert (suite.install, suite.ids[0]) == ("pip install no-such-package", "Bandit/Bernoulli-v0")
    shown = CliRunner().invoke(app, ["list", "bandit"], env={"COLUMNS": "200"}).stdout
    assert shown.count("pip install no-such-package") >= 2


@pytest.mark.needs("dmc")
def test_all_ids_of_a_suite_are_listed_if_it_is_named() -> None:
    assert "dmc/fish_swim" not in {entry.name for entry in list_envs()}
    for filter in ("dmc/", "dm_control", "dmc/fish"):
        assert "dmc/fish_swim" in {entry.name for entry in list_envs(filter)}
    assert "dmc/fish_swim" in {entry.name for entry in list_envs(every_id=True)}


def test_presets_ids_and_overrides_give_configs() -> None:
    assert find_env_config("CartPole-v1").spec.solved_at == 475
    config = find_env_config("FrozenLake-v1", ["env.kwargs.is_slippery=false", "env.max_episode_steps=9"])
    assert (config.id, config.kwargs, config.max_episode_steps) == ("FrozenLake-v1", {"is_slippery": False}, 9)
    with pytest.raises(ConfigError, match=r"env\.wrapers"):
        find_env_config("FrozenLake-v1", ["env.wrapers=[one_hot]"])


def test_list_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["list"])
    assert shown.exit_code == 0
    assert "CartPole-v1" in shown.stdout
    assert "FrozenLake-v1" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "No environment matches" in CliRunner().invoke(app, ["list", "xyzzy"]).stdout


def test_the_list_as_json() -> None:
    shown = CliRunner().invoke(app, ["list", "cartpole", "--json"])
    assert "CartPole-v1" in [entry["name"] for entry in json.loads(shown.stdout)]


def test_check_with_errors_exits_with_code_1() -> None:
    sound = CliRunner().invoke(app, ["check", "broken_envs.Sound", "env.max_episode_steps=20"])
    assert (sound.exit_code, "no problems found" in sound.stdout) == (0, True)
    broken = CliRunner().invoke(app, ["check", "broken_envs.OldStep"])
    assert (broken.exit_code, "step() returns 4 values" in broken.stdout) == (1, True)
    warned = CliRunner().invoke(
        app, ["check", "broken_envs.Sound", "env.max_episode_steps=20", "env.log_keys=[regret]", "--json"]
    )
    assert warned.exit_code == 0
    assert [finding["severity"] for finding in json.loads(warned.stdout)] == ["warning"]
