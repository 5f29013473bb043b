"""Tables of groups, runs, curves and metrics, in every text format."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from reverie.lab.export import formats, latex
from reverie.lab.export.tables import TABLES, Table, group_table, summarise
from reverie.report.run_data import RunData, gather
from tests.run_folders import write_run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunData]:
    """Two groups on A with seeds 1 and 2, one of them better, and a single run on B."""
    for seed in (1, 2):
        write_run(tmp_path, f"a-ppo-s{seed}", "A_1-v0", seed, scores=(1.0, 50.0 + seed))
        write_run(tmp_path, f"a-low-s{seed}", "A_1-v0", seed, scores=(1.0, 20.0 + seed), settings={"gamma": 0.5})
    write_run(tmp_path, "b-ppo-s1", "B-v0", 1, scores=(-3.0, -2.0))
    return [gather(path, with_videos=False) for path in sorted(tmp_path.iterdir())]


def test_groups_have_a_statistic_with_its_interval(runs: list[RunData]) -> None:
    table = group_table(runs, "mean")
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["A_1-v0", "ppo"] == (2, 51.5, 51.0, 52.0, 51.5)
    assert rows["A_1-v0", "ppo gamma=0.5"][:2] == (2, 21.5)
    assert rows["B-v0", "ppo"] == (1, -2.0, None, None, -2.0)


def test_the_interquartile_mean_ignores_outliers() -> None:
    scores = np.array([0.0, 10.0, 10.0, 1000.0])
    assert summarise(scores, "iqm").value == pytest.approx(10.0)
    assert summarise(scores, "mean").value == pytest.approx(255.0)
    assert summarise(np.array([]), "iqm").value is None


def test_runs_show_the_settings_that_differ(runs: list[RunData]) -> None:
    table = TABLES["runs"](runs, "iqm")
    column = table.columns.index("algorithm.gamma")
    assert {row[0]: row[column] for row in table.rows}["a-low-s1"] == "0.5"


def test_curves_and_metrics_are_complete(runs: list[RunData]) -> None:
    curves, metrics = (TABLES[name](runs, "iqm") for name in ("curves", "metrics"))
    assert len(curves.rows) == 2 * len(runs)
    assert len(metrics.rows) == 4 * len(runs)
    assert "evaluate/return_mean" in metrics.columns


def test_csv_keeps_every_digit() -> None:
    table = Table(("a", "b"), [(0.1 + 0.2, None), (1, "x,y")])
    rows = list(csv.reader(io.StringIO(formats.as_csv(table))))
    assert rows == [["a", "b"], ["0.30000000000000004", ""], ["1", "x,y"]]


def test_json_has_no_nan() -> None:
    table = Table(("a",), [(math.nan,), (2.0,)])
    assert json.loads(formats.as_json(table)) == [{"a": None}, {"a": 2.0}]


def test_markdown_escapes_and_aligns() -> None:
    lines = formats.as_markdown(Table(("name", "score"), [("a|b", -0.5), ("c", None)])).splitlines()
    assert lines == ["| name | score |", "| --- | ---: |", "| a\\|b | −0.5000 |", "| c | – |"]


def test_latex_is_a_booktabs_table_with_the_best_in_bold(runs: list[RunData]) -> None:
    text = latex.score_table(runs, "iqm")
    rows = [line.strip() for line in text.splitlines() if line.rstrip().endswith(r"\\")]
    assert rows[0] == r"& A\_1-v0 & B-v0 \\"
    assert rows[1] == r"PPO & \textbf{51.5} {\scriptsize [51.0, 52.0]} & $-$2.00 \\"
    assert rows[2] == r"PPO gamma=0.5 & 21.5 {\scriptsize [21.0, 22.0]} & -- \\"
    assert all(row.count("&") == 2 for row in rows)
    assert text.count("{") == text.count("}")
    assert "1 to 2 seeds. Single runs have no interval." in text


def test_latex_of_other_tables_is_plain() -> None:
    text = latex.plain_table(Table(("na_me", "x"), [("50%", 0.05), ("~", None)]))
    assert "\\caption" not in text
    assert r"na\_me & x \\" in text
    assert r"50\% & 0.0500 \\" in text
    assert r"\textasciitilde{} & -- \\" in text


@pytest.mark.needs("pandas")
def test_parquet_has_typed_columns() -> None:
    import pyarrow.parquet as pq

    table = Table(("run", "steps", "score", "mixed"), [("a", 1, 0.5, 1), ("b", 2, None, "x")])
    found = pq.read_table(io.BytesIO(formats.as_parquet(table)))
    assert found.to_pylist() == [
        {"run": "a", "steps": 1, "score": 0.5, "mixed": "1"}, {"run": "b", "steps": 2, "score": None, "mixed": "x"},
    ]  # fmt: skip
    assert [str(field.type) for field in found.schema] == ["string", "int64", "double", "string"]
