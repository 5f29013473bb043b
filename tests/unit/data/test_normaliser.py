from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row
from reverie.data.normaliser import Normaliser, NormaliserConfig

SPECS = Specs(
    {
        "obs/0": ObservationSpec((3,), "float32", "vector"),
        "obs/1": ObservationSpec((4, 4, 1), "uint8", "image"),
        "obs/2": ObservationSpec((), "int64", "discrete", (5,)),
        "obs/3": ObservationSpec((2, 2), "float32", "vector"),
    },
    ActionSpec("discrete", (), "int64", (2,)),
)
NUM_ENVS = 4


def make(**settings: Any) -> Normaliser:
    return Normaliser(NormaliserConfig(**settings), SPECS, NUM_ENVS)


def make_rows(count: int, seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        {
            "obs/0": (rng.standard_normal((NUM_ENVS, 3)) * [1, 5, 0.1] + [100, -3, 0]).astype(np.float32),
            "obs/1": rng.integers(0, 255, (NUM_ENVS, 4, 4, 1), np.uint8),
            "obs/2": rng.integers(0, 5, NUM_ENVS),
            "obs/3": rng.standard_normal((NUM_ENVS, 2, 2), np.float32),
            "reward": rng.standard_normal(NUM_ENVS, np.float32),
            "is_first": rng.random(NUM_ENVS) < 0.2,
            "terminated": rng.random(NUM_ENVS) < 0.2,
        }
        for _ in range(count)
    ]


def learn(normaliser: Normaliser, rows: list[Row], cycle: int = 7) -> Normaliser:
    """Show rows, with the end of a cycle after every few of them."""
    for start in range(0, len(rows), cycle):
        for row in rows[start : start + cycle]:
            normaliser.observe(row)
        normaliser.advance()
    return normaliser


def everything(rows: list[Row], key: str) -> np.ndarray:
    return np.concatenate([row[key] for row in rows]).astype(np.float64)


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, down to the leaves."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("key", ["obs/0", "obs/3"])
def test_observations_use_the_moments_of_all_rows(key: str) -> None:
    rows = make_rows(50)
    normaliser = learn(make(observation="rolling"), rows)
    seen = everything(rows, key)
    expected = (rows[0][key] - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8)
    result = normaliser.normalise_observation(rows[0])
    assert result[key].dtype == np.float32
    np.testing.assert_allclose(result[key], expected, rtol=1e-4, atol=1e-4)


def test_moments_do_not_depend_on_where_cycles_end() -> None:
    rows = make_rows(40)
    often, once = (learn(make(observation="rolling"), rows, cycle) for cycle in (1, 40))
    for key in ("obs/0", "obs/3"):
        one, other = (n.state()["observations"][key] for n in (often, once))
        assert one["count"] == other["count"] == 160
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-12)
        np.testing.assert_allclose(one["squares"], other["squares"], rtol=1e-12)


def test_large_offsets_keep_their_deviation() -> None:
    # single precision sums of squares would lose a deviation of 1 at an offset of 10^5
    specs = Specs({"obs": ObservationSpec((1,), "float32", "vector")}, SPECS.action)
    normaliser = Normaliser(NormaliserConfig(observation="rolling"), specs, 2)
    for _ in range(1000):
        normaliser.observe({"obs": np.array([[1e5 - 1], [1e5 + 1]], np.float32)})
        normaliser.advance()
    result = normaliser.normalise_observation({"obs": np.array([[1e5 + 1]], np.float32)})
    assert result["obs"].item() == pytest.approx(1, abs=1e-3)


def test_only_float_vectors_change_and_the_row_stays_raw() -> None:
    rows = make_rows(10)
    row = {key: array.copy() for key, array in rows[0].items()}
    result = learn(make(observation="rolling"), rows).normalise_observation(row)
    assert result["obs/1"] is row["obs/1"]
    assert result["obs/2"] is row["obs/2"]
    assert result["reward"] is row["reward"]
    assert not np.array_equal(result["obs/0"], row["obs/0"])
    assert_same(row, rows[0])


def test_a_batch_is_scaled_as_its_rows_are() -> None:
    rows = make_rows(10)
    normaliser = learn(make(observation="rolling", reward=True), rows)
    batch = {key: np.stack([row[key] for row in rows], axis=1) for key in rows[0]}
    result = normaliser.normalise_batch(batch)
    for t, row in enumerate(rows):
        scaled = normaliser.normalise_observation(row)
        np.testing.assert_array_equal(result["obs/0"][:, t], scaled["obs/0"])
        np.testing.assert_array_equal(result["obs/3"][:, t], scaled["obs/3"])
        np.testing.assert_array_equal(result["reward"][:, t], normaliser.normalise_reward(row["reward"]))
    assert result["reward"].dtype == np.float32


def test_values_are_clipped() -> None:
    rows = make_rows(30)
    normaliser = learn(make(observation="rolling", observation_clip=0.5, reward=True, reward_clip=0.25), rows)
    result = normaliser.normalise_batch(rows[0])
    assert np.abs(result["obs/0"]).max() == 0.5
    assert np.abs(result["obs/3"]).max() == 0.5
    assert np.abs(result["reward"]).max() == 0.25


def test_before_any_data_values_are_left_alone() -> None:
    row = make_rows(1)[0]
    result = make(observation="rolling", observation_clip=1e3, reward=True).normalise_batch(row)
    np.testing.assert_allclose(result["obs/0"], row["obs/0"])
    np.testing.assert_allclose(result["reward"], row["reward"])


def test_before_an_update_only_reward_statistics_advance() -> None:
    rows = make_rows(30)
    normaliser = make(observation="rolling", reward=True)
    for row in rows:
        normaliser.observe(row)
    before = normaliser.normalise_batch(rows[0])
    normaliser.advance_rewards()
    now = normaliser.normalise_batch(rows[0])
    np.testing.assert_array_equal(now["obs/0"], before["obs/0"])
    once = learn(make(observation="rolling", reward=True), rows, cycle=30)
    np.testing.assert_array_equal(now["reward"], once.normalise_reward(rows[0]["reward"]))
    normaliser.advance_rewards()  # each reward counts once
    normaliser.advance()
    assert_same(normaliser.state(), once.state())


def stored_rows(count: int, lengths: list[int]) -> list[Row]:
    """Rows of lanes that hold data only at the beginning, and blank rows behind."""
    rows = []
    for t, row in enumerate(make_rows(count)):
        valid = np.array([t < length for length in lengths])
        blank = {key: np.where(valid.reshape(-1, *[1] * (array.ndim - 1)), array, 0) for key, array in row.items()}
        rows.append({**blank, "is_first": row["is_first"] | ~valid, "valid": valid})
    return rows


def test_stored_rows_count_in_every_lane_at_once() -> None:
    lengths = [1500, 20, 1100, 0]
    rows = stored_rows(1500, lengths)
    normaliser = make(observation="rolling", reward=True)
    normaliser.learn_from(rows)
    seen = np.concatenate([np.stack([row["obs/0"][lane] for row in rows[:n]]) for lane, n in enumerate(lengths) if n])
    state = normaliser.state()
    assert state["observations"]["obs/0"]["count"] == sum(lengths)
    np.testing.assert_allclose(state["observations"]["obs/0"]["mean"], seen.mean(axis=0, dtype=np.float64), rtol=1e-9)
    returns = []
    for lane, n in enumerate(lengths):
        running = 0.0
        for row in rows[:n]:
            running = row["reward"][lane] + (0 if row["is_first"][lane] else 0.99 * running)
            returns += [] if row["is_first"][lane] else [running]
    assert state["returns"]["count"] == len(returns)
    assert float(state["returns"]["squares"]) == pytest.approx(len(returns) * np.var(returns))


def test_stored_rows_leave_the_running_returns_of_the_envs_alone() -> None:
    normaliser = make(reward=True)
    for row in make_rows(3):
        normaliser.observe(row)
    normaliser.advance_rewards()
    before = normaliser.state()["running_return"].copy()
    normaliser.observe(make_rows(4)[3])
    normaliser.learn_from(stored_rows(10, [10] * NUM_ENVS))
    state = normaliser.state()
    np.testing.assert_array_equal(state["running_return"], before)
    assert state["pending_rewards_length"] == 1


def test_nothing_moves_during_a_cycle() -> None:
    rows = make_rows(30)
    normaliser = learn(make(observation="rolling", reward=True), rows[:10])
    before = normaliser.normalise_batch(rows[0])
    for row in rows[10:]:
        normaliser.observe(row)
    assert_same(normaliser.normalise_batch(rows[0]), before)
    normaliser.advance()
    after = normaliser.normalise_batch(rows[0])
    assert not np.array_equal(after["obs/0"], before["obs/0"])
    assert not np.array_equal(after["reward"], before["reward"])


def test_off_costs_nothing() -> None:
    row = make_rows(1)[0]
    normaliser = learn(make(), [row])
    assert normaliser.normalise_observation(row) is row
    assert normaliser.normalise_batch(row) is row
    assert normaliser.normalise_reward(row["reward"]) is row["reward"]
    normaliser.observe(row)
    normaliser.learn_from([{**row, "valid": np.ones(NUM_ENVS, bool)}])
    assert_same(normaliser.state(), make().state())


def test_static_statistics_stop_after_exactly_so_many_rows() -> None:
    rows = make_rows(30)
    normaliser = learn(make(observation="static", static_rows=50), rows)
    seen = everything(rows, "obs/0")[:50]
    state = normaliser.state()["observations"]["obs/0"]
    assert state["count"] == 50
    np.testing.assert_allclose(state["mean"], seen.mean(axis=0), rtol=1e-12)
    before = normaliser.normalise_observation(rows[0])
    assert_same(learn(normaliser, make_rows(20, seed=1)).normalise_observation(rows[0]), before)


def test_static_observations_leave_rewards_rolling() -> None:
    normaliser = learn(make(observation="static", static_rows=8, reward=True), make_rows(10))
    before = normaliser.normalise_reward(np.ones(4, np.float32))
    learn(normaliser, make_rows(10, seed=1))
    assert not np.array_equal(normaliser.normalise_reward(np.ones(4, np.float32)), before)


def test_rewards_are_divided_by_the_deviation_of_the_running_return() -> None:
    def row(is_first: list[bool], reward: list[float]) -> Row:
        return {"is_first": np.array(is_first), "reward": np.array(reward, np.float32)}

    normaliser = Normaliser(NormaliserConfig(reward=True, reward_discount=0.5), SPECS, 2)
    # env 0: 4, then 2 + 2 = 4, a new episode (no sample), 6
    # env 1: 8, then 4 + 0 = 4, then 2 + 1 = 3, then 1.5 + 0
    rows = [
        row([False, False], [4, 8]),
        row([False, False], [2, 0]),
        row([True, False], [0, 1]),
        row([False, False], [6, 0]),
    ]
    learn(normaliser, rows, cycle=3)
    samples = [4, 4, 6, 8, 4, 3, 1.5]
    state = normaliser.state()
    assert state["returns"]["count"] == 7
    assert state["running_return"].tolist() == [6, 1.5]
    assert float(state["returns"]["squares"]) == pytest.approx(7 * np.var(samples))
    result = normaliser.normalise_reward(np.array([3.0, -1], np.float32))
    assert result == pytest.approx(np.array([3, -1]) / np.std(samples), rel=1e-6)


@pytest.mark.parametrize("observed", [0, 3])
def test_state_round_trip_in_mid_cycle(observed: int) -> None:
    rows = make_rows(20)
    normaliser = learn(make(observation="rolling", reward=True), rows[:10])
    for row in rows[10 : 10 + observed]:
        normaliser.observe(row)
    copy = make(observation="rolling", reward=True)
    copy.load_state(normaliser.state())
    assert_same(copy.normalise_batch(rows[0]), normaliser.normalise_batch(rows[0]))
    for each in (normaliser, copy):
        learn(each, rows[10 + observed :])
    assert_same(copy.state(), normaliser.state())
    assert_same(copy.normalise_batch(rows[0]), normaliser.normalise_batch(rows[0]))


@pytest.mark.parametrize("settings", [{"observation": "rolling", "reward": True}, {"reward": True}])
def test_checkpoints_that_kept_observations_and_rewards_together_load(settings: dict[str, Any]) -> None:
    normaliser, copy = make(**settings), make(**settings)
    for row in make_rows(5):
        normaliser.observe(row)
    state = normaliser.state()
    state["pending"] = {**state["pending"], **state.pop("pending_rewards")}
    state["pending_length"] = state.pop("pending_rewards_length")
    copy.load_state(state)
    assert_same(copy.state(), normaliser.state())


def test_rows_of_envs_that_rest_do_not_count() -> None:
    normaliser, other = make(observation="rolling"), make(observation="rolling")
    rows, valid = make_rows(3), np.array([True, False, True, False])
    for row in rows:
        normaliser.observe(row, valid)
        other.observe({**row, "obs/0": np.where(valid[:, None], row["obs/0"], np.float32(99))}, valid)
    older = normaliser.state()
    del older["pending"]["valid"]  # as checkpoints were before envs could rest
    for each in (normaliser, other):
        each.advance()
    assert_same(normaliser.state(), other.state())
    assert normaliser.state()["observations"]["obs/0"]["count"] == 6
    other.load_state(older)
    other.advance()
    assert other.state()["observations"]["obs/0"]["count"] == 12


def test_saving_changes_nothing() -> None:
    rows = make_rows(20)
    saved, plain = make(observation="rolling", reward=True), make(observation="rolling", reward=True)
    for row in rows:
        saved.observe(row)
        plain.observe(row)
        saved.state()
    saved.advance()
    plain.advance()
    assert_same(saved.state(), plain.state())


def test_reset_forgets() -> None:
    normaliser = learn(make(observation="rolling", reward=True), make_rows(10))
    normaliser.observe(make_rows(1)[0])
    normaliser.reset()
    assert_same(normaliser.state(), make(observation="rolling", reward=True).state())


def test_a_frozen_normaliser_moves_with_datasets_only() -> None:
    stored, collected = make_rows(30), make_rows(40, seed=1)
    stored = [{**row, "valid": np.ones(NUM_ENVS, bool)} for row in stored]
    settings = {"observation": "rolling", "reward": True}
    frozen, reference = make(**settings, freeze="dataset"), make(**settings)
    for normaliser in (frozen, reference):
        normaliser.learn_from(stored)
    before = frozen.state()
    assert_same(before, reference.state())
    learn(frozen, collected)
    assert_same(frozen.state(), before)
    assert_same(frozen.normalise_batch(collected[0]), reference.normalise_batch(collected[0]))
    learn(reference, collected)
    assert not np.array_equal(
        reference.state()["observations"]["obs/0"]["mean"], before["observations"]["obs/0"]["mean"]
    )
    copy = make(**settings, freeze="dataset")
    copy.load_state(before)
    learn(copy, collected)
    assert_same(copy.state(), before)
