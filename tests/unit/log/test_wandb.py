"""Weights & Biases: what is sent (offline, or to a stand-in), and what a sweep agent chooses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from reverie.cli.train import _with_sweep
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.log.loggers import RunInfo, make_loggers
from reverie.log.wandb import WandbConfig, WandbSink, sweep_overrides


class StandIn:
    """What the sink uses of the package, noting all calls."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.started: list[dict[str, Any]] = []
        self.calls: list[tuple[str, Any]] = []

    def init(self, **settings: Any) -> StandIn:
        self.started.append(settings)
        return self

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **more: self.calls.append((name, more or words)) or (name, words)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", made)  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    return made


def test_what_is_sent(stand_in: StandIn, tmp_path: Path) -> None:
    sink = WandbSink(WandbConfig(project="mine", mode="offline"), RunInfo(tmp_path, config={"seed": 3}))
    sink.write("metrics", {"env_steps": 5, "phase": "learn", "update/loss": 0.5})
    sink.write("scores", {"env_steps": 6, "return": 2.0, "length": 4, "episode": 1})
    sink.write("figure", {"env_steps": 7, "name": "evaluate/figure", "image": np.zeros((4, 4, 3), np.uint8)})
    sink.write("machine_alerts", {"env_steps": 8, "level": "warning", "rule": "memory", "message": "full"})
    sink.write("alerts", {"env_steps": 8, "level": "warning", "rule": "entropy", "message": "gone"})
    sink.close()
    (settings,) = stand_in.started
    assert (settings["project"], settings["mode"], settings["config"]) == ("mine", "offline", {"seed": 3})
    assert stand_in.logged[0] == {"env_steps": 5, "update/loss": 0.5}
    assert stand_in.logged[1] == {"env_steps": 6, "episode/return": 2.0, "episode/length": 4}
    assert stand_in.logged[2]["evaluate/figure"][0] == "Image"
    assert len(stand_in.logged) == 3
    alerts = [told for name, told in stand_in.calls if name == "alert"]
    assert alerts == [{"title": "memory", "text": "full"}, {"title": "entropy", "text": "gone"}]
    assert stand_in.calls[-1][0] == "finish"


def test_a_resume_goes_on_in_the_same_run(stand_in: StandIn, tmp_path: Path) -> None:
    for _ in range(2):
        WandbSink(WandbConfig(), RunInfo(tmp_path))
    (tmp_path / "wandb_id.txt").write_text("../../not an id")
    WandbSink(WandbConfig(), RunInfo(tmp_path))
    first, second, third = (settings["id"] for settings in stand_in.started)
    assert first == second != third
    assert third.isalnum()
    assert stand_in.started[1]["resume"] == "allow"


def test_an_agent_chooses_the_id(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "chosen")
    WandbSink(WandbConfig(), RunInfo(tmp_path))
    assert stand_in.started[0]["id"] is None


def agent(folder: Path, choices: Any) -> dict[str, str]:
    path = folder / "config-abc.yaml"
    path.write_text(yaml.safe_dump(choices, sort_keys=False) if not isinstance(choices, str) else choices)
    return {"WANDB_SWEEP_ID": "abc", "WANDB_SWEEP_PARAM_PATH": str(path)}


def test_what_an_agent_chooses(tmp_path: Path) -> None:
    choices = {"wandb_version": 1, "algorithm.gamma": {"value": 0.9}, "env": {"value": {"num_envs": 4}},
               "algorithm.name": {"value": "a b"}, "x": {"value": None}}  # fmt: skip
    words = ["algorithm.gamma=0.9", 'env={"num_envs": 4}', 'algorithm.name="a b"', "x=null"]
    assert sweep_overrides(agent(tmp_path, choices)) == words
    assert sweep_overrides({}) == []
    assert sweep_overrides({"WANDB_SWEEP_ID": "abc"}) == []


@pytest.mark.parametrize("text", ["{", "[1]", "a: 1", "!!python/object/apply:os.getcwd []"])
def test_choices_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="WANDB_SWEEP_ID"):
        sweep_overrides(agent(tmp_path, text))


def test_a_run_of_an_agent_takes_its_choices_and_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _with_sweep(["seed=1"]) == ["seed=1"]
    for name, value in agent(tmp_path, {"algorithm.gamma": {"value": 0.9}}).items():
        monkeypatch.setenv(name, value)
    assert _with_sweep(["seed=1"]) == ["seed=1", "algorithm.gamma=0.9", "log.wandb={}"]
    assert _with_sweep(["log.wandb.mode=offline"]) == ["log.wandb.mode=offline", "algorithm.gamma=0.9"]


@pytest.mark.needs("wandb")
def test_offline_everything_is_kept_in_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    sink = WandbSink(WandbConfig(mode="offline"), RunInfo(tmp_path, config={"seed": 1}))
    sink.write("metrics", {"env_steps": 1, "update/loss": 0.5})
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    sink.write("histogram", {"env_steps": 1, "name": "weights", "values": np.arange(5.0)})
    sink.write("video", {"env_steps": 1, "name": "video", "frames": frames, "fps": 10})
    sink.write("figure", {"env_steps": 1, "name": "figure", "image": frames[0]})
    sink.close()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(folder.glob("run-*.wandb"))
    assert {path.suffix for path in (folder / "files/media").rglob("*.*")} == {".gif", ".png"}


def test_a_run_that_exists_sends_nothing_unless_it_is_trusted(stand_in: StandIn, tmp_path: Path) -> None:
    told: list[str] = []
    config = WandbConfig(project="theirs", entity="a stranger", mode="online")
    with registry.known_kinds_only():
        make_loggers([config], RunInfo(tmp_path), told.append)
        make_loggers([config.model_copy(update={"mode": "disabled"})], RunInfo(tmp_path), told.append)
    make_loggers([config], RunInfo(tmp_path), told.append)
    assert [settings["mode"] for settings in stand_in.started] == ["offline", "disabled", "online"]
    assert len(told) == 1
    assert "--trust" in told[0]
