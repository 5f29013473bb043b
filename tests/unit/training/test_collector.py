"""Collection, checked row by row by the agent that is collected with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from reverie.core.types import Batch, Row
from reverie.data.normaliser import Normaliser
from reverie.envs.suites.reverie.counting import EPISODE, read_counting
from reverie.runs.execute import lost_episodes
from tests.checking import CheckingAlgorithm
from tests.sessions import Run, checking_config, finished, started

ROWS: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 5}
EPISODES: dict[str, Any] = {"hooks": [{"collect": {"episodes": 6}}, {"update_episodes": {}}], "duration_cycles": 4}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """What the agent was given to learn from, read by read."""
    seen: list[Batch] = []
    report = CheckingAlgorithm._report

    def keep(self: CheckingAlgorithm, hook: str, batch: Batch, metrics: Any) -> Any:
        seen.append(batch)
        return report(self, hook, batch, metrics)

    monkeypatch.setattr(CheckingAlgorithm, "_report", keep)
    return seen


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("vector", ["sync", "process"])
def test_rows_follow_each_other_through_every_vector(vector: str, ends: str, batches: list[Batch]) -> None:
    kwargs = {"length": 6, "varied": True, "ends": ends}
    with finished(checking_config(ROWS, env={"vector": vector, "kwargs": kwargs})) as run:
        assert [batch["reward"].shape for batch in batches] == [(3, 9)] * 5  # 24 rows of 3 envs and the arriving one
        # No act is lost or repeated between two updates.
        assert run.values("update/first_act") == [0, 8, 16, 24, 32]
        assert run.values("update/last_act") == [7, 15, 23, 31, 39]
        check_counters(run, batches)


def check_counters(run: Run, batches: list[Batch]) -> None:
    counters = run.session.counters
    firsts = sum(int(np.count_nonzero(batch["is_first"][:, :-1])) for batch in batches)
    firsts += int(np.count_nonzero(batches[-1]["is_first"][:, -1]))
    assert counters.rows == 5 * 24 + 3  # and the rows of the first reset
    assert counters.env_steps == counters.rows - firsts
    assert (counters.updates, counters.cycles) == (5, 5)
    assert counters.episodes == len(run.scores) > 5
    # The reward of a step is its number, so an episode of n steps returns 1 + 2 + ... + n.
    assert all(score["return"] == score["length"] * (score["length"] + 1) / 2 for score in run.scores)
    assert [score["episode"] for score in run.scores] == list(range(1, counters.episodes + 1))


def test_sync_and_process_give_the_same_rows(batches: list[Batch]) -> None:
    for vector in ("sync", "process"):
        with finished(checking_config(ROWS, env={"vector": vector})):
            pass
    assert len(batches) == 10
    for one, other in zip(batches[:5], batches[5:], strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])


@pytest.mark.parametrize("vector", ["sync", "process"])
def test_episodes_arrive_in_equal_shares(vector: str, batches: list[Batch]) -> None:
    with finished(checking_config(EPISODES, env={"vector": vector})) as run:
        assert run.values("update_episodes/episodes") == [6.0] * 4
    names = [name for batch in batches for name in episode_names(batch)]
    assert len(set(names)) == len(names) == 24
    assert [sorted(Counter(envs_of(batch, run)).items()) for batch in batches] == [[(0, 2), (1, 2), (2, 2)]] * 4


def episode_names(batch: Batch) -> list[int]:
    names: list[int] = read_counting(dict(batch))[:, 0, EPISODE].astype(int).tolist()
    return names


def envs_of(batch: Batch, run: Run) -> list[int]:
    """The env of each episode: the agent's actions count up by one from env to env within an act."""
    shift = np.asarray(batch["action"][:, 0] - batch["act"][:, 0]) % run.algorithm.num_actions
    envs: list[int] = shift.tolist()
    return envs


@pytest.mark.parametrize("vector", ["sync", "process"])
def test_no_step_is_wasted_while_envs_wait_for_the_longest_episode(vector: str, batches: list[Batch]) -> None:
    """An env that has given its share rests; short episodes are not preferred, and no env step goes unused."""
    with finished(checking_config(EPISODES, length=40, env={"vector": vector})) as run:
        counters = run.session.counters
        assert counters.env_steps == sum(score["length"] for score in run.scores)
        assert counters.rows == sum(int(batch["valid"].sum()) for batch in batches) + 3  # those of the last restart
        assert run.values("update_episodes/episodes") == [6.0] * 4
        assert len(run.scores) == counters.episodes == 24


def test_envs_that_rest_are_not_shown_to_the_normaliser(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []

    def observe(normaliser: Normaliser, row: Row, valid: np.ndarray | None) -> None:
        shown.append(normaliser.num_envs if valid is None else int(valid.sum()))

    monkeypatch.setattr(Normaliser, "observe", observe)
    with finished(checking_config(EPISODES, length=40)) as run:
        assert sum(shown) == run.session.counters.rows
        assert min(shown) < 3


def test_rows_after_episodes_go_on_in_the_same_buffer(batches: list[Batch]) -> None:
    hooks = [{"collect": {"episodes": 3}}, {"collect": {"rows": 9}}, {"update": {}}]
    with finished(checking_config({"hooks": hooks, "duration_cycles": 3})):
        assert len(batches) == 3
        assert all(not np.all(batch["valid"]) for batch in batches if "valid" in batch)


def test_episodes_after_rows_start_afresh(batches: list[Batch]) -> None:
    hooks = [{"collect": {"rows": 9}}, {"update": {}}, {"collect": {"episodes": 3}}, {"update_episodes": {}}]
    with finished(checking_config({"hooks": hooks, "duration_cycles": 3})) as run:
        assert run.values("update_episodes/episodes") == [3.0] * 3


class Marked:
    """A controller that always does the same."""

    def act(self, now: Row, rng: np.random.Generator) -> Any:
        return np.full(len(now["is_first"]), 3)


def test_a_controller_overrides_the_action_and_nothing_else(batches: list[Batch]) -> None:
    with started(checking_config(ROWS)) as run:
        session = run.session
        session.enter(session.scheduler.phases[0], None)
        session.collector.use_controller(Marked())
        session.collector.collect_rows(session.buffers["main"], 24)
        rows = session.buffers["main"].state()["rows"]
    assert np.all(rows["action"] == 3)
    assert rows["act"][:, 0].tolist() == list(range(8))  # the agent was asked all the same
    assert np.array_equal(rows["count"], read_counting(rows)[..., 1])


def test_info_of_the_env_is_logged() -> None:
    with finished(checking_config(ROWS, env={"log_keys": ["success", "steps"]})) as run:
        assert all(score["log/success"] == 1.0 for score in run.scores)
        assert all(score["log/steps"] == score["length"] for score in run.scores)
        assert set(run.values("collect/log/success")) == {1.0}


@pytest.mark.parametrize("changed", [{"length": 3}, {"length": 9, "ends": "truncated"}])
def test_a_run_goes_on_with_other_episodes_where_the_saved_ones_do_not_repeat(changed: dict[str, Any]) -> None:
    """Settings of the env have changed; the agent checks that what it is shown fits together all the same."""
    fixed = {"varied": False}
    with started(checking_config(ROWS, env={"kwargs": {"length": 9, **fixed}})) as run:
        run.stop_after(22)
        state = run.session.state()
    with started(checking_config(ROWS, env={"kwargs": {**fixed, **changed}})) as run:
        run.session.load_state(state)
        assert (run.session.collector.lost_episodes > 0) == (changed["length"] == 3)
        told = lost_episodes(run.session)
        assert ("3 of 3 envs could not return" in "".join(told)) == (changed["length"] == 3)
        assert run.orchestrator.run()


def test_an_env_that_ignores_its_seed_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    with started(checking_config(ROWS)) as run:
        run.stop_after(20)
        state = run.session.state()
    monkeypatch.setattr("reverie.envs.episode.derive_seed", lambda *words: 123)
    with started(checking_config(ROWS)) as run:
        run.session.load_state(state)
        assert run.session.collector.lost_episodes > 0
        monkeypatch.undo()
        assert run.orchestrator.run()
