"""``--debug``: what it writes, and that it finds what is wrong."""

from __future__ import annotations

import bdb
import json
import sys
from pathlib import Path
from trace import Trace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from typer.testing import CliRunner

from reverie import api, diagnostics
from reverie.algos.ppo import PPO
from reverie.api import make_config
from reverie.build import build, copy_algorithm
from reverie.cli.main import app
from reverie.config.files import read_config
from reverie.config.pipeline import prepare_new
from reverie.core.errors import TrainingError
from reverie.log.sinks import read_jsonl
from reverie.machine.memory import is_debugged
from reverie.nets.optim import Loss
from reverie.runs.debug_loop import OVERFIT_UPDATES, check_overfit
from reverie.runs.verify import first_difference

WORDS = (
    "CartPole-v1:dqn", "phases.prefill.duration_steps=50", "phases.prefill.collect.rows=50", "buffers.main.min_rows=20",
    "phases.learn.hooks=[{collect: {rows: 20}}, {update: {updates: 2}}]", "algorithm.network.units=[16]",
    "evaluate.final_episodes=0", "log.every_steps=40", "checkpoint.every_steps=60",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs_dir = tmp_path_factory.mktemp("debug")
    result = CliRunner().invoke(
        app, ["train", *WORDS, "--debug", "--steps", "200", "--quiet", "--runs-dir", str(runs_dir)]
    )
    assert result.exit_code == 0, result.output
    return next(runs_dir.iterdir())


def test_it_is_written_into_the_config(run: Path) -> None:
    config = read_config(run / "config.yaml")
    assert config.debug
    assert config.env.vector == "sync"


def test_another_vector_may_be_asked_for() -> None:
    assert make_config("CartPole-v1:ppo", ["debug=true", "env.vector=process"]).env.vector == "process"


def test_there_is_one_env_unless_more_are_typed() -> None:
    assert make_config("CartPole-v1:ppo").env.num_envs == 8
    assert make_config("CartPole-v1:ppo", ["debug=true"]).env.num_envs == 1
    assert make_config("CartPole-v1:ppo", ["debug=true", "env.num_envs=4"]).env.num_envs == 4


@pytest.fixture
def debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("reverie.config.pipeline", "reverie.runs.execute"):
        monkeypatch.setattr(f"{place}.is_debugged", lambda: True)


@pytest.mark.usefixtures("debugger")
def test_a_new_run_under_a_debugger_is_a_debug_run_unless_told_not_to_be(tmp_path: Path) -> None:
    words = ["train", *WORDS, "--steps", "100", "--runs-dir", str(tmp_path), "preflight.enabled=false"]
    told = CliRunner().invoke(app, words).output
    assert "so this is a debug run" in " ".join(told.split())
    assert read_config(tmp_path / "CartPole-v1-dqn-s0-1" / "config.yaml").debug
    sources = json.loads((tmp_path / "CartPole-v1-dqn-s0-1" / "sources.json").read_text())["sources"]
    assert sources["debug"] == "decided at the start: a debugger is attached"
    told = CliRunner().invoke(app, [*words, "--no-debug"]).output
    assert "this is not a debug run" in " ".join(told.split())
    assert not read_config(tmp_path / "CartPole-v1-dqn-s0-2" / "config.yaml").debug
    assert not (tmp_path / "CartPole-v1-dqn-s0-2" / "debug").exists()


@pytest.mark.usefixtures("debugger")
def test_the_sources_say_why_there_is_one_env() -> None:
    prepared = prepare_new("CartPole-v1:ppo")
    config, composed = prepared.config, prepared.composed
    assert (config.debug, config.env.num_envs, config.env.vector) == (True, 1, "sync")
    assert composed.sources["env.num_envs"] == "decided at the start: debug"


def test_a_resumed_run_keeps_its_settings_under_a_debugger(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = api.train(*WORDS, "env.num_envs=2", steps=100, runs_dir=tmp_path)
    before = read_config(run.path / "config.yaml")
    request.getfixturevalue("debugger")
    api.resume(str(run.path), "log.every_steps=50", steps=400)
    after = read_config(run.path / "config.yaml")
    assert (before.debug, before.env, before.backend) == (after.debug, after.env, after.backend)
    assert not after.debug
    assert after.log.every_steps == 50


def test_the_trace_is_one_that_a_browser_reads(run: Path) -> None:
    trace = json.loads((run / "debug/trace.json").read_text())
    names = {event.get("name", "") for event in trace["traceEvents"]}
    assert any("addmm" in name for name in names)
    assert any("backward" in name.lower() for name in names)


def test_layers_have_a_line_per_line_of_metrics(run: Path) -> None:
    lines = read_jsonl(run / "debug/layers.jsonl")
    metrics = read_jsonl(run / "metrics.jsonl")
    assert [line["env_steps"] for line in lines] == [line["env_steps"] for line in metrics][: len(lines)]
    assert len(lines) >= 3
    weights = lines[-1]["layers"]["online.trunk.layers.0.weight"]
    assert weights["weight_norm"] > weights["weight_largest"] > 0
    assert weights["gradient_norm"] > 0
    assert not any("gradient" in key or "debug" in key for line in metrics for key in line)


def test_the_loss_of_the_first_batch_falls(run: Path) -> None:
    told = [alert for alert in read_jsonl(run / "alerts.jsonl") if alert["rule"] == "overfit"]
    assert [alert["level"] for alert in told] == ["info"]
    assert "loss went from" in told[0]["message"]


def test_a_resume_neither_repeats_the_check_nor_doubles_lines(run: Path) -> None:
    before = read_jsonl(run / "debug/layers.jsonl")
    api.resume(str(run), steps=260)
    after = read_jsonl(run / "debug/layers.jsonl")
    steps = [line["env_steps"] for line in after]
    assert len(after) > len(before)
    assert steps == sorted(set(steps))
    assert len([alert for alert in read_jsonl(run / "alerts.jsonl") if alert["rule"] == "overfit"]) == 1


def first_batch() -> tuple[Any, Any]:
    words = ["algorithm.epochs=1", "algorithm.network.units=[8]", "algorithm.learning_rate=1e-2"]
    session = build(make_config("CartPole-v1:ppo", words, seed=1))
    session.collector.restart()
    session.collector.collect_rows(session.buffers["main"], 256)
    batch = session.buffers["main"].sample(session.algorithm.reads["update"], session.collector.now, None)
    return session, batch


def test_the_overfit_check_works_on_a_copy() -> None:
    session, batch = first_batch()
    before = session.state()
    level, message = check_overfit(session, "update", batch)
    assert level == "info"
    assert "loss went from" in message
    assert list(first_difference(before, session.state())) == []
    session.close()


def test_an_algorithm_that_cannot_learn_is_told() -> None:
    session, batch = first_batch()
    session.algorithm.config = session.algorithm.config.model_copy(
        update={"learning_rate": session.algorithm.config.learning_rate.model_copy(update={"start": 0.0, "end": 0.0})}
    )
    level, message = check_overfit(session, "update", batch)
    session.close()
    assert level == "warning"
    assert f"in {OVERFIT_UPDATES} calls" in message
    assert "learning_rate" in message


def test_a_copy_is_the_same_and_apart() -> None:
    session, _ = first_batch()
    copy = copy_algorithm(session)
    assert list(first_difference(copy.state(), session.algorithm.state())) == []
    copy.optimizer.flat.data.zero_()  # type: ignore[attr-defined]
    assert session.algorithm.optimizer.flat.abs().max() > 0
    session.close()


def test_a_gradient_that_is_no_number_stops_at_its_operation(runs_dir: Path) -> None:
    def spoilt(algorithm: PPO, rows: Any, settings: Any) -> Loss:
        value = algorithm.model.value(rows)
        return Loss(torch.sqrt(value - value).sum())  # its value is fine, its gradient is not

    words = ("CartPole-v1:ppo", "debug=true", "phases.learn.hooks=[{collect: {rows: 64}}, {update: {}}]")
    with (
        mock.patch.object(PPO, "loss", spoilt),
        mock.patch("reverie.runs.debug_loop.check_overfit", return_value=("info", "")),
        pytest.raises(TrainingError, match=r"Backward.* returned nan values"),
        pytest.warns(UserWarning, match="Error detected"),
    ):
        api.train(*words, steps=200, runs_dir=runs_dir)
    assert (next(runs_dir.iterdir()) / "failed_batch.safetensors").exists()
    assert not torch.is_anomaly_enabled()


def test_statistics_of_layers() -> None:
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(torch.tensor([[3.0, -4.0]]))
    holder = type("Holder", (), {})()
    holder.net = layer
    assert diagnostics.layer_statistics(holder) == {"net.weight": {"weight_norm": 5.0, "weight_largest": 4.0}}
    layer.weight.grad = torch.tensor([[0.0, 2.0]])
    assert diagnostics.layer_statistics(holder)["net.weight"]["gradient_norm"] == 2.0


def test_a_debugger_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*_: Any) -> None: ...

    monkeypatch.setattr(sys, "monitoring", None, raising=False)
    for tracer, is_one in (
        (None, False), (trace, False), (bdb.Bdb().trace_dispatch, True),
        (type("Own", (bdb.Bdb,), {})().trace_dispatch, True),
        (Trace(trace=1).globaltrace, False), (SimpleNamespace(__module__="coverage"), False),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "gettrace", lambda tracer=tracer: tracer)
        assert is_debugged() == is_one, tracer
    trace.__module__ = "_pydevd_bundle.pydevd_trace_dispatch_regular"
    monkeypatch.setattr(sys, "gettrace", lambda: trace)
    assert is_debugged()


def test_a_debugger_of_newer_pythons_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = {0: None, 1: "coverage"}
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(DEBUGGER_ID=0, get_tool=tools.get), raising=False)
    assert not is_debugged()
    tools[0] = "pydevd"
    assert is_debugged()
