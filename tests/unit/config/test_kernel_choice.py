"""Engine and matmul libraries are measured once, when a run is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie import api
from reverie.algos.dqn import DQN
from reverie.config import kernel_choice
from reverie.config.files import read_config
from reverie.config.kernel_choice import choose, describe, rows_per_step
from reverie.core.reads import Rollout, Transitions
from reverie.core.rng import make_generator
from reverie.envs.make import make_specs
from reverie.kernels import measure

BIG = ("algorithm.batch_size=256",)
SPEEDS = {
    "engines": {"numpy": 1.0, "torch": 2.0},
    "matmul": {"torch": 2.0, "onednn": 1.0},
    "numpy_matmul": {"numpy": 1.0, "torch": 2.0, "onednn": 0.9},
}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replaces the measurement by SPEEDS, and lists what was measured."""
    asked: list[Any] = []
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "measure", lambda shapes: asked.append(shapes) or SPEEDS)
    return asked


@pytest.mark.parametrize(
    ("changes", "has_engine", "expected"),
    [
        ({}, True, ("numpy", "onednn", "numpy")),
        ({"matmul": {"torch": 1.0, "onednn": 0.9}}, True, ("numpy", "torch", "numpy")),
        ({"matmul": {"torch": 1.0}}, True, ("numpy", "torch", "numpy")),
        ({"numpy_matmul": {"numpy": 1.0, "torch": 0.5, "onednn": 0.4}}, True, ("numpy", "onednn", "onednn")),
        ({"engines": {"numpy": 1.0, "torch": 0.5}}, True, ("torch", "onednn", "numpy")),
        ({"engines": {"numpy": 1.0, "torch": 0.5}}, False, ("numpy", "onednn", "numpy")),
    ],
)
def test_only_what_is_decisively_faster_is_chosen(
    changes: dict[str, Any], has_engine: bool, expected: tuple[str, ...]
) -> None:
    found = choose({**SPEEDS, **changes}, has_engine)
    assert (found["engine"], found["matmul"], found["numpy_matmul"]) == expected


def test_a_config_is_measured_once_per_machine(measured: list[Any]) -> None:
    for _ in range(2):
        backend = api.make_config("CartPole-v1:dqn", BIG).backend
        assert (backend.engine, backend.matmul, backend.numpy_matmul) == ("numpy", "onednn", "numpy")
    (shapes,) = measured
    assert [(shape.rows, shape.inputs, shape.outputs) for shape in shapes] == [(256, 256, 256)]


def test_what_the_user_says_is_kept(measured: list[Any]) -> None:
    words = ("backend.engine=torch", "backend.matmul=torch", "backend.numpy_matmul=onednn")
    backend = api.make_config("CartPole-v1:dqn", [*BIG, *words]).backend
    assert (backend.engine, backend.matmul, backend.numpy_matmul) == ("torch", "torch", "onednn")
    assert not measured


def test_small_networks_are_not_measured(measured: list[Any]) -> None:
    backend = api.make_config("CartPole-v1:ppo").backend
    assert (backend.engine, backend.matmul, backend.numpy_matmul) == ("numpy", "torch", "numpy")
    assert not measured


def test_a_run_trains_with_what_was_measured(
    measured: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = {**SPEEDS, "numpy_matmul": {"numpy": 1.0, "torch": 0.5}}
    monkeypatch.setattr(measure, "measure", lambda shapes: faster)
    words = (*BIG, "evaluate.final_episodes=0", "video.enabled=false", "log.report=false")
    run = api.train("CartPole-v1:dqn", *words, steps=300, runs_dir=tmp_path / "runs")
    assert read_config(run.path / "config.yaml").backend.numpy_matmul == "torch"
    (verdict,) = api.verify(run)
    assert verdict.is_reproduced


def test_an_unusable_cache_is_no_obstacle(measured: list[Any], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert api.make_config("CartPole-v1:dqn", BIG).backend.matmul == "onednn"
    assert len(measured) == 2  # once for the cache, and again because nothing was cached


def test_rows_of_a_gradient_step() -> None:
    config = api.make_config("CartPole-v1:ppo", ["phases.learn.collect.rows=2048"])
    assert rows_per_step(config, "update", Transitions(32)) == 32
    for size, rows in ((64, 64), (0.25, 512)):
        algorithm = config.algorithm.model_copy(update={"batch_size": size})
        assert rows_per_step(config.model_copy(update={"algorithm": algorithm}), "update", Rollout()) == rows


def test_the_user_sees_the_numbers() -> None:
    chosen = {"engine": "numpy", "matmul": "onednn", "numpy_matmul": "numpy"}
    assert describe(SPEEDS, chosen, has_numpy_engine=False) == (
        "Updates by the torch engine, big matmuls by onednn (measured per update: torch 2000.00 ms, onednn 1000.00 ms)"
    )
    assert "numpy engine, big matmuls by numpy" in describe(SPEEDS, chosen, has_numpy_engine=True)


def test_only_processors_are_measured(measured: list[Any]) -> None:
    config = api.make_config("CartPole-v1:dqn", BIG)
    on_gpu = config.backend.model_copy(update={"device": "cuda", "matmul": "auto"})
    agent = DQN(config.algorithm, make_specs(config.env), make_generator("weights"))
    measured.clear()
    found, notes = kernel_choice.choose_kernels(config.model_copy(update={"backend": on_gpu}), agent)
    assert found.backend.matmul == "torch"
    assert not notes
    assert not measured
