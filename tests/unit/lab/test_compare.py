"""Comparisons as commands and Python return them, and training until they are decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import reverie
from reverie.cli.main import app
from reverie.core.errors import ConfigError, ReverieError, RunError, TrainingError
from reverie.core.rng import make_generator
from reverie.lab.compare import Compared, compare_runs
from reverie.lab.until_decided import next_orders, run_until_decided
from tests.run_folders import write_run

SETTINGS = {"a": None, "b": {"gamma": 0.5}, "c": {"gamma": 0.7}}


class Trainer:
    """Writes runs whose final scores are normal around a number per group."""

    def __init__(self, folder: Path, **means: float) -> None:
        self.folder, self.means = folder, means
        self.rng = make_generator("test", "trainer")
        self.trained: list[str] = []
        self.said: list[str] = []

    def write(self, group: str, seed: int) -> Path:
        final = float(self.means[group] + self.rng.normal())
        return write_run(self.folder, f"{group}-s{seed}", "A-v0", seed, (0.0, final), SETTINGS[group])

    def train(self, run: Path, seeds: list[int]) -> list[Path]:
        group = run.name[0]
        self.trained += [f"{group}{seed}" for seed in seeds]
        return [self.write(group, seed) for seed in seeds]

    def until_decided(self, most: int = 10) -> Compared:
        paths = [self.write(group, 1) for group in self.means]
        read = lambda known: compare_runs(known, most_seeds=most)  # noqa: E731
        return run_until_decided(paths, most, read, self.train, self.said.append)


def test_a_clear_difference_is_decided_with_the_seeds_that_were_asked_for(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, a=100.0, b=0.0)
    (verdict,) = trainer.until_decided().verdicts("A-v0")
    assert verdict.is_decided
    assert (verdict.better, verdict.runs) == ("ppo", (5, 5))
    assert sorted(trainer.trained) == [f"{group}{seed}" for group in "ab" for seed in (2, 3, 4, 5)]
    assert trainer.said[0] == "ppo on A-v0: 4 more seeds (2, 3, 4, 5)"


def test_equal_groups_end_at_the_most_seeds(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, a=50.0, b=50.0)
    compared = trainer.until_decided(most=7)
    (verdict,) = compared.verdicts("A-v0")
    assert not verdict.is_decided
    assert verdict.runs == (7, 7)


def test_what_is_decided_stays_and_gets_no_more_seeds(tmp_path: Path) -> None:
    """The lowest group is decided against both others, which go on against each other."""
    trainer = Trainer(tmp_path, a=100.0, b=99.9, c=0.0)
    compared = trainer.until_decided(most=9)
    found = {(each.better, each.worse): each for each in compared.verdicts("A-v0")}
    lowest = [each for pair, each in found.items() if "ppo gamma=0.7" in pair]
    assert all(each.is_decided and each.worse == "ppo gamma=0.7" for each in lowest)
    scored = {group.label: len(group.scores) for group in compared.envs["A-v0"]}
    assert scored["ppo gamma=0.7"] < scored["ppo"] == scored["ppo gamma=0.5"] == 9


def test_unequal_numbers_are_filled_up(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, a=100.0, b=0.0)
    paths = [trainer.write("a", seed) for seed in (0, 1, 2, 3)] + [trainer.write("b", 2)]
    orders = {order.group.label: order.seeds for order in next_orders(compare_runs(paths, most_seeds=10), 10)}
    assert orders == {"ppo": [4], "ppo gamma=0.5": [1, 3, 4, 5]}


def test_training_that_never_finishes_is_an_error(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, a=1.0, b=0.0)
    trainer.train = lambda run, seeds: []  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="No new run finished"):
        trainer.until_decided()


def test_one_experiment_cannot_be_decided(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, a=1.0)
    with pytest.raises(ConfigError, match="nothing to decide"):
        trainer.until_decided()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(tmp_path / "runs", a=100.0, b=0.0)
    for seed in range(5):
        trainer.write("a", seed)
        trainer.write("b", seed)
    return tmp_path / "runs"


def test_the_command_prints_the_verdict_and_writes_the_page(runs: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "env=A*", "--runs-dir", str(runs)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "ppo is better than ppo gamma=0.5: more than 99.9 % of bootstrap resamples over seeds (5 seeds each)" in text
    assert "Env steps to a return of 25.0 (solved): ppo: median 200, reached by 5 of 5 runs" in text
    page = Path(done.stdout.splitlines()[-1])
    assert page.parent == runs
    assert "is better than" in page.read_text()
    assert "is better than" in page.with_suffix(".md").read_text()


def test_the_command_prints_json(runs: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "*", "--runs-dir", str(runs), "--json", "--by", "wall"])
    found = json.loads(done.stdout)
    assert found["verdicts"]["A-v0"][0]["is_decided"]
    assert [row["scored"] for row in found["groups"]] == [5, 5]


def test_the_command_trains_until_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(tmp_path / "runs", a=100.0, b=0.0)
    paths = [trainer.write(group, 1) for group in "ab"]
    asked: list[tuple[str, int]] = []

    def repeat_seeds(run: str, seeds: list[int], runs_dir: Path, jobs: int, *_: bool) -> tuple[list[Any], int]:
        asked.append((Path(run).name, jobs))
        return [{"path": str(path), "state": "finished"} for path in trainer.train(Path(run), seeds)], 0

    monkeypatch.setattr("reverie.cli.repeat.repeat_seeds", repeat_seeds)
    words = ["compare", *map(str, paths), "--run-until-decided", "--jobs", "2", "--runs-dir", str(paths[0].parent)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert asked == [("a-s1", 2), ("b-s1", 2)]
    assert "ppo is better than ppo gamma=0.5" in done.stdout
    monkeypatch.setattr("reverie.cli.repeat.repeat_seeds", lambda *_: ([], 130))
    (tmp_path / "other").mkdir()
    other = [str(path.rename(tmp_path / "other" / path.name)) for path in paths]
    assert CliRunner().invoke(app, ["compare", *other, "--run-until-decided"]).exit_code == 130  # Ctrl-C


def test_compare_from_python(runs: Path) -> None:
    compared = reverie.compare("*", runs_dir=runs, threshold=5.0)
    assert compared.page is None
    assert compared.verdicts("A-v0")[0].better == "ppo"
    assert compared.warnings("A-v0") == []
    found = compared.efficiency("A-v0")
    assert found is not None
    assert found.threshold == 5.0
    page = reverie.compare("*", runs_dir=runs, out=runs / "own.html").page
    assert page == runs / "own.html"


@pytest.mark.parametrize(("words", "kind"), [
    (["env=B*"], ConfigError), (["nothing"], RunError), (["*", "--by", "days"], ConfigError),
    (["*", "--out", "page.txt"], ReverieError),
])  # fmt: skip
def test_mistakes_are_explained(runs: Path, words: list[str], kind: type[Exception]) -> None:
    done = CliRunner().invoke(app, ["compare", *words, "--runs-dir", str(runs)])
    assert isinstance(done.exception, kind)
    assert list(runs.parent.glob("page.*")) == []


def test_a_wrong_page_name_is_refused_before_anything_is_trained(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.cli.repeat.repeat_seeds", lambda *_: pytest.fail("trained"))
    words = ["compare", "*-s1", "--run-until-decided", "--out", "page.txt", "--runs-dir", str(runs)]
    done = CliRunner().invoke(app, words)
    assert "should end in .html" in str(done.exception)


def test_runs_without_metrics_are_compared_as_far_as_they_go(runs: Path) -> None:
    for path in runs.iterdir():
        (path / "metrics.jsonl").unlink()
    (runs / "a-s0" / "status.json").write_text("{")
    compared = reverie.compare("*", runs_dir=runs)
    assert [len(group.scores) for group in compared.envs["A-v0"]] == [4, 5]
    assert "1 run without a final score" in " ".join(compared.warnings("A-v0"))


@pytest.mark.needs("pandas")
def test_runs_and_comparisons_become_frames(runs: Path) -> None:
    frame = reverie.find_runs("seed<2", runs).to_frame()
    assert len(frame) == 4
    assert str(frame["created"].dtype).startswith("datetime64")
    assert frame["seed"].sum() == 2
    assert reverie.find_runs("seed=77", runs).to_frame().empty
    table = reverie.compare("*", runs_dir=runs).to_frame()
    assert list(table["group"]) == ["ppo", "ppo gamma=0.5"]


def test_a_frame_without_pandas_says_what_to_install(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="Frames need the package pandas"):
        reverie.find_runs(runs_dir=runs).to_frame()
