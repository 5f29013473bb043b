"""Sinks by kind: which a config asks for, and that one which fails harms nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reverie import api
from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.log.guarded_sink import GuardedSink
from reverie.log.loggers import RunInfo, make_loggers
from reverie.log.progress import _display
from reverie.log.sinks import read_jsonl

HERE = "tests.unit.log.test_loggers"
WORDS = ("phases.learn.collect.rows=64", "log.every_steps=100", "evaluate.final_episodes=2")


class KeepingSink:
    """A logger of somebody's own: counts records into a file."""

    class Config(ComponentConfig):
        file: str = "kept.txt"

    def __init__(self, config: Config, run: RunInfo) -> None:
        self.path = run.folder / config.file
        self.kinds: list[str] = []

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        self.kinds.append(kind)

    def close(self) -> None:
        self.path.write_text(" ".join(sorted(set(self.kinds))))


class BrokenSink(KeepingSink):
    """Fails where it is told to."""

    class Config(ComponentConfig):
        at: str = "write"

    def __init__(self, config: Config, run: RunInfo) -> None:
        self.at = config.at
        if self.at == "start":
            raise OSError(28, "No space left on device")

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if self.at == "write":
            raise OSError(28, "No space left on device")

    def close(self) -> None:
        if self.at == "close":
            raise RuntimeError("the server is gone\nand more lines")


class NeedySink(KeepingSink):
    def __init__(self, config: Any, run: RunInfo) -> None:
        import a_package_that_nobody_has  # type: ignore[import-not-found] # noqa: F401


def test_a_class_of_ones_own_gets_all_records(runs_dir: Path) -> None:
    words = (*WORDS, "video.enabled=false", f"log.loggers=[{{kind: {HERE}.KeepingSink, file: mine.txt}}]")
    run = api.train("CartPole-v1:ppo", *words, steps=200, runs_dir=runs_dir)
    assert (run.path / "mine.txt").read_text() == "figure histogram machine metrics scores"
    assert _display.get() is None  # progress lines of whatever comes next are not the run's any more


@pytest.mark.parametrize(
    ("at", "warning"),
    [
        ("start", "could not start and is left out (OSError: [Errno 28] No space left on device)"),
        ("write", "failed and was switched off (OSError: [Errno 28] No space left on device)"),
        ("close", "could not be closed (RuntimeError: the server is gone)"),
    ],
)
def test_a_broken_sink_is_dropped_with_one_warning(at: str, warning: str, runs_dir: Path) -> None:
    words = (*WORDS, f"log.loggers=[{{kind: {HERE}.BrokenSink, at: {at}}}, csv]")
    run = api.train("CartPole-v1:ppo", *words, steps=300, runs_dir=runs_dir)
    assert run.state == "finished"
    lines = [line for line in (run.path / "run.log").read_text().splitlines() if "BrokenSink" in line]
    assert len(lines) == 1
    assert warning in lines[0]
    assert len(read_jsonl(run.path / "metrics.jsonl")) == len((run.path / "metrics.csv").read_text().splitlines()) - 1


def test_a_dropped_sink_is_not_asked_again() -> None:
    asked: list[str] = []

    class Sink:
        def write(self, kind: str, record: Mapping[str, Any]) -> None:
            asked.append(kind)
            raise ValueError

        def close(self) -> None:
            asked.append("close")
            raise ValueError

    warnings: list[str] = []
    guarded = GuardedSink("mine", Sink(), warnings.append)
    guarded.write("metrics", {})
    guarded.write("scores", {})
    guarded.close()
    assert asked == ["metrics", "close"]
    assert warnings == ["mine failed and was switched off (ValueError). metrics.jsonl is still written."]


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a_package_that_nobody_has"):
        make_loggers([ComponentConfig(kind=f"{HERE}.NeedySink")], RunInfo(tmp_path), print)


def test_an_unknown_kind_is_refused_before_there_is_a_run(runs_dir: Path) -> None:
    with pytest.raises(ConfigError, match="no logger called 'cvs'"):
        api.train("CartPole-v1:ppo", "log.loggers=[cvs]", runs_dir=runs_dir)
    assert list(runs_dir.iterdir()) == []


def test_a_strangers_logger_is_not_imported(runs_dir: Path) -> None:
    words = (*WORDS, f"log.loggers=[{{kind: {HERE}.KeepingSink}}]")
    run = api.train("CartPole-v1:ppo", *words, steps=200, runs_dir=runs_dir)
    (run.path / "config.hmac").unlink()
    with pytest.raises(ConfigError, match="--trust"):
        api.resume(run.name, steps=300, runs_dir=runs_dir)


def test_short_forms_stand_for_loggers() -> None:
    config = api.make_config("CartPole-v1:ppo", ["log.csv=true", "log.tensorboard=true", "log.wandb.project=mine"])
    assert [logger.kind for logger in config.log.all_loggers()] == ["csv", "tensorboard", "wandb"]
    assert config.log.wandb is not None
    assert config.log.wandb.project == "mine"
    assert api.make_config("CartPole-v1:ppo").log.all_loggers() == []
