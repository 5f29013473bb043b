"""Updates before there are data, or too few of them."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config.checks import check_config
from reverie.config.compose import compose
from reverie.config.data_checks import check_order_of_data
from reverie.config.schema import RunConfig
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError

ENVS = 4
UPDATE: dict[str, Any] = {"update": {"updates": 1}}


def collect(rows: int) -> dict[str, Any]:
    return {"collect": {"rows": rows}}


def phase(name: str, *hooks: Any, **values: Any) -> dict[str, Any]:
    return {"name": name, "hooks": list(hooks), **values}


def dqn(*phases: dict[str, Any], min_rows: int = 100, **buffer: Any) -> RunConfig:
    tree = compose("CartPole-v1:dqn").tree
    main = {"kind": "replay", "capacity": 10_000, "min_rows": min_rows, **buffer}
    tree |= {"phases": list(phases), "buffers": {"main": main}, "env": {**tree["env"], "num_envs": ENVS}}
    return load_config(tree)


def problem(*phases: dict[str, Any], min_rows: int = 100, **buffer: Any) -> str:
    """The error for DQN with these phases. Empty if they are valid."""
    try:
        check_config(dqn(*phases, min_rows=min_rows, **buffer))
    except ConfigError as error:
        return str(error)
    return ""


LEARN = phase("learn", collect(8), UPDATE, duration_steps=1000)


def test_smallest_possible_number_of_prefill_rows_counts() -> None:
    """21 steps in cycles of 8 rows take at least three cycles. The learning phase collects before its update."""
    prefill = phase("prefill", collect(8), duration_steps=21)
    assert problem(prefill, LEARN, min_rows=24 + 8) == ""
    found = problem(prefill, LEARN, min_rows=33)
    what = "buffers.main.min_rows: update of phase 'learn' runs when only 32 rows are sure to be stored, of 33"
    assert what in found
    assert "Set phases.prefill.duration_steps=33, or buffers.main.min_rows=32." in found


def test_proposed_fix_is_sufficient() -> None:
    assert problem(phase("prefill", collect(8), duration_steps=100), LEARN) == ""


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        ([], 8),
        ([phase("a", collect(8), duration_cycles=3)], 32),
        ([phase("a", collect(8), duration_cycles=3), phase("b", collect(4), collect(4), duration_cycles=2)], 48),
        ([{"name": "loop", "repeat": 5, "phases": [phase("a", collect(8), duration_cycles=2)]}], 88),
        ([phase("a", collect(80), duration_cycles=3, keep=["algorithm"])], 8),
        ([phase("evaluation", {"evaluate": {"episodes": 1}}, type="eval_only", duration_cycles=1)], 8),
    ],
)
def test_earlier_phases_add_up(before: list[dict[str, Any]], rows: int) -> None:
    assert problem(*before, LEARN, min_rows=rows) == ""
    assert f"only {rows} rows are sure to be stored, of {rows + 1}" in problem(*before, LEARN, min_rows=rows + 1)


def test_prefill_phase_is_proposed_if_there_is_none() -> None:
    assert "Add a phase before it that collects for duration_steps: 100" in problem(LEARN)


@pytest.mark.parametrize(
    ("amounts", "rows"),
    [
        ({"updates_per_step": 1}, 8),
        ({"updates_per_step": 0.05}, 24),
        ({"updates": 1, "every_steps": 20}, 24),
        ({"every_steps": 20, "updates_per_step": 1 / 40}, 40),
        ({"updates": 1, "every_cycles": 3}, 24),
    ],
)
def test_delayed_update_has_more_rows(amounts: dict[str, Any], rows: int) -> None:
    learn = phase("learn", collect(8), {"update": amounts}, duration_steps=1000)
    assert problem(learn, min_rows=rows) == ""
    assert f"when only {rows} rows are sure to be stored, of {rows + 1}" in problem(learn, min_rows=rows + 1)


def test_only_collects_of_the_first_cycle_count() -> None:
    learn = phase("learn", collect(8), UPDATE, collect(16), {"collect": {"rows": 80, "every_cycles": 2}})
    learn["duration_steps"] = 1000
    assert "when only 8 rows" in problem(learn)
    late = phase("late", {"collect": {"rows": 80, "every_cycles": 2}}, UPDATE, duration_steps=1000)
    assert "when only 0 rows" in problem(late)
    both = {"update": {"updates": 1, "every_cycles": 2}}
    assert problem(phase("both", {"collect": {"rows": 104, "every_cycles": 2}}, both, duration_steps=1000)) == ""


def test_train_ratio_is_checked_once_the_batch_size_is_known() -> None:
    learn = phase("learn", collect(8), {"update": {"train_ratio": 16}}, duration_steps=1000)
    config = dqn(learn)
    assert list(check_order_of_data(config, {"update": 1600})) == []  # an update for every 100 env steps
    ((key, what, _),) = check_order_of_data(config, {"update": 800})
    assert key == "buffers.main.min_rows"
    assert "when only 56 rows are sure" in what


@pytest.mark.parametrize(
    "phases",
    [
        [phase("a", {"collect": {"episodes": 4}}, duration_steps=8), LEARN],
        [phase("a", {"collect": {"episodes": 4}}, UPDATE, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"train_ratio": 1}}, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"updates_per_step": 0.01}}, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"updates": 1, "every_steps": 500}}, duration_steps=1000)],
        [
            phase(
                "a",
                collect(8),
                UPDATE | {"update": {"updates": 1, "every_updates": 5}},
                {"update": {"train_ratio": 1}},
                duration_steps=1000,
            )
        ],
        [phase("a", collect(104), UPDATE, duration_steps=1000), phase("b", UPDATE, type="offline", duration_updates=9)],
    ],
)
def test_unknown_row_counts_are_not_refused(phases: list[dict[str, Any]]) -> None:
    assert problem(*phases) == ""


def test_stored_data_satisfy_the_check() -> None:
    offline = phase("offline", UPDATE, type="offline", duration_updates=9)
    assert problem(offline, source="data") == ""
    assert "Name stored data" in problem(offline)


def test_loop_without_data_is_reported_once() -> None:
    inner = [phase("a", UPDATE, duration_updates=1)]
    assert problem({"name": "loop", "repeat": 3, "phases": inner}).count("runs before there can be data") == 1
