"""Summaries of run folders, damaged ones included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie.config.yaml_text import dump_yaml, load_yaml
from reverie.lab.config_facts import read_config_facts
from reverie.lab.read_run import folder_size, is_run, read_run
from reverie.report.groups import NOT_A_DIFFERENCE
from reverie.store.labels import change_labels
from reverie.store.lock import lock_run
from tests.run_folders import write_lines, write_run

CONFIG = """schema_version: 8
seed: 4
env:
  id: CartPole-v1
  num_envs: 4
algorithm:
  kind: ppo
  gamma: {gamma}
log:
  loggers:
  - kind: csv
backend:
  matmul: {matmul}
  threads: 1
"""


def test_the_summary_of_a_finished_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, "toy", seed=7, scores=(10.0, 30.0, 20.0))
    change_labels(run, lambda labels: labels.with_tags("paper").with_note("good"))
    summary = read_run(run)
    assert (summary.name, summary.env, summary.algorithm, summary.seed) == ("toy", "Toy-v0", "ppo", 7)
    assert (summary.status, summary.env_steps) == ("finished", 300)
    assert (summary.best_score, summary.final_score) == (30.0, 20.0)
    assert (summary.tags, summary.note, summary.created) == (("paper",), "good", 1.7e9)
    assert (summary.git_commit, summary.machine, summary.parent, summary.resumes) == (
        "abc123",
        "a chip, 2 cores",
        "",
        0,
    )
    assert summary.size_bytes == sum(path.stat().st_size for path in run.iterdir())
    assert summary.problems == ()
    assert json.loads(json.dumps(summary.to_json()))["tags"] == ["paper"]


def test_the_parent_and_the_resumes_are_recorded(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "initial.json").write_text('{"source": "other-run", "weights": {}}')
    write_lines(run / "resumes.jsonl", [{"number": 1}, {"number": 2}])
    summary = read_run(run)
    assert (summary.parent, summary.resumes) == ("other-run", 2)


def test_a_running_run_counts_by_its_metrics(tmp_path: Path) -> None:
    run = write_run(tmp_path, state="running", env_steps=10)
    with lock_run(run):
        summary = read_run(run)
    assert (summary.status, summary.env_steps) == ("running", 300)
    assert read_run(run).status == "interrupted"


def test_a_run_without_metrics_has_no_scores(tmp_path: Path) -> None:
    run = tmp_path / "young"
    run.mkdir()
    assert not is_run(run)
    (run / "config.yaml").write_text(CONFIG.format(gamma=0.9, matmul="numpy"))
    assert is_run(run)
    summary = read_run(run)
    assert (summary.status, summary.env_steps, summary.best_score, summary.algorithm) == ("created", 0, None, "ppo")
    assert "manifest.json" in summary.problems[0]


@pytest.mark.parametrize("name", ["manifest.json", "status.json", "config.yaml", "labels.json", "resumes.jsonl"])
@pytest.mark.parametrize("content", [b"[1\n", b"\xff\xfe\x00\n", b'{"a": "' + b"x" * (5 << 20) + b'"}\n'])
def test_a_damaged_file_is_a_problem_and_no_error(tmp_path: Path, name: str, content: bytes) -> None:
    run = write_run(tmp_path)
    (run / name).write_bytes(content)
    summary = read_run(run)
    assert summary.name == run.name
    assert len(summary.problems) == 1
    assert name in summary.problems[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("status.json", {"state": 5}),
        ("manifest.json", {"git": 7}),
        ("labels.json", {"tags": [5]}),
        ("labels.json", {"tags": "paper"}),
    ],
)
def test_wrong_values_are_a_problem(tmp_path: Path, name: str, content: dict[str, object]) -> None:
    run = write_run(tmp_path)
    (run / name).write_text(json.dumps(content))
    assert f"{name} is damaged" in read_run(run).problems[0]


def test_links_in_a_strangers_run_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"spec": "private:text", "tags": ["private"], "note": "private"}')
    run = write_run(tmp_path)
    for name in ("manifest.json", "labels.json"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret)
    summary = read_run(run)
    assert "private" not in json.dumps(summary.to_json())
    assert sum("link" in problem for problem in summary.problems) == 2


def test_control_characters_do_not_reach_the_screen(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["git"]["commit"] = "\x1b[31mred\n" + "x" * 5000
    (run / "manifest.json").write_text(json.dumps(manifest))
    commit = read_run(run).git_commit
    assert commit.isprintable()
    assert len(commit) < 300


def test_a_hard_link_counts_once_and_a_link_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "c").symlink_to("/")
    assert folder_size(tmp_path) == 101


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_both_ways_of_reading_a_config_agree(tmp_path: Path) -> None:
    plain = CONFIG.format(gamma=0.9, matmul="numpy")
    facts = read_config_facts(config(tmp_path, plain))
    assert (facts.env, facts.algorithm, facts.seed) == ("CartPole-v1", "ppo", 4)
    assert read_config_facts(config(tmp_path, "# edited\n" + plain)) == facts


def test_the_hash_ignores_what_is_no_difference(tmp_path: Path) -> None:
    def hash_of(text: str) -> str:
        return read_config_facts(config(tmp_path, text)).hash

    plain = CONFIG.format(gamma=0.9, matmul="numpy")
    assert hash_of(plain) == hash_of(plain.replace("seed: 4", "seed: 5").replace("csv", "wandb"))
    assert hash_of(plain) == hash_of(CONFIG.format(gamma=0.9, matmul="torch"))
    assert hash_of(plain) != hash_of(CONFIG.format(gamma=0.95, matmul="numpy"))
    assert hash_of(plain) != hash_of(plain.replace("threads: 1", "threads: 2"))


@pytest.mark.parametrize("key", [*NOT_A_DIFFERENCE, "algorithm.gamma"])
def test_the_hash_and_comparisons_ignore_the_same_settings(key: str, tmp_path: Path) -> None:
    def hash_with(value: str) -> str:
        tree = load_yaml(CONFIG.format(gamma=0.9, matmul="numpy"), "config.yaml")
        *sections, name = (key + "x" * key.endswith(".")).split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
        return read_config_facts(config(tmp_path, dump_yaml(tree))).hash

    assert (hash_with("one") == hash_with("other")) == (key != "algorithm.gamma")
