"""Every kind of phase, driven by the checking agent."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError, TooFewRowsError, TrainingError
from reverie.core.types import Update
from reverie.training.orchestrator import Orchestrator
from tests.checking import CheckingAlgorithm
from tests.sessions import Run, assert_same_state, checking_config, finished, started

LEARN: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 2}
PREFILL: dict[str, Any] = {"controller": "random", "hooks": [{"collect": {"rows": 30}}], "duration_cycles": 2}
OFFLINE: dict[str, Any] = {
    "type": "offline", "hooks": [{"update_windows": {"updates": 5}}], "duration_updates": 10,
}  # fmt: skip
EVALUATE: dict[str, Any] = {"type": "eval_only", "hooks": [{"evaluate": {"episodes": 4}}], "duration_cycles": 1}
REPLAY = {"buffers": {"main": {"kind": "replay", "capacity": 500}}}
KEPT = ("algorithm", "buffer", "normaliser", "episodes")


def test_prefill_then_learn_offline_then_evaluate() -> None:
    with finished(checking_config(PREFILL, OFFLINE, EVALUATE, **REPLAY)) as run:
        assert run.algorithm.calls["update_windows"] == 10
        counters = run.session.counters
        assert (counters.updates, counters.cycles) == (10, 2 + 2 + 1)
        assert counters.rows == 3 + 60  # neither offline nor eval_only phases touch the envs
        assert [line["phase"] for line in run.metrics if "evaluate/return_mean" in line] == ["phase 2"]
        assert {line["phase"] for line in run.metrics if "update_windows/calls" in line} == {"phase 1"}


def test_random_prefill_passes_on_in_mid_episode() -> None:
    with finished(checking_config(PREFILL, {"hooks": LEARN["hooks"], "duration_cycles": 1}, length=50)) as run:
        # One rollout over both phases: the carry and the extras of the prefill are those of the agent.
        assert run.values("update/first_act") == [0]
        assert run.values("update/last_act") == [20 + 8 - 1]


def test_random_actions_are_not_those_of_the_agent() -> None:
    with started(checking_config(PREFILL)) as run:
        run.stop_after(20)
        rows = run.session.buffers["main"].state()["rows"]
        asked = (rows["act"] + [0, 1, 2]) % run.algorithm.num_actions
        assert 0.05 < (rows["action"] == asked).mean() < 0.6
        assert set(rows["action"].ravel().tolist()) == {0, 1, 2, 3}


def test_a_loop_repeats_its_phases() -> None:
    loop = {"repeat": 3, "phases": [{"name": "gather", **PREFILL}, {"name": "learn", **OFFLINE}]}
    with finished(checking_config(loop, **REPLAY)) as run:
        assert run.algorithm.calls["update_windows"] == 30
        assert run.session.counters.rows == 3 + 3 * 60
        run.session.recorder.flush()
        turns = [name for name, _ in groupby(run.values("phase"))]
        assert turns == ["gather", "learn"] * 3


def test_train_ratio_follows_the_env_steps() -> None:
    # A batch of 4 windows of 6 rows replays 24 rows: a ratio of 12 is an update for every second env step.
    hooks = [{"collect": {"rows": 12}}, {"update_windows": {"train_ratio": 12}}]
    with finished(checking_config({**PREFILL}, {"hooks": hooks, "duration_cycles": 6}, **REPLAY)) as run:
        in_phase = run.session.counters.env_steps - run.session.scheduler.start["env_steps"]
        assert run.algorithm.calls["update_windows"] == in_phase // 2 > 20


@pytest.mark.parametrize(("batch_size", "rate"), [(2, 1.0), (4, 0.5), (8, 0.25)])
def test_another_batch_size_at_a_resume_holds_from_there_on(batch_size: int, rate: float) -> None:
    learn = {"hooks": [{"collect": {"rows": 12}}, {"update_windows": {"train_ratio": 12}}], "duration_steps": 400}
    algorithm = {"kind": "tests.checking.CheckingAlgorithm", "batch_size": batch_size}
    with started(checking_config(PREFILL, learn, **REPLAY)) as first:
        first.stop_after(300)
        with started(checking_config(PREFILL, learn, algorithm=algorithm, **REPLAY)) as second:
            second.session.load_state(first.session.state())
            before = second.session.counters.clock()
            assert second.orchestrator.run()
            after = second.session.counters
    expected = (after.env_steps - before.env_steps) * rate
    assert expected > 20
    owed_before = 12 * 0.5  # the stop was behind a collect
    assert after.updates - before.updates == pytest.approx(expected + owed_before / 2, abs=1 + owed_before / 2)


def test_updates_count_as_the_algorithm_says() -> None:
    config = checking_config(LEARN, algorithm={"kind": "tests.checking.CheckingAlgorithm", "updates_per_call": 7})
    with finished(config) as run:
        assert run.session.counters.updates == 14


@pytest.mark.parametrize("missing", [*KEPT, None])
def test_what_is_not_kept_starts_afresh(missing: str | None) -> None:
    first = {"hooks": [{"collect": {"rows": 9}}], "duration_cycles": 3, "keep": [k for k in KEPT if k != missing]}
    with finished(checking_config(first, length=500, normaliser={"reward": True})) as run:
        session = run.session
        algorithm, scales = session.algorithm, session.normaliser.state()
        # Not even a phase that keeps little starts by dropping what it was given.
        assert run.algorithm.acts == 9
        assert scales["returns"]["count"] > 0
        session.enter(session.scheduler.phases[0], session.scheduler.phases[0])
        assert (session.algorithm is not algorithm) == (missing == "algorithm")
        assert session.policy.algorithm is session.algorithm
        assert (session.normaliser.state()["returns"]["count"] == 0) == (missing == "normaliser")
        assert (session.buffers["main"].state()["length"] == 0) == (missing == "buffer")
        # A new algorithm has no carry for the middle of an episode, so it gets new ones.
        assert session.collector.now["is_first"].all() == (missing in ("episodes", "algorithm"))
        session.collector.collect_rows(session.buffers["main"], 9)  # the agent complains if its carry does not fit


def test_a_phase_changes_the_env_and_the_next_one_changes_it_back() -> None:
    short = {**LEARN, "overrides": {"env.kwargs": {"length": 2}}}
    with finished(checking_config(LEARN, short, LEARN, env={"kwargs": {"length": 5}, "log_keys": ["steps"]})) as run:
        lengths = [score["length"] for score in run.scores]
        change = lengths.index(2)
        assert set(lengths[:change]) == {5}
        back = change + lengths[change:].index(5)
        assert set(lengths[change:back]) == {2}
        assert set(lengths[back:]) == {5}


def test_evaluations_play_the_env_of_the_run_whatever_a_phase_changes() -> None:
    hooks = [*LEARN["hooks"], {"evaluate": {"episodes": 3}}]
    short = {**LEARN, "hooks": hooks, "overrides": {"env.kwargs": {"length": 2}}}
    with finished(checking_config(short, env={"kwargs": {"length": 5}})) as run:
        assert {score["length"] for score in run.scores} == {2}
        assert run.values("evaluate/length_mean") == [5, 5]


def episodes_played(run: Run) -> list[tuple[int, ...]]:
    rows = run.session.buffers["main"].state()["rows"]
    return [tuple(names) for names in rows["obs"][rows["is_first"]][:, :1].astype(int).tolist()]


def test_no_episode_is_played_again_when_the_env_comes_back() -> None:
    collect: dict[str, Any] = {"hooks": [{"collect": {"rows": 30}}], "duration_cycles": 1}
    other = {**collect, "overrides": {"env.max_episode_steps": 4}}
    with finished(checking_config(collect, other, collect, other, collect)) as run:
        names = episodes_played(run)
        assert len(names) > 15
        assert len(set(names)) == len(names)


def test_a_phase_changes_numbers_of_the_algorithm() -> None:
    many = {**LEARN, "overrides": {"algorithm.updates_per_call": 5}}
    with finished(checking_config(LEARN, many, LEARN)) as run:
        assert run.session.counters.updates == 2 + 10 + 2
        assert run.algorithm.config.updates_per_call == 1


def test_a_phase_cannot_change_what_the_agent_sees() -> None:
    wrong = {**LEARN, "overrides": {"env.kwargs": {"observation": "image"}}}
    with started(checking_config(LEARN, wrong)) as run, pytest.raises(ConfigError, match="no longer fit the agent"):
        run.orchestrator.run()


CURRICULUM = (
    LEARN,
    {**LEARN, "overrides": {"env.kwargs": {"length": 2}, "algorithm.updates_per_call": 5}, "controller": "random"},
    {**LEARN, "hooks": [*LEARN["hooks"], {"evaluate": {"episodes": 3}}]},
    {**LEARN, "keep": ["algorithm"]},
    EVALUATE,
)


@pytest.mark.parametrize("stop", [1, 30, 50, 70, 80, 100, 120, 140, 10_000])
def test_the_state_at_any_moment_of_a_curriculum_continues_it(stop: int) -> None:
    config = checking_config(*CURRICULUM)
    with finished(config) as whole, started(config) as first, started(config) as second:
        first.stop_after(stop)
        second.session.load_state(first.session.state())
        assert second.orchestrator.run()
        assert first.metrics + second.metrics == whole.metrics
        assert first.scores + second.scores == whole.scores
        assert_same_state(second.session.state(), whole.session.state())


def test_a_phase_that_is_just_over_continues_with_its_own_envs() -> None:
    """Stopped when the next phase is due but not entered: the envs are still those of the phase before."""
    short = {**LEARN, "overrides": {"env.kwargs": {"length": 2}}}
    config = checking_config(short, LEARN)
    with finished(config) as whole, started(config) as first, started(config) as second:
        scheduler, counters = first.session.scheduler, first.session.counters
        Orchestrator(first.session, first.evaluator, (), lambda: counters.cycles == 2).run()
        scheduler.next(counters, {})
        assert (scheduler.index, scheduler.entered) == (1, False)
        second.session.load_state(first.session.state())
        second.orchestrator.run()
        assert first.scores + second.scores == whole.scores


def test_evaluation_leaves_the_session_as_it_is() -> None:
    with started(checking_config({**LEARN, "duration_cycles": 9})) as run:
        run.stop_after(50)
        before = run.session.state()
        first = run.orchestrator.evaluate(7)
        second = run.orchestrator.evaluate(7)
        after = run.session.state()
        assert first == second
        assert run.session.recorder.latest["evaluate/return_mean"] == first["return_mean"]
        for state in (before, after):  # both remember the newest scores
            state.pop("recorder"), state.pop("monitor")
        assert_same_state(before, after)


def test_evaluations_come_when_they_are_due() -> None:
    hooks = [*LEARN["hooks"], {"evaluate": {"episodes": 5, "every_steps": 50}}]
    with finished(checking_config({"hooks": hooks, "duration_steps": 210}, evaluate={"warmup_steps": 100})) as run:
        evaluations = [line for line in run.metrics if "evaluate/return_mean" in line]
        assert [line["env_steps"] // 50 for line in evaluations] == [2, 3, 4]
        assert [line["evaluate/episodes"] for line in evaluations] == [5.0] * 3


def test_until_ends_a_phase_by_what_it_measured_itself() -> None:
    hooks = [*LEARN["hooks"], {"evaluate": {"episodes": 3, "every_cycles": 2}}]
    phase = {"hooks": hooks, "duration_cycles": 50, "until": {"metric": "evaluate/return_mean", "at_least": 0}}
    with finished(checking_config(phase, phase)) as run:
        # Each needs two cycles until its first evaluation: the second does not take the one before for its own.
        assert run.session.counters.cycles == 4


def test_until_looks_at_updates_too() -> None:
    phase = {**LEARN, "duration_cycles": 50, "until": {"metric": "update/calls", "at_least": 3}}
    with finished(checking_config(phase)) as run:
        assert run.session.counters.cycles == 3


@pytest.mark.parametrize(("early_stop", "cycles"), [("solved", 2), ("off", 6)])
def test_a_solved_run_ends_early_if_it_may(early_stop: str, cycles: int) -> None:
    hooks = [*LEARN["hooks"], {"evaluate": {"episodes": 3, "every_cycles": 2}}]
    phase = {"hooks": hooks, "duration_cycles": 3}
    env = {"spec": {"solved_at": 0.5}}
    with finished(checking_config(phase, phase, env=env, early_stop=early_stop)) as run:
        assert run.session.counters.cycles == cycles


def test_a_run_stops_when_asked() -> None:
    with started(checking_config({**LEARN, "duration_cycles": 50})) as run:
        counters = run.session.counters
        assert not Orchestrator(run.session, run.evaluator, (), lambda: counters.cycles == 4).run()
        assert counters.cycles == 4


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run(loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckingAlgorithm, "update", lambda *arguments: Update({"loss": loss}))
    with started(checking_config(LEARN)) as run:
        with pytest.raises(TrainingError, match=r"loss = .* in 'update' in phase 'phase 0'") as caught:
            run.orchestrator.run()
        assert "learning rate" in caught.value.fix
        assert run.session.counters.updates == 0
        assert not run.orchestrator.is_between_steps


def test_an_update_without_any_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="before there can be data in buffer 'main'") as caught:
        checking_config(OFFLINE, **REPLAY)
    assert "buffers.main.source" in str(caught.value)


def test_an_update_without_enough_data_stops_the_run() -> None:
    too_few = {**PREFILL, "hooks": [{"collect": {"rows": 3}}]}
    with started(checking_config(too_few, OFFLINE, **REPLAY)) as run:
        with pytest.raises(TrainingError, match=r"A sample needs|sampling needs") as caught:
            run.orchestrator.run()
        assert "Collect" in caught.value.fix


def test_too_few_rows_say_what_to_resume_with() -> None:
    learn = {"hooks": [{"collect": {"episodes": 3}}, {"update_windows": {}}], "duration_cycles": 1}
    buffers = {"other": {"kind": "replay", "capacity": 900, "min_rows": 800}}
    with started(checking_config({**learn, "buffer": "other"}, buffers=buffers)) as run:
        with pytest.raises(TooFewRowsError, match=r"holds \d+ rows, but sampling needs 800") as caught:
            run.orchestrator.run()
        held = len(run.session.buffers["other"])  # type: ignore[arg-type]
        assert caught.value.resume_with == f"buffers.other.min_rows={held}"
        assert caught.value.resume_with in caught.value.fix


def test_phases_may_use_buffers_of_their_own() -> None:
    other = {**LEARN, "buffer": "other"}
    buffers = {"main": {"kind": "rollout"}, "other": {"kind": "rollout"}}
    with finished(checking_config({**LEARN, "hooks": LEARN["hooks"][:1]}, other, buffers=buffers)) as run:
        assert run.session.buffers["main"].state()["length"] == 16
        assert run.session.buffers["other"].state()["length"] == 0


def test_the_envs_own_vector_class_trains_and_is_evaluated_on_others() -> None:
    words = ["env.vector=native", "phases.learn.collect.rows=64", "phases.learn.evaluate.every_steps=200",
             "algorithm.epochs=1", "log.every_steps=64"]  # fmt: skip
    config = make_config("CartPole-v1:ppo", words, seed=3, steps=400)
    assert config.env.vector == "native"
    with finished(config) as one, finished(config) as other:
        assert len(one.values("evaluate/return_mean")) == 2
        assert one.metrics == other.metrics
        assert one.scores == other.scores
        steps = one.session.counters.env_steps
        assert 400 <= steps < 464
        in_progress = int(one.session.collector.lengths.sum())
        assert steps == sum(score["length"] for score in one.scores) + in_progress - ended(one)


def ended(run: Run) -> int:
    """Steps that are counted twice: of episodes that ended with the newest row."""
    now = run.session.collector.now
    return int(run.session.collector.lengths[now["terminated"] | now["truncated"]].sum())
