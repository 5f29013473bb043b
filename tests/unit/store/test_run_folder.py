"""Run folders and their names."""

from __future__ import annotations

import errno
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reverie.core.errors import RunError
from reverie.store import repository
from reverie.store import run_folder as folders
from reverie.store.run_folder import RunFolder, create_run, find_run, list_runs, read_json, write_json


def make_run(runs_dir: Path, spec: str = "CartPole-v1:ppo", seed: int = 1, **status: Any) -> RunFolder:
    folder = create_run(runs_dir, spec, seed, "seed: 1\n", ["reverie", "train"])
    if status:
        folder.write_status(**status)
    return folder


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("CartPole-v1:ppo", "CartPole-v1-ppo-s1-1"),
        ("ALE/Pong-v5:dqn", "ALE-Pong-v5-dqn-s1-1"),
        ("my_module.MyEnv:ppo", "my_module.MyEnv-ppo-s1-1"),
        ("../../x y:ppo", "..-..-x-y-ppo-s1-1"),
    ],
)
def test_a_folder_is_named_after_its_spec(tmp_path: Path, spec: str, name: str) -> None:
    run = make_run(tmp_path, spec)
    assert run.path == tmp_path / name
    assert run.path.is_dir()


def test_a_new_folder_tells_where_it_comes_from(tmp_path: Path) -> None:
    run = make_run(tmp_path / "deep" / "runs", seed=7)
    manifest = run.manifest()
    assert (manifest["spec"], manifest["seed"], manifest["command"]) == ("CartPole-v1:ppo", 7, ["reverie", "train"])
    assert {"python", "torch", "numpy", "gymnasium", "reverie"} <= set(manifest["versions"])
    assert manifest["machine"]["cores"] >= 1
    assert run.config_path.read_text() == "seed: 1\n"
    assert run.status() == {"state": "created"}


def test_each_run_gets_the_next_number(tmp_path: Path) -> None:
    assert [make_run(tmp_path).name[-2:] for _ in range(3)] == ["-1", "-2", "-3"]
    assert make_run(tmp_path, seed=2).name == "CartPole-v1-ppo-s2-1"


def test_runs_that_start_together_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_git", lambda *arguments: None)
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: make_run(tmp_path).name, range(24)))
    assert sorted(names) == sorted(f"CartPole-v1-ppo-s1-{number}" for number in range(1, 25))


def test_a_status_keeps_what_it_is_not_told_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path, state="running", best_score=3.0)
    run.write_status(state="finished")
    assert run.status() == {"state": "finished", "best_score": 3.0}
    assert [path.name for path in run.path.iterdir() if path.name.endswith(".new")] == []


@pytest.mark.parametrize("place", ["a file", "a link that leads nowhere"])
def test_a_place_that_cannot_be_written_to_is_explained(tmp_path: Path, place: str) -> None:
    runs_dir = tmp_path / "runs"
    if place == "a file":
        runs_dir.write_text("")
    else:
        runs_dir.symlink_to(tmp_path / "unmounted" / "runs")
    with pytest.raises(RunError, match="Cannot write into") as caught:
        make_run(runs_dir)
    assert "--runs-dir" in caught.value.fix


def test_last_is_the_run_that_was_created_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment, seed in [(300.0, 1), (500.0, 2), (400.0, 3)]:
        monkeypatch.setattr("reverie.store.run_folder.time.time", lambda moment=moment: moment)
        make_run(tmp_path, seed=seed)
    assert find_run("@last", tmp_path).name == "CartPole-v1-ppo-s2-1"


def test_best_is_the_run_with_the_highest_score(tmp_path: Path) -> None:
    make_run(tmp_path, seed=1, best_score=-200.0)
    make_run(tmp_path, seed=2, best_score=-100.0)
    make_run(tmp_path, seed=3)
    assert find_run("@best", tmp_path).name == "CartPole-v1-ppo-s2-1"


def test_best_never_compares_returns_of_different_envs(tmp_path: Path) -> None:
    make_run(tmp_path, seed=1, best_score=500.0)
    make_run(tmp_path, "Pendulum-v1:sac", seed=2, best_score=-300.0)
    make_run(tmp_path, "Pendulum-v1:ppo", seed=3, best_score=-150.0)
    make_run(tmp_path, "Acrobot-v1:ppo", seed=4)
    with pytest.raises(RunError, match="@best is ambiguous") as caught:
        find_run("@best", tmp_path)
    assert caught.value.fix == "Write @best:CartPole-v1 or @best:Pendulum-v1."
    assert find_run("@best:Pendulum-v1", tmp_path).name == "Pendulum-v1-ppo-s3-1"
    with pytest.raises(RunError, match="No run on 'Acrobot-v1' has been evaluated"):
        find_run("@best:Acrobot-v1", tmp_path)


def test_commands_name_the_folder_of_runs_unless_it_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_run(Path("runs")).words == "CartPole-v1-ppo-s1-1"
    assert RunFolder(tmp_path / "runs" / "mine").words == "mine"
    assert RunFolder(Path("else where/mine")).words == "mine --runs-dir 'else where'"
    with pytest.raises(RunError, match="no runs") as caught:
        find_run("@last", Path("empty"))
    assert caught.value.fix == "Start one: reverie train CartPole-v1:ppo --runs-dir empty"
    monkeypatch.chdir(tmp_path / "runs" / "CartPole-v1-ppo-s1-1")
    assert RunFolder(Path()).words == f"CartPole-v1-ppo-s1-1 --runs-dir {tmp_path / 'runs'}"


def test_without_scores_there_is_no_best(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(RunError, match="No run has been evaluated"):
        find_run("@best", tmp_path)


@pytest.mark.parametrize("text", ["{", '{"created": "x", "best_score": "y"}', '{"created": null, "best_score": NaN}'])
def test_a_damaged_run_does_not_stand_in_the_way(tmp_path: Path, text: str) -> None:
    sound = make_run(tmp_path, seed=1, best_score=1.0)
    damaged = make_run(tmp_path, seed=2, best_score=9.0)
    for name in ("manifest.json", "status.json"):
        (damaged.path / name).write_text(text)
    assert find_run("@last", tmp_path) == find_run("@best", tmp_path) == sound.path
    (sound.path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"readable manifest\.json") as caught:
        find_run("@last", tmp_path)
    assert damaged.name in caught.value.fix


def test_a_disk_that_fails_leaves_no_half_made_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_json(path: Path, value: dict[str, Any]) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(folders, "write_json", write_json)
    with pytest.raises(RunError, match=r"Cannot write into .*File too large"):
        make_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_found_by_name_path_or_a_unique_beginning(tmp_path: Path) -> None:
    one, other = make_run(tmp_path), make_run(tmp_path, "Pendulum-v1:ppo")
    assert find_run(one.name, tmp_path) == one.path
    assert find_run("Pend", tmp_path) == other.path
    assert find_run(str(other.path), tmp_path / "elsewhere") == other.path


def test_a_full_name_wins_over_longer_ones(tmp_path: Path) -> None:
    runs = [make_run(tmp_path) for _ in range(11)]
    assert find_run("CartPole-v1-ppo-s1-1", tmp_path) == runs[0].path  # and not number 10 or 11


def test_an_ambiguous_beginning_lists_the_runs(tmp_path: Path) -> None:
    make_run(tmp_path, seed=1)
    make_run(tmp_path, seed=2)
    with pytest.raises(RunError, match="CartPole-v1-ppo-s1-1, CartPole-v1-ppo-s2-1"):
        find_run("Cart", tmp_path)


def test_a_missing_run_is_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There are no runs") as caught:
        find_run("@last", tmp_path / "nothing")
    assert "reverie train" in caught.value.fix
    make_run(tmp_path)
    with pytest.raises(RunError, match="no run 'CartPole-v1-pop-s1-1'") as caught:
        find_run("CartPole-v1-pop-s1-1", tmp_path)
    assert "'CartPole-v1-ppo-s1-1'" in caught.value.fix


def test_other_folders_are_not_runs(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    run = make_run(tmp_path)
    assert [found.name for found in list_runs(tmp_path)] == [run.name]


def test_json_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write_json(tmp_path / "status.json", {"a": 1})
    assert read_json(tmp_path / "status.json") == {"a": 1}
    for text in ("{", "[]"):
        (tmp_path / "status.json").write_text(text)
        with pytest.raises(RunError, match=r"status\.json cannot be read"):
            read_json(tmp_path / "status.json")
    with pytest.raises(RunError, match=r"missing\.json cannot be read"):
        read_json(tmp_path / "missing.json")


def test_uncommitted_changes_are_kept_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (project / "code.py").write_text("x = 1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "first"], check=True)
    monkeypatch.chdir(project)
    clean = make_run(tmp_path / "runs")
    assert clean.manifest()["git"]["is_clean"] is True
    assert not (clean.path / "uncommitted.diff").exists()

    (project / "code.py").write_text("x = 2\n")
    changed = make_run(tmp_path / "runs")
    assert changed.manifest()["git"] == {**clean.manifest()["git"], "is_clean": False}
    assert "+x = 2" in (changed.path / "uncommitted.diff").read_text()


def test_outside_of_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert make_run(tmp_path).manifest()["git"] == {}
    monkeypatch.setenv("PATH", "")  # and a machine without git is no problem either
    assert make_run(tmp_path).manifest()["git"] == {}


@pytest.mark.parametrize("value", ["Infinity", "1e400", "-1", "1.5", "true", "null", '"many"', "[]", "9" * 90])
def test_a_status_that_does_not_count_is_damaged(value: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "status.json").write_text(f'{{"state": "finished", "env_steps": {value}}}')
    with pytest.raises(RunError, match=r"status\.json is damaged: env_steps cannot be") as caught:
        run.status()
    assert "reverie resume" in caught.value.fix


def test_a_status_without_a_state_is_that_of_a_new_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "status.json").write_text("{}")
    assert run.status() == {"state": "created"}


def test_a_manifest_of_another_form_is_damaged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "manifest.json").write_text('{"versions": []}')
    with pytest.raises(RunError, match="versions is not a mapping"):
        run.manifest()


def test_a_long_spec_makes_a_name_that_a_folder_can_have(tmp_path: Path) -> None:
    assert create_run(tmp_path, "x" * 5000 + ":ppo", 0, "", []).path.is_dir()


def test_a_name_that_no_folder_can_have_is_no_run(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(RunError, match="There is no run"):
        find_run("x" * 5000, tmp_path)
