"""What is found out about an agent before there is a run for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reverie import api
from reverie.backend import modules_of, without_weights
from reverie.config.agent_checks import check_agent, check_reads
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.core.reads import Transitions
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.data.rollout import RolloutBuffer
from reverie.envs.make import make_specs
from reverie.nets.encoders import MLP
from reverie.policy import make_algorithm
from tests.checking import CheckingAlgorithm

FITTING = (
    ("CartPole-v1:dqn",), ("CartPole-v1:dreamer", "size400m"), ("CartPole-v1:ppo", "algorithm.network.kind=gru"),
    ("CartPole-v1:ppo", "algorithm.network.kind=transformer"), ("CartPole-v1:reinforce",), ("Pendulum-v1:sac",),
    ("Reverie/Motion-v0:dreamer",), ("Reverie/Motion-v0:dreamer", "**.strided=true"), ("Reverie/Motion-v0:ppo",),
    ("Taxi-v4:qlearning",), ("Pendulum-v1:planet",), ("Pendulum-v1:tdmpc",), ("Pendulum-v1:tdmpc2", "size1m"),
)  # fmt: skip


def test_every_algorithm_is_tried() -> None:
    kinds = {api.make_config(spec, words).algorithm.kind for spec, *words in FITTING}
    assert kinds == set(registry.kinds("algorithm")) - {"toy", "other"}  # those of the tests


@pytest.mark.parametrize("words", FITTING, ids=" ".join)
def test_agents_can_be_made_without_weights(words: tuple[str, ...]) -> None:
    config = api.make_config(words[0], words[1:])
    make, specs = registry.load("algorithm", config.algorithm.kind), make_specs(config.env)
    with without_weights() as backend:
        algorithm = make_algorithm(make, config.algorithm, specs, make_generator(0), backend)
    modules = modules_of(algorithm).values()
    assert {parameter.device.type for module in modules for parameter in module.parameters()} <= {"meta"}
    assert torch.zeros(1).device.type == "cpu"
    check_agent(config, make_specs(config.env))


@pytest.mark.parametrize(
    ("spec", "kind", "fix", "why"),
    [
        ("CartPole-v1:dqn", "rollout", "replay", "reads Transitions"),
        ("Taxi-v4:qlearning", "replay", "rollout", "reads Rollout"),
        ("CartPole-v1:reinforce", "replay", "rollout", "rows of older policies"),
    ],
)
def test_a_buffer_that_cannot_serve_is_refused(spec: str, kind: str, fix: str, why: str) -> None:
    setting = f"buffers.main.kind={kind}"
    with pytest.raises(ConfigError, match=rf"cannot learn from {setting}: .*({why})") as caught:
        api.make_config(spec, [setting])
    assert caught.value.fix.startswith(f"Set buffers.main.kind={fix}")


def test_a_ratio_to_what_has_no_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="train_ratio has no meaning"):
        api.make_config("CartPole-v1:ppo", ["phases.learn.hooks.update.train_ratio=64"])


def test_all_reads_that_cannot_be_served_are_told_together() -> None:
    learn = "hooks: [{collect: {rows: 64}}, {update: {train_ratio: 64}}], duration_steps: 100}"
    words = [f"phases=[{{name: a, {learn}, {{name: b, buffer: other, {learn}]", "buffers.other.kind=replay"]
    with pytest.raises(ConfigError, match="train_ratio has no meaning") as caught:
        api.make_config("CartPole-v1:ppo", words)
    assert "cannot learn from buffers.other.kind=replay" in caught.value.message
    assert len(caught.value.fix.splitlines()) == 2


class OwnTransitions(Transitions):
    """A read of one's own that replay answers as it answers others of its kind."""


class OwnBuffer(RolloutBuffer):
    """A buffer of one's own that does not say that it answers more."""


def test_reads_and_buffers_of_ones_own() -> None:
    config = api.make_config("CartPole-v1:dqn")
    check_reads(config, {"update": OwnTransitions(32)})
    with pytest.raises(ConfigError) as caught:
        api.make_config("CartPole-v1:dqn", [f"buffers.main.kind={__name__}.OwnBuffer"])
    assert caught.value.fix.startswith("Set buffers.main.kind=replay")
    assert caught.value.fix.endswith(f"or name the read in the traits of {__name__}.OwnBuffer.")


class LooksAtWeights(CheckingAlgorithm):
    """An algorithm of one's own that nobody can make without weights."""

    def __init__(self, config: Any, specs: Specs, rng: np.random.Generator) -> None:
        super().__init__(config, specs, rng)
        self.size = float(torch.nn.Linear(2, 2).weight.sum())


class LooksAtRows(MLP):
    """A network of one's own that does one thing or the other, by what it is shown."""

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        features: Tensor = super().forward(observation)
        return features if observation["obs"].max() > 5 else -features


@pytest.mark.parametrize("setting", ["algorithm.kind={}.LooksAtWeights", "algorithm.network.kind={}.LooksAtRows"])
def test_an_agent_that_needs_weights_is_left_to_the_run(setting: str) -> None:
    config = api.make_config("CartPole-v1:ppo", [setting.format(__name__)])
    make = registry.load("algorithm", config.algorithm.kind)
    with without_weights() as backend, pytest.raises((RuntimeError, ConfigError), match="meta"):
        make_algorithm(make, config.algorithm, make_specs(config.env), make_generator(0), backend)
    check_agent(config, make_specs(config.env))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices of the algorithms that were built, in order."""
    found: list[str] = []

    def make(*args: Any) -> Any:
        found.append(args[-1].device.type)
        return make_algorithm(*args)

    monkeypatch.setattr("reverie.config.agent_checks.make_algorithm", make)
    return found


def test_training_and_resume_build_the_algorithm_once(devices: list[str], tmp_path: Path) -> None:
    small = ["algorithm.network.units=[4]", "log.report=false", "evaluate.final_episodes=0"]
    run = api.train("CartPole-v1:ppo", *small, steps=64, runs_dir=tmp_path)
    assert devices == ["cpu"]
    api.resume(run, steps=1000)
    assert devices == ["cpu", "cpu"]


def test_a_config_is_checked_without_building_weights(devices: list[str]) -> None:
    api.make_config("CartPole-v1:ppo")
    assert devices == ["meta"]


class RefusesItsEnv(CheckingAlgorithm):
    """An algorithm of one's own that finds out while it is built that it does not fit."""

    def __init__(self, config: Any, specs: Specs, rng: np.random.Generator) -> None:
        raise ConfigError("This algorithm needs pixels.", "Choose another env.")


def test_an_agent_that_does_not_fit_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs pixels"):
        api.train("CartPole-v1:ppo", f"algorithm.kind={__name__}.RefusesItsEnv", runs_dir=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
