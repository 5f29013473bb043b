"""The loop when something goes wrong: stops in an evaluation, failing parts, spoilt numbers, crashed envs."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.api import make_config
from reverie.core.errors import TrainingError
from reverie.core.types import Update
from reverie.training.orchestrator import Orchestrator
from tests.checking import CheckingAlgorithm
from tests.sessions import Run, assert_same_state, checking_config, finished, started

LEARN: dict[str, Any] = {
    "hooks": [{"collect": {"rows": 24}}, {"update": {}}, {"evaluate": {"episodes": 4}}], "duration_cycles": 3,
}  # fmt: skip
OWING: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {"updates": 2}}], "duration_cycles": 1}


class FailingPart:
    """Fails after an evaluation, when its scores are already written."""

    def end_cycle(self, session: Any) -> None:
        """Nothing to do."""

    def end_evaluation(self, session: Any, summary: dict[str, float]) -> None:
        raise OSError("no space left")


def test_an_evaluation_that_is_stopped_is_repeated() -> None:
    with finished(checking_config(LEARN)) as whole, started(checking_config(LEARN)) as run:
        is_playing = False
        play = run.evaluator.evaluate

        def evaluate(*arguments: Any) -> Any:
            nonlocal is_playing
            is_playing = True
            return play(*arguments)

        run.evaluator.evaluate = evaluate  # type: ignore[method-assign]
        assert not Orchestrator(run.session, run.evaluator, (), lambda: is_playing).run()
        assert run.values("evaluate/return_mean") == []
        run.evaluator.evaluate = play  # type: ignore[method-assign]
        assert run.orchestrator.run()
        assert run.metrics == whole.metrics
        assert_same_state(run.session.state(), whole.session.state())


def test_a_part_that_fails_after_an_evaluation_leaves_the_run_in_the_middle_of_a_step() -> None:
    with started(checking_config(LEARN)) as run:
        orchestrator = Orchestrator(run.session, run.evaluator, [FailingPart()])
        with pytest.raises(OSError, match="no space left"):
            orchestrator.run()
        assert len(run.values("evaluate/return_mean")) == 1
        assert not orchestrator.is_between_steps  # a checkpoint here would repeat the line that is already written


def test_an_evaluation_that_fails_itself_leaves_the_run_between_steps() -> None:
    with started(checking_config(LEARN)) as run:
        run.evaluator.make_vector = lambda num_envs: 1 / 0  # type: ignore[assignment, return-value]
        with pytest.raises(ZeroDivisionError):
            run.orchestrator.run()
        assert run.orchestrator.is_between_steps


@pytest.mark.parametrize("metric", ["value_loss", "grad_norm"])
def test_every_metric_must_be_finite(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {"loss": 0.5, metric: float("nan")}
    monkeypatch.setattr(CheckingAlgorithm, "update", lambda *arguments: Update(metrics))
    with started(checking_config(LEARN)) as run:
        with pytest.raises(TrainingError, match=f"^{metric} = nan in 'update'") as caught:
            run.orchestrator.run()
        assert "learning rate" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "message"),
    [("NanReward", "The reward at step 1 is nan"), ("NanObservation", "obs of the env .* is not finite")],
)
def test_an_env_that_gives_no_numbers_is_named(name: str, message: str) -> None:
    """A reward is looked at as it arrives, observations when an update stumbles over them."""
    env = f"tests.unit.envs.broken_envs.{name}"
    words = ["env.vector=sync", "env.max_episode_steps=9", "phases.learn.collect.rows=64"]
    config = make_config("CartPole-v1:ppo", words)  # with the broken env it would be refused before it starts
    config = config.model_copy(update={"env": config.env.model_copy(update={"id": env})})
    with started(config) as run:
        with pytest.raises(TrainingError, match=message) as caught:
            run.orchestrator.run()
        assert name == "NanReward" or f"reverie envs check {env}" in caught.value.fix


@pytest.mark.parametrize("amount", [{"updates": 2}, {"updates_per_step": 1.0}])
def test_a_hook_that_never_does_its_share_stops_the_run(amount: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckingAlgorithm, "update", lambda *arguments: Update(count=0))
    phase = {**OWING, "hooks": [OWING["hooks"][0], {"update": amount}]}
    with started(checking_config(phase)) as run, pytest.raises(TrainingError, match="'update' reported 0 updates"):
        run.orchestrator.run()


def test_a_hook_that_runs_once_may_have_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckingAlgorithm, "update", lambda *arguments: Update(count=0))
    with finished(checking_config({**OWING, "hooks": [OWING["hooks"][0], {"update": {}}]})) as run:
        assert run.session.counters.updates == 0


def test_crashes_of_envs_are_recorded() -> None:
    config = checking_config(LEARN)
    with started(config) as run:
        run.session.vector.crashes = 2
        assert run.orchestrator.run()
        assert crashes(run) == [2.0, 2.0, 2.0]
    with finished(config) as run:
        assert crashes(run) == [0.0, 0.0, 0.0]


def crashes(run: Run) -> list[float]:
    return [line["env/crashes"] for line in run.listener.records["machine"]]
