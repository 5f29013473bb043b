"""Names of report pages."""

from __future__ import annotations

from pathlib import Path

from reverie.report.page_name import default_page


def test_the_name_of_a_comparison(tmp_path: Path) -> None:
    assert default_page([tmp_path / "a-1", tmp_path / "b-1"], tmp_path) == tmp_path / "report-a-1-and-b-1.html"
    many = [tmp_path / f"CartPole-v1-ppo-s{seed}-1" for seed in range(10)]
    assert default_page(many, tmp_path).name == "report-CartPole-v1-ppo-s-10-runs.html"
    strange = [tmp_path / "a b/../<x>", tmp_path / "c"]
    assert default_page(strange, tmp_path).name == "report--x--and-c.html"
