"""Runs by filters and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.lab.find import find_runs
from tests.run_folders import write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path, "a-ppo-s1-1", "A-v0", seed=1, scores=(1.0, 5.0))
    write_run(tmp_path, "a-ppo-s2-1", "A-v0", seed=2, scores=(1.0, 7.0), settings={"gamma": 0.5})
    write_run(tmp_path, "b-ppo-s1-1", "B-v0", seed=1, scores=(9.0,))
    return tmp_path


def names(*words: str, runs_dir: Path) -> list[str]:
    return [run.name for run in find_runs(words, runs_dir)]


def test_all_runs_are_found(runs: Path) -> None:
    assert names(runs_dir=runs) == ["a-ppo-s1-1", "a-ppo-s2-1", "b-ppo-s1-1"]
    assert find_runs(runs_dir=runs / "nothing") == []


def test_filters_are_combined(runs: Path) -> None:
    assert names("env=A*", "best>5", runs_dir=runs) == ["a-ppo-s2-1"]
    assert [run.name for run in find_runs("env=A* seed=1", runs)] == ["a-ppo-s1-1"]
    assert names("env=C*", runs_dir=runs) == []


def test_settings_are_read_from_the_configs(runs: Path) -> None:
    assert names("algorithm.gamma<0.9", runs_dir=runs) == ["a-ppo-s2-1"]
    assert names("algorithm.gamma=0.99", "env=A*", runs_dir=runs) == ["a-ppo-s1-1"]
    assert names("algorithm.gama=0.99", runs_dir=runs) == []


def test_words_name_runs(runs: Path) -> None:
    assert names("a-ppo", runs_dir=runs) == ["a-ppo-s1-1", "a-ppo-s2-1"]
    assert names("*-s1-*", "a-ppo-s1-1", "seed=1", runs_dir=runs) == ["a-ppo-s1-1", "b-ppo-s1-1"]
    assert names("b-ppo-s1-1", "*s1*", runs_dir=runs) == ["b-ppo-s1-1", "a-ppo-s1-1"]  # in the order that was typed
    assert names(str(runs / "a*"), runs_dir=runs / "nowhere") == ["a-ppo-s1-1", "a-ppo-s2-1"]
    assert names("@best:A-v0", runs_dir=runs) == ["a-ppo-s2-1"]


def test_a_pattern_of_names_finds_nothing_in_the_current_folder(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs clean 'a*' --runs-dir other` must not touch the runs here."""
    monkeypatch.chdir(runs)
    with pytest.raises(RunError, match="There are no runs") as caught:
        find_runs(["a*"], runs / "other")
    assert "reverie train" in caught.value.fix


def test_paths_name_runs(runs: Path) -> None:
    assert names(str(runs / "b-ppo-s1-1"), runs_dir=runs / "nothing") == ["b-ppo-s1-1"]


def test_a_folder_that_lost_its_config_is_found_by_its_path(runs: Path) -> None:
    (runs / "b-ppo-s1-1" / "config.yaml").unlink()
    assert names(str(runs / "b-ppo-s1-1"), runs_dir=runs / "nowhere") == ["b-ppo-s1-1"]


def test_a_name_without_a_run_is_an_error(runs: Path) -> None:
    with pytest.raises(RunError, match="Did you mean 'a-ppo-s1-1'"):
        find_runs(["a-pqo-s1-1"], runs)
