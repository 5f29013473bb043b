"""Which runs are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.report.run_selection import choose_runs, default_out
from tests.run_folders import write_run


def test_names_patterns_and_paths(tmp_path: Path) -> None:
    a1, a2, b1 = (write_run(tmp_path, name) for name in ("a-s1-1", "a-s2-1", "b-s1-1"))
    assert choose_runs(["a-*"], tmp_path) == [a1, a2]
    assert choose_runs(["b"], tmp_path) == [b1]
    assert choose_runs([str(b1), "*s1*"], tmp_path) == [b1, a1]
    assert choose_runs([str(tmp_path / "a*")], tmp_path / "nowhere") == [a1, a2]
    with pytest.raises(RunError, match="matches 'c\\*'"):
        choose_runs(["c*"], tmp_path)
    with pytest.raises(RunError, match="several runs"):
        choose_runs(["a"], tmp_path)


def test_a_folder_that_lost_its_config_is_found_by_its_path(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "config.yaml").unlink()
    assert choose_runs([str(run)], tmp_path) == [run]


def test_the_name_of_a_comparison(tmp_path: Path) -> None:
    assert default_out([tmp_path / "a-1", tmp_path / "b-1"], tmp_path) == tmp_path / "report-a-1-and-b-1.html"
    many = [tmp_path / f"CartPole-v1-ppo-s{seed}-1" for seed in range(10)]
    assert default_out(many, tmp_path).name == "report-CartPole-v1-ppo-s-10-runs.html"
    strange = [tmp_path / "a b/../<x>", tmp_path / "c"]
    assert default_out(strange, tmp_path).name == "report--x--and-c.html"
