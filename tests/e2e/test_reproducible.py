"""One seed gives one result, in any process, with any vector backend and other runs beside it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from reverie import api
from tests.e2e.conftest import SMALL, run_in_process

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

WORDS = (*SMALL, "normaliser.observation=rolling", "normaliser.reward=true")


def contents(run: Path) -> dict[str, bytes]:
    """All files of a run that must be reproducible."""
    files = [run / "metrics.jsonl", run / "scores.jsonl", *sorted((run / "policies").rglob("*.*"))]
    return {str(path.relative_to(run)): path.read_bytes() for path in files if path.is_file()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = api.train(*WORDS, seed=5, steps=600, runs_dir=tmp_path_factory.mktemp("reference"))
    found = contents(run.path)
    assert {"metrics.jsonl", "scores.jsonl", "policies/final/policy.safetensors"} <= set(found)
    assert all(found.values())
    return found


def test_another_process_gives_the_same_bits(reference: dict[str, bytes], tmp_path: Path) -> None:
    done = run_in_process("train", *WORDS, "--seed", "5", "--steps", "600", "--quiet", folder=tmp_path)
    assert done.code == 0, done.err
    assert contents(tmp_path / "runs" / "CartPole-v1-ppo-s5-1") == reference


def test_worker_processes_give_the_same_bits(reference: dict[str, bytes], tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith("env.vector")]
    run = api.train(*words, "env.vector=process", "env.workers=2", seed=5, steps=600, runs_dir=tmp_path)
    found = contents(run.path)
    for name in reference:
        if not name.endswith(".json"):  # which names the vector backend
            assert found[name] == reference[name]


def test_another_seed_gives_another_run(reference: dict[str, bytes], tmp_path: Path) -> None:
    found = contents(api.train(*WORDS, seed=6, steps=600, runs_dir=tmp_path).path)
    assert found["metrics.jsonl"] != reference["metrics.jsonl"]
    assert found["policies/final/policy.safetensors"] != reference["policies/final/policy.safetensors"]


def test_global_generators_have_no_effect(reference: dict[str, bytes], tmp_path: Path) -> None:
    """Their state has no effect. A fixture around every test checks that runs do not change it."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    try:
        assert contents(api.train(*WORDS, seed=5, steps=600, runs_dir=tmp_path).path) == reference
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def test_checkpoint_and_log_intervals_do_not_change_training(reference: dict[str, bytes], tmp_path: Path) -> None:
    run = api.train(
        *WORDS, "checkpoint.every_steps=70", "evaluate.final_episodes=3", seed=5, steps=600, runs_dir=tmp_path
    )
    assert contents(run.path) == reference
