"""``reverie export`` and ``reverie new``, as they are typed. What they write is tested in ``tests/unit/lab``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reverie.cli.main import app
from tests.run_folders import write_run


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def reverie(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_table_is_printed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a-s1")
    done = reverie("export", "a-s1")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("env,group,runs,iqm")


def test_the_path_of_a_file_is_printed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a-s1")
    done = reverie("export", "a-s1", "--format", "markdown", "--out", "a.md", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["path"].endswith("a.md")
    assert reverie("export", "a-s1", "--format", "markdown", "--out", "b.md").stdout.strip().endswith("b.md")


def test_a_policy_is_best_or_final(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a-s1")
    done = reverie("export", "a-s1", "--policy", "first")
    assert (done.exit_code, "best or final" in done.output) == (2, True)


def test_a_project_says_what_to_type_next() -> None:
    done = reverie("new", "env", "my_walk")
    assert done.exit_code == 0, done.output
    assert "Type next: cd my_walk && make train" in done.stdout
    assert Path("my_walk/README.md").exists()


def test_the_files_of_a_project_as_json() -> None:
    done = reverie("new", "network", "my_net", "--out", "other", "--json")
    written = json.loads(done.stdout)
    assert Path(written["folder"]).name == "other"
    assert all(Path(path).exists() for path in written["files"])
