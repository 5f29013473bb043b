"""Short runs of the checking agent on ``Reverie/Counting-v0``, in memory: no folder, no network, nothing learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from reverie.build import build, build_evaluator
from reverie.config.checks import check_config
from reverie.config.schema import RunConfig
from reverie.core.types import Sealed
from reverie.training.orchestrator import Orchestrator
from tests.checking import CheckingAlgorithm

KIND = "tests.checking.CheckingAlgorithm"


class Listener:
    """A sink that keeps what it is given, by kind."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {"metrics": [], "scores": [], "machine": []}

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        self.records.setdefault(kind, []).append(dict(record))

    def close(self) -> None:
        """Nothing to close."""


class Run:
    """A session with its orchestrator and everything that was recorded."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.listener = Listener()
        self.session = build(config, [self.listener])
        self.evaluator = build_evaluator(config)
        self.orchestrator = Orchestrator(self.session, self.evaluator)

    @property
    def algorithm(self) -> CheckingAlgorithm:
        assert isinstance(self.session.algorithm, CheckingAlgorithm)
        return self.session.algorithm

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return self.listener.records["metrics"]

    @property
    def scores(self) -> list[dict[str, Any]]:
        return self.listener.records["scores"]

    def stop_after(self, env_steps: int) -> None:
        """Run on until this many env steps are done, in the middle of whatever comes then."""
        counters = self.session.counters
        Orchestrator(self.session, self.evaluator, (), lambda: counters.env_steps >= env_steps).run()

    def values(self, key: str) -> list[Any]:
        """A metric over all lines that have it."""
        return [line[key] for line in self.metrics if key in line]


def checking_config(
    *phases: dict[str, Any], env: Mapping[str, Any] | None = None, length: int = 6, **sections: Any
) -> RunConfig:
    """A run of the checking agent with three envs whose episodes have one to ``length`` steps."""
    env = {"id": "Reverie/Counting-v0", "num_envs": 3, "vector": "sync",
           "kwargs": {"length": length, "varied": True}, **(env or {})}  # fmt: skip
    tree = {
        "env": env, "algorithm": {"kind": KIND}, "buffers": {"main": {"kind": "rollout"}},
        "phases": [{"name": f"phase {number}", **phase} for number, phase in enumerate(phases)],
        "backend": {"device": "cpu", "precision": "float32"}, "log": {"every_steps": 1}, **sections,
    }  # fmt: skip
    config = RunConfig.model_validate(tree)
    check_config(config)
    return config


@contextmanager
def started(config: RunConfig) -> Iterator[Run]:
    """A run that has not done anything yet; closed at the end."""
    run = Run(config)
    try:
        yield run
    finally:
        run.session.close()
        run.evaluator.close()


@contextmanager
def finished(config: RunConfig) -> Iterator[Run]:
    """A run that has come to its end."""
    with started(config) as run:
        assert run.orchestrator.run()
        yield run


def assert_same_state(one: Any, other: Any, path: str = "state") -> None:
    """Two nested states hold the same values, bit for bit."""
    if isinstance(one, Sealed):
        assert one.name == other.name, path
        assert_same_state(one.arrays, other.arrays, path)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same_state(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same_state(left, right, f"{path}/{index}")
    else:
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=path)
