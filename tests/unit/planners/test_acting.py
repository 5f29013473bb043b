"""Acting by planning: the carry starts the next plan, noise comes from the given generator, numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reverie.core.rng import make_generator
from reverie.core.types import Clock
from reverie.planners.acting import Lookahead, PlannedRow, acting_envs, plan_acting, plan_metrics, plan_row
from reverie.planners.mppi import MPPI
from reverie.planners.planner import Planner
from tests.unit.algos.batches import BOX

CPU = torch.device("cpu")


def make(**values: Any) -> Planner:
    settings = {"samples": 40, "elites": 6, "policy_samples": 0, "iterations": 2, "horizon": 3}
    return MPPI(MPPI.Config.model_validate({**settings, **values}), BOX)


def near(target: float) -> Any:
    return lambda candidates, _: -(candidates - target).square().sum((0, 3))


def act(planner: Planner, plans: Any, is_first: Any = (False, False), seed: int = 0, **more: Any) -> PlannedRow:
    return plan_row(planner, near(0.5), plans, np.array(is_first), Clock(), make_generator(seed), CPU, **more)


def test_a_plan_starts_from_the_carry_except_in_first_rows() -> None:
    planner, starts = make(max_std=1e-6, min_std=0.0), []

    def score(candidates: Tensor, iteration: int) -> Tensor:
        starts.append(candidates.mean(2))
        return candidates.sum((0, 3))

    plans = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 12
    found = plan_row(planner, score, plans, np.array([False, True]), Clock(), make_generator(0), CPU)
    expected = np.stack([[plans[0, 1], plans[0, 2], [0, 0]], np.zeros((3, 2))]).astype(np.float32)
    np.testing.assert_allclose(starts[0].transpose(0, 1), expected, atol=1e-5)
    np.testing.assert_allclose(found.carry, expected, atol=1e-5)
    assert found.carry.flags.c_contiguous


def test_noise_comes_from_the_given_generator_alone() -> None:
    planner = make()
    plans = planner.initial_carry(2)
    first, again, other = (act(planner, plans, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.plan.action, again.plan.action)
    np.testing.assert_array_equal(first.carry, again.carry)
    assert not torch.equal(first.plan.action, other.plan.action)


def test_numbers_about_a_plan() -> None:
    planner = make(policy_samples=3)
    candidates = torch.full((3, 2, 3, 2), 0.5)
    candidates[:, 1] = -1.0  # the policy of the second env proposes the worst: 1.5 off in 6 action values
    found = act(planner, planner.initial_carry(2), policy_candidates=candidates)
    names = ("plan_value", "plan_gain", "plan_spread", "policy_gain")
    assert found.metrics.dtype.names == names
    np.testing.assert_allclose(found.metrics["plan_value"], found.plan.values.mean(1))
    gain, policy_gain = found.metrics["plan_gain"], found.metrics["policy_gain"]
    median = found.metrics["plan_value"] - gain
    np.testing.assert_allclose(policy_gain, [0 - median[0], -6 * 1.5**2 - median[1]], rtol=1e-5)
    assert policy_gain[0] > gain[0] > 0
    assert policy_gain[1] < 0 < gain[1]
    assert plan_metrics(found.plan._replace(policy_gain=None)).dtype.names == names[:3]


def rows_of(ended: list[bool], resting: list[bool] | None = None) -> dict[str, Any]:
    now = {name: np.zeros(len(ended), bool) for name in ("is_first", "terminated", "truncated")}
    now["truncated"][:] = ended
    return now if resting is None else now | {"valid": ~np.array(resting)}


def test_envs_that_act_are_those_that_go_on_and_do_not_rest() -> None:
    assert acting_envs(rows_of([False, True, False])).tolist() == [0, 2]
    assert acting_envs(rows_of([False, True, False], [True, False, False])).tolist() == [2]
    ended = rows_of([False, False]) | {"terminated": np.array([True, False])}
    assert acting_envs(ended).tolist() == [1]


def test_planning_for_some_envs_is_planning_without_the_others() -> None:
    planner = make()
    plans = make_generator("plans").uniform(-1, 1, (3, 3, 2)).astype(np.float32)
    seen: list[Any] = []

    def look_ahead(envs: Any) -> Lookahead:
        seen.append(envs.tolist())
        return Lookahead(near(0.5), CPU)

    found = plan_acting(planner, look_ahead, rows_of([False, True, False]), plans, Clock(), make_generator(1))
    alone = plan_row(planner, near(0.5), plans[[0, 2]], np.zeros(2, bool), Clock(), make_generator(1), CPU)
    assert seen == [[0, 2]]
    np.testing.assert_array_equal(found.action[[0, 2]], alone.plan.action)
    np.testing.assert_array_equal(found.plans[[0, 2]], alone.carry)
    np.testing.assert_array_equal(found.plans[1], plans[1])
    assert not found.action[1].any()
    np.testing.assert_array_equal(found.extras["act_metrics"], alone.metrics)
    nothing = plan_acting(planner, look_ahead, rows_of([True] * 3), plans, Clock(), make_generator(1))
    assert seen == [[0, 2]]
    assert nothing.extras == {}
    assert nothing.plans is plans
