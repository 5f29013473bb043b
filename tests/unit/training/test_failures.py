"""Updates that cannot go on: what is said, what is kept, and that no spoilt checkpoint replaces a sound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from reverie import api
from reverie.algos.ppo import PPO
from reverie.core.errors import TrainingError
from reverie.core.types import Update
from reverie.log.sinks import read_jsonl
from reverie.store.checkpoint import CheckpointFolder
from reverie.store.trees import read_tree
from reverie.training.failures import UpdateCall, check_finite, check_weights, is_out_of_memory

WORDS = (
    "CartPole-v1:ppo", "env.num_envs=4", "env.vector=sync", "phases.learn.hooks=[{collect: {rows: 64}}, {update: {}}]",
    "algorithm.epochs=1", "algorithm.network.units=[8]", "checkpoint.every_steps=100", "evaluate.final_episodes=0",
)  # fmt: skip
UPDATE = PPO.update


class Failing:
    """The update of PPO, until it has been called a number of times."""

    def __init__(self, calls: int, instead: Any) -> None:
        self.left, self.instead = calls, instead
        self.batch: Any = None

    def __call__(self, algorithm: PPO, batch: Any, clock: Any, rng: Any) -> Update:
        self.left -= 1
        self.batch = batch
        return UPDATE(algorithm, batch, clock, rng) if self.left >= 0 else self.instead(algorithm)


def train(runs_dir: Path, failing: Failing) -> tuple[Path, TrainingError]:
    with mock.patch.object(PPO, "update", lambda *given: failing(*given)), pytest.raises(TrainingError) as caught:
        api.train(*WORDS, steps=2000, seed=1, runs_dir=runs_dir)
    (run,) = runs_dir.iterdir()
    return run, caught.value


def diverge(algorithm: PPO) -> Update:
    return Update({"loss": float("nan"), "kl": 0.5})


def test_the_batch_that_did_it_is_kept(runs_dir: Path) -> None:
    failing = Failing(5, diverge)
    run, error = train(runs_dir, failing)
    assert "loss = nan" in error.message
    assert "failed_batch.safetensors" in error.message
    kept = read_tree(run / "failed_batch")
    assert kept["hook"] == "update"
    assert kept["metrics"] == {"loss": "nan", "kl": "0.5"}
    assert kept["updates"] == 5 * 1 or kept["updates"] > 0
    assert kept["batch"].keys() == failing.batch.keys()
    for key, values in failing.batch.items():
        np.testing.assert_array_equal(kept["batch"][key], values)


def test_it_is_an_alert_and_the_last_sound_checkpoint_stays(runs_dir: Path) -> None:
    run, error = train(runs_dir, Failing(5, diverge))
    (alert,) = read_jsonl(run / "alerts.jsonl")
    assert (alert["level"], alert["rule"]) == ("error", "not_finite")
    assert alert["message"] == f"{error.message} {error.fix}"
    assert str(runs_dir) not in alert["message"], "alerts of equal runs are equal, wherever they lie"
    newest, complaints = CheckpointFolder(run).newest_sound()
    assert newest is not None
    assert newest.counters["env_steps"] < alert["env_steps"]
    assert complaints == []
    resumed = api.resume(str(run), steps=400)
    assert resumed.state == "finished"
    assert read_jsonl(run / "alerts.jsonl") == [], "what comes after the checkpoint has not happened"


def spoil(algorithm: PPO) -> Update:
    algorithm.optimizer.flat.data.fill_(float("nan"))
    return Update({"loss": 0.0})


def test_weights_that_are_not_numbers_are_never_saved(runs_dir: Path) -> None:
    run, error = train(runs_dir, Failing(5, spoil))
    assert "contain NaN" in error.message
    for checkpoint in CheckpointFolder(run).all():
        check_weights(checkpoint.read("algorithm"))


def test_too_little_memory_is_explained(runs_dir: Path) -> None:
    def exhaust(algorithm: PPO) -> Update:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    run, error = train(runs_dir, Failing(5, exhaust))
    assert "algorithm.batch_size" in error.fix
    assert "'update' in phase 'learn'" in error.message
    assert api.resume(str(run), "algorithm.batch_size=16", steps=400).state == "finished"


def test_what_counts_as_too_little_memory() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_an_env_that_gives_no_numbers_is_named() -> None:
    batch = {"obs": np.full((2, 2, 3), np.inf), "reward": np.zeros((2, 2))}
    call = UpdateCall("update", "learn", "My-v0", batch, 7, 3)
    with pytest.raises(TrainingError, match=r"obs of the env My-v0 is not finite"):
        check_finite(Update({"loss": float("inf")}), call)
    check_finite(Update({"loss": 1.0}), call)


def test_infinite_weights_are_allowed() -> None:
    """An optimistic table may start with them."""
    check_weights({"table": {"values": np.array([np.inf, 1.0])}, "steps": np.array([1])})
    with pytest.raises(TrainingError, match=r"table\.values"):
        check_weights({"table": {"values": np.array([np.nan, 1.0])}})
