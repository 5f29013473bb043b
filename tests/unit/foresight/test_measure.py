"""Errors of open-loop predictions, computed by hand for world models with known errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reverie.config.schema import EvaluateConfig
from reverie.core.rng import make_generator
from reverie.core.types import Array, Clock, Observed, Row
from reverie.foresight.measure import Calibration, measure
from reverie.training.evaluator import EvaluationStopped, Evaluator
from tests.checking import CheckingAlgorithm
from tests.sessions import assert_same_state, checking_config, finished, started


def counting_rows(envs: int, length: int) -> Row:
    """Env b shows 100 b + t; a byte, an index and a reward count with it. The second episode of env 1 starts at 4."""
    numbers = (100 * np.arange(envs)[:, None] + np.arange(length)).astype(np.float32)
    flags = {name: np.zeros((envs, length), bool) for name in ("is_first", "terminated", "truncated")}
    flags["is_first"][:, 0] = flags["is_first"][1, 4] = flags["terminated"][1, 3] = True
    images = np.broadcast_to((numbers % 100).astype(np.uint8)[..., None, None, None], (envs, length, 2, 2, 1)).copy()
    return {
        "obs/vector": np.repeat(numbers[..., None], 2, axis=-1), "obs/image": images,
        "obs/index": numbers.astype(np.int64) // 2, "reward": numbers, "action": numbers, **flags,
    }  # fmt: skip


class Knower:
    """Predicts everything right but for a fixed error, and half of it where it observes. Its latent is the number of a
    row."""

    def __init__(self, error: float = 0.0) -> None:
        self.error = error

    def initial(self, num_envs: int) -> Row:
        return {"number": np.zeros((num_envs, 1), np.float32)}

    def observe(self, rows: Row, rng: np.random.Generator) -> Observed:
        number = rows["reward"][..., None].copy()
        return Observed({"number": number, "error": np.full_like(number, self.error / 2)}, {"reward": 2.5})

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        number = latents["number"][:, None] + np.arange(1, actions.shape[1] + 1, dtype=np.float32)[:, None]
        return {"number": number, "error": np.full_like(number, self.error)}

    def predict(self, latents: Row) -> Row:
        reward = latents["number"][..., 0]
        return {"reward": reward, "continuation": np.ones_like(reward), "value": reward + 2 * latents["error"][..., 0]}


class Painter(Knower):
    """The same with a decoder."""

    def decode(self, latents: Row) -> Row:
        number, error = latents["number"], latents["error"]
        image = np.broadcast_to((number % 100).astype(np.uint8)[..., None, None], (*number.shape[:-1], 2, 2, 1))
        index = number[..., 0].astype(np.int64) // 2
        return {"obs/vector": np.repeat(number + error, 2, -1), "obs/image": image.copy(), "obs/index": index}


def measurement_of(algorithm: Any, rows: Row, context: int = 2, steps: int = 3) -> Any:
    policy: Any = SimpleNamespace(algorithm=algorithm, normaliser=SimpleNamespace(normalise_batch=lambda batch: batch))
    return measure(policy, rows, context, steps, make_generator(0))


def test_predictions_begin_one_after_the_other_and_stay_within_the_rows() -> None:
    found = measurement_of(Painter(), counting_rows(2, 9))
    assert found.starts.tolist() == [[0, 1], [0, 4], [1, 1], [1, 4]]
    assert found.true_ahead("reward")[0].tolist() == [2, 3, 4]
    assert found.true_ahead("reward")[3].tolist() == [105, 106, 107]


def test_what_comes_after_the_end_of_an_episode_does_not_count() -> None:
    found = measurement_of(Painter(), counting_rows(2, 9))
    assert found.is_real.tolist() == [[True] * 3, [True] * 3, [True, True, False], [True] * 3]
    assert found.errors["reward"].counts.tolist() == [4, 4, 3]


def test_errors_against_repeating_the_last_row() -> None:
    metrics = measurement_of(Painter(0.5), counting_rows(2, 9)).metrics()
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


def test_a_model_without_a_decoder_is_compared_in_all_else_that_it_has() -> None:
    metrics = measurement_of(Knower(0.5), counting_rows(2, 9)).metrics()
    repeating = (4 * 1 + 4 * 4 + 3 * 9) / 11
    assert not [key for key in metrics if "obs" in key]
    assert metrics["open_loop/reward/mse"] == metrics["open_loop/latent/number/mse"] == 0
    assert metrics["open_loop/latent/number/relative_mse"] == 0
    assert metrics["open_loop/latent/number/repeat_last_mse"] == pytest.approx(repeating)
    assert metrics["open_loop/latent/error/mse"] == pytest.approx(0.25**2)
    assert metrics["open_loop/value/mse"] == pytest.approx(0.5**2)  # 2 * 0.5 imagined, 2 * 0.25 observed
    assert metrics["open_loop/continuation/mse"] == pytest.approx(1 / 11)  # env 1 ends two steps after its first start
    assert metrics["calibration/continuation_bias"] == pytest.approx(1 / 18)


def test_where_nothing_changes_there_is_no_relative_error() -> None:
    rows = counting_rows(2, 9)
    rows["obs/vector"][:] = 7
    metrics = measurement_of(Painter(), rows).metrics()
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
    metrics = measurement_of(Painter(), counting_rows(2, 9)).metrics()
    assert metrics["calibration/continuation_bias"] == pytest.approx(1 / 18)
    assert metrics["calibration/reward_error"] == 0


PHASE = {"hooks": [{"collect": {"rows": 6}}, {"update": {}}, {"evaluate": {"episodes": 2, "every_steps": 12}}],
         "duration_steps": 36}  # fmt: skip


class Stubborn(CheckingAlgorithm):
    """Expects that everything stays as it is."""

    def initial(self, num_envs: int) -> Row:
        return {"obs": np.zeros((num_envs, 4), np.float32), "reward": np.zeros(num_envs, np.float32)}

    def observe(self, rows: Row, rng: np.random.Generator) -> Observed:
        rng.random(7)
        self.acts -= rows["reward"].shape[1]  # it counts them, as no agent with a world model may
        return Observed({"obs": rows["obs"], "reward": rows["reward"]})

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        return {key: np.repeat(values[:, None], actions.shape[1], axis=1) for key, values in latents.items()}

    def predict(self, latents: Row) -> Row:
        return {"reward": latents["reward"], "continuation": np.ones_like(latents["reward"])}

    def decode(self, latents: Row) -> Row:
        return {"obs": latents["obs"]}


STUBBORN = {"kind": f"{__name__}.Stubborn"}


def test_foresight_adds_metrics_to_evaluations_and_changes_nothing_else() -> None:
    off = {"foresight": {"enabled": False}}
    plain_config, config = (checking_config(PHASE, algorithm=STUBBORN, evaluate=part) for part in (off, {}))
    with finished(plain_config) as plain, finished(config) as measured:
        added = [key for key in measured.metrics[-1] if key not in plain.metrics[-1]]
        assert "evaluate/open_loop/obs/relative_mse" in {key for line in measured.metrics for key in line}
        assert all("open_loop" not in key for line in plain.metrics for key in line)
        assert all(key.startswith("evaluate/") for key in added)
        recorder = measured.session.recorder
        recorder.latest = {key: recorder.latest[key] for key in plain.session.recorder.latest}
        assert_same_state(plain.session.state(), measured.session.state())


def test_repeating_is_exactly_as_good_as_repeating() -> None:
    with finished(checking_config(PHASE, algorithm=STUBBORN)) as run:
        found = run.values("evaluate/open_loop/obs/relative_mse")
        assert len(found) == 3
        assert found == pytest.approx([1.0, 1.0, 1.0])


def test_foresight_can_be_switched_off_and_stopped() -> None:
    with started(checking_config(PHASE, algorithm=STUBBORN)) as run:
        off = EvaluateConfig.model_validate({"foresight": {"enabled": False}})
        assert Evaluator(off, 0, run.evaluator.make_vector).measure_foresight(run.session.policy, Clock()) is None
        with pytest.raises(EvaluationStopped):
            run.evaluator.measure_foresight(run.session.policy, Clock(), lambda: True)
