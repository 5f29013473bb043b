"""``reverie runs``: lists, labels, details and differences, from folders written by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reverie.cli.main import app
from reverie.cli.text_table import shorten, table_lines, wrapped
from reverie.core.errors import ConfigError, ReverieError, RunError
from tests.run_folders import write_lines, write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    for seed, final in ((1, 5.0), (2, 7.0), (3, 6.0)):
        write_run(folder, f"a-s{seed}", "A-v0", seed, scores=(1.0, final))
        change(folder / f"a-s{seed}" / "manifest.json", created=time.time() - 86_400 * (4 - seed))
    write_run(folder, "b-s1", "B-v0", 1, scores=(90.0,), settings={"gamma": 0.5})
    change(folder / "b-s1" / "manifest.json", created=time.time() - 7200, versions={"python": "3.12", "torch": "2"})
    return folder


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def type_words(runs: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["runs", *words, "--runs-dir", str(runs)])
    if isinstance(done.exception, ReverieError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_the_newest_run_comes_first(runs: Path) -> None:
    text = type_words(runs, "list")
    assert first_words(text) == ["b-s1", "a-s3", "a-s2", "a-s1"]
    assert text.splitlines()[0].split() == ["name", "status", "steps", "best", "final", "age"]
    assert text.splitlines()[1].split() == ["b-s1", "finished", "100", "90.0", "90.0", "2h"]
    assert max(map(len, text.splitlines())) <= 80


def test_filters_sorting_and_limits(runs: Path) -> None:
    assert first_words(type_words(runs, "list", "env=A*", "best>5", "--sort", "final")) == ["a-s2", "a-s3"]
    assert first_words(type_words(runs, "list", "--sort", "final", "--reverse", "--limit", "1")) == ["a-s1"]
    assert first_words(type_words(runs, "list", "since=36h", "--sort", "name")) == ["a-s3", "b-s1"]
    assert first_words(type_words(runs, "list", "--sort", "algorithm.gamma")) == ["a-s1", "a-s2", "a-s3", "b-s1"]
    assert "No runs in" in type_words(runs, "list", "best>1000")
    assert "There is no folder" in type_words(runs / "nothing", "list")


def test_columns_are_keys_and_settings(runs: Path) -> None:
    text = type_words(runs, "list", "seed=1", "--columns", "name,algorithm.gamma,hash,size", "--sort", "best")
    head, first, _ = text.splitlines()
    assert head.split() == ["name", "algorithm.gamma", "hash", "size"]
    assert first.split()[:2] == ["b-s1", "0.5"]


@pytest.mark.parametrize("words", [("--columns", "nam"), ("--sort", "bst"), ("--group", "enf"), ("bst>4",)])
def test_a_wrong_name_is_explained(runs: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        type_words(runs, "list", *words)


def test_json_has_everything(runs: Path) -> None:
    found = json.loads(type_words(runs, "list", "env=B*", "--json"))
    assert [(run["name"], run["best_score"], run["tags"]) for run in found] == [("b-s1", 90.0, [])]


def test_seeds_are_folded_into_groups(runs: Path) -> None:
    lines = type_words(runs, "list", "--group", "env,algorithm").splitlines()
    assert lines[1].split()[:4] == ["A-v0", "ppo", "3", "6.00"]
    assert " to " in lines[1]
    assert "one run" in lines[2]
    assert len(type_words(runs, "list", "--group", "env,algorithm", "--limit", "1").splitlines()) == len(lines) - 1
    with pytest.raises(ConfigError, match="has its own columns and order"):
        type_words(runs, "list", "--group", "env", "--sort", "best")
    folded = json.loads(type_words(runs, "list", "--group", "env", "--json"))
    assert (folded[0]["env"], folded[0]["runs"], folded[0]["iqm"]) == ("A-v0", 3, 6.0)
    assert folded[1]["interval"] is None


def test_tags_and_notes_are_kept_in_the_run(runs: Path) -> None:
    assert type_words(runs, "tag", "a-*", "paper", "good").splitlines()[0] == "a-s1: paper, good"
    type_words(runs, "untag", "a-s2", "paper")
    assert first_words(type_words(runs, "list", "tag=paper")) == ["a-s3", "a-s1"]
    assert json.loads((runs / "a-s2" / "labels.json").read_text())["tags"] == ["good"]
    type_words(runs, "note", "a-s1", "the one for the table")
    assert type_words(runs, "note", "a-s1") == "the one for the table\n"
    assert first_words(type_words(runs, "list", "note=*table*")) == ["a-s1"]
    assert "has no note" in type_words(runs, "note", "a-s1", "")
    with pytest.raises(RunError, match="cannot be a tag"):
        type_words(runs, "tag", "a-s1", "two words")


def test_a_run_is_shown_with_what_differs_and_where_it_came_from(runs: Path) -> None:
    child = write_run(runs, "c-s1", settings={"gamma": 0.7})
    (child / "initial.json").write_text('{"source": "b-s1"}')
    write_lines(child / "resumes.jsonl", [{"number": 1, "changes": []}])
    text = type_words(runs, "show", "c-s1")
    assert "finished, best 30.0, final 20.0" in text
    assert "algorithm.gamma: 0.99 -> 0.7  (command line)" in text
    assert "weights from b-s1" in text
    assert "resumed 1 time" in text
    assert "config.yaml" in text
    assert "gave its weights to c-s1" in type_words(runs, "show", "b-s1")
    found = json.loads(type_words(runs, "show", "c-s1", "--json"))
    assert (found["parents"], found["differences"][0]["value"]) == (["b-s1"], 0.7)


def test_a_damaged_run_is_shown_with_its_problems(runs: Path) -> None:
    (runs / "a-s1" / "manifest.json").unlink()
    (runs / "a-s1" / "config.yaml").write_text("[")
    text = type_words(runs, "show", "a-s1")
    assert "Problems" in text
    assert "manifest.json cannot be read: No such file or directory." in text
    assert "as in its preset" not in text
    with pytest.raises(ConfigError):
        type_words(runs, "diff", "a-s1", "a-s2")


def test_a_name_of_several_runs_is_refused(runs: Path) -> None:
    with pytest.raises(RunError, match="matches several runs: a-s1, a-s2, a-s3"):
        type_words(runs, "show", "a-")


def test_two_runs_differ_in_settings_and_facts(runs: Path) -> None:
    text = type_words(runs, "diff", "a-s1", "b-s1")
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("algorithm")}
    assert rows == {"algorithm.gamma": ["0.99", "0.5"]}
    found = json.loads(type_words(runs, "diff", "a-s1", "b-s1", "--json"))
    assert found["settings"]["env.id"] == {"left": "A-v0", "right": "B-v0"}
    assert "seed" not in found["settings"]
    assert found["facts"]["best"] == {"left": "5.00", "right": "90.0"}
    assert found["facts"]["version python"] == {"left": "3.11", "right": "3.12"}
    assert found["facts"]["version torch"] == {"left": "-", "right": "2"}
    assert "machine cores" not in found["facts"]


def test_the_index_can_be_built_again(runs: Path, tmp_path: Path) -> None:
    assert type_words(runs, "index", "--rebuild").startswith("4 runs in")
    assert str(tmp_path / "cache") in type_words(runs, "index").replace("\n", "")


def test_a_table_keeps_both_ends_of_long_names() -> None:
    assert shorten("MiniGrid-DoorKey-dreamer-s1-1", 12) == "MiniGr…-s1-1"
    lines = table_lines(["name", "best"], [["x" * 50, "1.0"], ["y", "22.0"]], {1}, width=40)
    assert [len(line) for line in lines] == [40, 40, 40]
    assert lines[2].endswith("  22.0")
    assert len(table_lines(["name"], [["x" * 50]])[1]) == 50


def test_sentences_are_wrapped_on_a_terminal_only() -> None:
    assert wrapped("ppo gamma=0.5 is better", 14) == ["ppo gamma=0.5", "is better"]
    assert wrapped("ppo gamma=0.5 is better", None) == ["ppo gamma=0.5 is better"]
