"""Errors of dreams by hand numbers, with an oracle and a liar for a world model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reverie.config.schema import EvaluateConfig
from reverie.core.rng import make_generator
from reverie.core.types import Array, Clock, Foreseen, Row
from reverie.foresight.measure import Calibration, take_look
from reverie.training.evaluator import EvaluationStopped, Evaluator
from tests.sessions import assert_same_state, checking_config, finished, started


def counting_rows(envs: int, length: int) -> Row:
    """Env b shows 100 b + t; a byte, an index and a reward count with it. The second episode of env 1 starts at 4."""
    numbers = (100 * np.arange(envs)[:, None] + np.arange(length)).astype(np.float32)
    flags = {name: np.zeros((envs, length), bool) for name in ("is_first", "terminated", "truncated")}
    flags["is_first"][:, 0] = flags["is_first"][1, 4] = flags["terminated"][1, 3] = True
    images = np.broadcast_to((numbers % 100).astype(np.uint8)[..., None, None, None], (envs, length, 2, 2, 1)).copy()
    return {
        "obs/vector": np.repeat(numbers[..., None], 2, axis=-1), "obs/image": images,
        "obs/index": numbers.astype(np.int64) // 2, "reward": numbers, **flags,
    }  # fmt: skip


class Knower:
    """Foresees everything right but for a fixed error, and sees it with half of that."""

    def __init__(self, error: float = 0.0) -> None:
        self.error = error

    def foresee(self, rows: Row, starts: Array, steps: int, rng: np.random.Generator) -> Foreseen:
        keys = ("obs/vector", "obs/image", "obs/index", "reward")
        env, time = starts.T
        ahead = {key: rows[key][env[:, None], time[:, None] + 1 + np.arange(steps)] for key in keys}
        seen = {key: rows[key] for key in keys}
        change = np.float32(self.error)
        ahead["obs/vector"] = ahead["obs/vector"] + change
        seen["obs/vector"] = seen["obs/vector"] + change / 2
        going = np.ones(rows["reward"].shape, np.float32)
        return Foreseen({**seen, "continuation": going}, ahead, {"reward": 2.5})


def look_of(algorithm: Any, rows: Row, context: int = 2, steps: int = 3) -> Any:
    policy: Any = SimpleNamespace(algorithm=algorithm, normaliser=SimpleNamespace(normalise_batch=lambda batch: batch))
    return take_look(policy, rows, context, steps, make_generator(0))


def test_dreams_begin_one_after_the_other_and_stay_within_the_rows() -> None:
    look = look_of(Knower(), counting_rows(2, 9))
    assert look.starts.tolist() == [[0, 1], [0, 4], [1, 1], [1, 4]]
    assert look.truth("reward")[0].tolist() == [2, 3, 4]
    assert look.truth("reward")[3].tolist() == [105, 106, 107]


def test_what_comes_after_the_end_of_an_episode_does_not_count() -> None:
    look = look_of(Knower(), counting_rows(2, 9))
    assert look.is_real.tolist() == [[True] * 3, [True] * 3, [True, True, False], [True] * 3]
    assert look.errors["reward"].counts.tolist() == [4, 4, 3]


def test_errors_against_repeating_the_last_row() -> None:
    metrics = look_of(Knower(0.5), counting_rows(2, 9)).metrics()
    repeating = (4 * 1 + 4 * 4 + 3 * 9) / 11
    assert metrics["open_loop/obs/vector/mse"] == pytest.approx(0.25)
    assert metrics["open_loop/obs/vector/repeat_last_mse"] == pytest.approx(repeating)
    assert metrics["open_loop/obs/vector/relative_mse"] == pytest.approx(0.25 / repeating)
    assert metrics["open_loop/obs/vector/relative_mse_at_end"] == pytest.approx(0.25 / 9)
    assert metrics["open_loop/obs/image/mse"] == 0
    assert metrics["open_loop/obs/image/repeat_last_mse"] == pytest.approx(repeating / 255**2)
    # n // 2 changes after one step from 1 and 101 (odd) only, after two steps always
    assert metrics["open_loop/obs/index/repeat_last_mse"] == pytest.approx((2 + 4 + 3) / 11)
    assert metrics["open_loop/reward/mse"] == 0
    assert metrics["reconstruction/obs/vector/mse"] == pytest.approx(0.0625)
    assert metrics["held_out/loss_reward"] == 2.5


def test_where_nothing_changes_there_is_no_relative_error() -> None:
    rows = counting_rows(2, 9)
    rows["obs/vector"][:] = 7
    metrics = look_of(Knower(), rows).metrics()
    assert "open_loop/obs/vector/relative_mse" not in metrics
    assert metrics["open_loop/obs/vector/repeat_last_mse"] == 0


def test_calibration_by_bins_of_equal_size() -> None:
    predicted = np.repeat(np.arange(10) / 10, 2).reshape(4, 5)
    actual = np.tile([0.0, 1.0], 10).reshape(4, 5)
    found = Calibration.of(predicted, actual)
    np.testing.assert_allclose(found.predicted, np.arange(10) / 10)
    np.testing.assert_allclose(found.actual, np.full(10, 0.5))
    assert found.metrics()["error"] == pytest.approx(np.abs(np.arange(10) / 10 - 0.5).mean())
    assert found.metrics()["bias"] == pytest.approx(-0.05)


def test_a_chance_to_go_on_that_is_too_high_shows() -> None:
    metrics = look_of(Knower(), counting_rows(2, 9)).metrics()
    assert metrics["calibration/continuation_bias"] == pytest.approx(1 / 18)
    assert metrics["calibration/reward_error"] == 0


PHASE = {"hooks": [{"collect": {"rows": 6}}, {"update": {}}, {"evaluate": {"episodes": 2, "every_steps": 12}}],
         "duration_steps": 36}  # fmt: skip


def foresee_nothing(rows: Row, starts: Array, steps: int, rng: np.random.Generator) -> Foreseen:
    rng.random(7)
    seen = {key: rows[key] for key in ("obs", "reward")}
    env, time = starts.T
    ahead = {key: rows[key][env[:, None], time[:, None] + np.zeros(steps, int)] for key in seen}
    return Foreseen({**seen, "continuation": np.ones_like(seen["reward"])}, ahead, {})


def test_a_look_adds_metrics_to_evaluations_and_changes_nothing_else() -> None:
    config = checking_config(PHASE)
    with finished(config) as plain, started(config) as looking:

        def foresee(rows: Row, *more: Any) -> Foreseen:
            looking.algorithm.acts -= rows["reward"].shape[1]  # it counts them, as no agent with a world model may
            return foresee_nothing(rows, *more)

        looking.session.algorithm.foresee = foresee  # type: ignore[attr-defined]
        assert looking.orchestrator.run()
        added = [key for key in looking.metrics[-1] if key not in plain.metrics[-1]]
        assert "evaluate/open_loop/obs/relative_mse" in {key for line in looking.metrics for key in line}
        assert all("open_loop" not in key for line in plain.metrics for key in line)
        assert all(key.startswith("evaluate/") for key in added)
        recorder = looking.session.recorder
        recorder.latest = {key: recorder.latest[key] for key in plain.session.recorder.latest}
        assert_same_state(plain.session.state(), looking.session.state())


def test_repeating_is_exactly_as_good_as_repeating() -> None:
    with started(checking_config(PHASE)) as run:
        run.session.algorithm.foresee = foresee_nothing  # type: ignore[attr-defined]
        run.orchestrator.run()
        found = run.values("evaluate/open_loop/obs/relative_mse")
        assert len(found) == 3
        assert found == pytest.approx([1.0, 1.0, 1.0])


def test_a_look_can_be_switched_off_and_stopped() -> None:
    config = checking_config(PHASE)
    with started(config) as run:
        run.session.algorithm.foresee = foresee_nothing  # type: ignore[attr-defined]
        off = EvaluateConfig.model_validate({"foresight": {"enabled": False}})
        assert Evaluator(off, 0, run.evaluator.make_vector).measure_foresight(run.session.policy, Clock()) is None
        with pytest.raises(EvaluationStopped):
            run.evaluator.measure_foresight(run.session.policy, Clock(), lambda: True)
