"""The Backend of a run, several of them in one process, and the settings of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

from reverie import api, backend
from reverie.algos.dreamer import Dreamer
from reverie.algos.ppo import PPO
from reverie.backend import Backend
from reverie.build import build
from reverie.config.schema import BackendConfig
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock
from reverie.policy import make_algorithm
from reverie.training.session import Session
from tests.checking import CheckingAlgorithm
from tests.unit.algos.batches import DISCRETE, VECTOR, random_rows
from tests.unit.algos.test_dreamer import SMALL, all_weights, make_batch

SETTINGS = {"device": "cpu", "engine": "numpy", "precision": "float32", "matmul": "torch", "numpy_matmul": "numpy"}


def settings(**changed: Any) -> BackendConfig:
    return BackendConfig.model_validate({**SETTINGS, **changed})


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    before = settings(threads=torch.get_num_threads(), deterministic=torch.are_deterministic_algorithms_enabled())
    yield
    backend.configure_process(before)


# ---------------------------------------------------------------- the process


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_threads_apply_to_torch_and_numpy() -> None:
    for count in (2, 1):
        backend.configure_process(settings(threads=count))
        assert torch.get_num_threads() == count
        assert blas_threads() == {count}


def test_onednn_keeps_few_shapes_unless_the_environment_asks_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "5")
    backend.configure_process(settings())
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(backend.SHAPES_KEPT)
    assert os.environ["LRU_CACHE_CAPACITY"] == "5"


# ---------------------------------------------------------------- from settings


@pytest.mark.parametrize(("key", "other"), [("matmul", "torch"), ("numpy_matmul", "numpy")])
def test_onednn_is_refused_where_torch_lacks_it(key: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="this build of torch") as caught:
        Backend.from_settings(settings(**{key: "onednn"}))
    assert f"backend.{key}={other}" in caught.value.fix


def test_undecided_kernels_are_the_usual_ones() -> None:
    undecided = {"engine": "auto", "matmul": "auto", "numpy_matmul": "auto"}
    assert Backend.from_settings(settings(**undecided)) == Backend()


@pytest.mark.parametrize(("microbatches", "engine"), [(1, "numpy"), (2, "torch")])
def test_microbatches_need_the_torch_engine(microbatches: int, engine: str) -> None:
    chosen = Backend.from_settings(settings(microbatches=microbatches))
    assert chosen.engine == engine
    assert [chosen.microbatch_size(rows) for rows in (8, 7)] == [8 // microbatches, 7 if microbatches == 1 else 4]


def test_bfloat16_uses_the_matmuls_of_torch() -> None:
    chosen = Backend.from_settings(settings(precision="bfloat16", matmul="onednn"))
    assert (chosen.precision, chosen.matmul) == ("bfloat16", "torch")


# ---------------------------------------------------------------- several in one process


def learn(session: Session, number: int) -> None:
    algorithm: Any = session.algorithm
    rows = random_rows(session.policy.specs, 4, 9, number)
    algorithm.update(rows, Clock(updates=number), make_generator(number, "update"))


def weights_of(session: Session) -> torch.Tensor:
    algorithm: Any = session.algorithm
    flat: torch.Tensor = algorithm.optimizer.flat.detach().clone()
    return flat


def test_sessions_with_different_engines_learn_side_by_side_as_they_do_alone() -> None:
    words = ["algorithm.network.units=[16]", "env.vector=sync", "env.num_envs=1"]
    configs = [api.make_config("CartPole-v1:ppo", [*words, f"backend.engine={name}"]) for name in ("numpy", "torch")]
    alone = []
    for config in configs:
        with closing(build(config)) as session:
            for number in range(3):
                learn(session, number)
            alone.append(weights_of(session))
    with closing(build(configs[0])) as by_numpy, closing(build(configs[1])) as by_torch:
        algorithms: Any = [by_numpy.algorithm, by_torch.algorithm]
        assert [algorithm.model.numpy is None for algorithm in algorithms] == [False, True]
        for number in range(3):
            learn(by_numpy, number)
            learn(by_torch, number)
        together = [weights_of(by_numpy), weights_of(by_torch)]
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert not torch.equal(*together)  # the engines differ in the last bits


def test_agents_with_different_precision_and_matmul_learn_side_by_side_as_they_do_alone() -> None:
    backends = [Backend(), Backend(precision="bfloat16"), Backend(engine="torch", microbatches=2)]

    def make(chosen: Backend) -> Dreamer:
        return Dreamer(Dreamer.Config.model_validate(SMALL), Specs(VECTOR, DISCRETE), make_generator(0), chosen)

    def update(agent: Dreamer, number: int) -> None:
        agent.update(make_batch(agent, number), Clock(), make_generator(number, "update"))

    alone, together = [make(chosen) for chosen in backends], [make(chosen) for chosen in backends]
    for agent in alone:
        for number in range(2):
            update(agent, number)
    for number in range(2):
        for agent in together:
            update(agent, number)
    found = [all_weights(agent) for agent in together]
    assert all(torch.equal(all_weights(one), other) for one, other in zip(alone, found, strict=True))
    assert not torch.equal(found[0], found[1])


# ---------------------------------------------------------------- algorithms of users


class WithoutBackend(CheckingAlgorithm):
    """An algorithm with the constructor of before."""

    def __init__(self, config: Any, specs: Any, rng: Any) -> None:
        super().__init__(config, specs, rng)


def test_algorithms_with_three_arguments_are_built_without_a_backend() -> None:
    config, specs = CheckingAlgorithm.Config(), Specs(VECTOR, DISCRETE)
    assert make_algorithm(WithoutBackend, config, specs, make_generator(0), Backend()).config == config


class PassesAll(PPO):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)


class PassesKeywords(PPO):
    def __init__(self, config: Any, specs: Any, rng: Any, **settings: Any) -> None:
        super().__init__(config, specs, rng, **settings)


class LosesBackend(PPO):
    def __init__(self, config: Any, specs: Any, rng: Any) -> None:
        super().__init__(config, specs, rng)


@pytest.mark.parametrize("kind", [PPO, PassesAll, PassesKeywords])
def test_the_backend_reaches_subclasses(kind: Any) -> None:
    chosen = Backend(engine="torch")
    found: Any = make_algorithm(kind, PPO.Config(), Specs(VECTOR, DISCRETE), make_generator(0), chosen)
    assert found.backend is chosen


@pytest.mark.parametrize("chosen", [Backend(engine="torch"), None])
def test_a_subclass_that_would_lose_the_backend_is_refused(chosen: Backend | None) -> None:
    with pytest.raises(ConfigError, match=r"LosesBackend takes no backend, so PPO would ignore.*\n.*super\(\)"):
        make_algorithm(LosesBackend, PPO.Config(), Specs(VECTOR, DISCRETE), make_generator(0), chosen)


@pytest.mark.parametrize("name", ["device", "to_tensors", "part_size", "engine"])
def test_module_functions_of_before_say_what_to_write(name: str) -> None:
    with pytest.raises(ConfigError, match="gets a Backend") as caught:
        getattr(backend, name)
    assert "self.backend." in caught.value.fix
    with pytest.raises(AttributeError, match="no attribute 'anything'"):
        _ = backend.anything  # type: ignore[attr-defined]
