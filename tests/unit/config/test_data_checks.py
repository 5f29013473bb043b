"""Updates that come before there are data, or enough of them."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config.checks import check_config
from reverie.config.compose import compose
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError

ENVS = 4
UPDATE: dict[str, Any] = {"update": {"updates": 1}}


def collect(rows: int) -> dict[str, Any]:
    return {"collect": {"rows": rows}}


def phase(name: str, *hooks: Any, **values: Any) -> dict[str, Any]:
    return {"name": name, "hooks": list(hooks), **values}


def problem(*phases: dict[str, Any], min_rows: int = 100, **buffer: Any) -> str:
    """What is said of DQN with these phases; nothing if all is well."""
    tree = compose("CartPole-v1:dqn").tree
    main = {"kind": "replay", "capacity": 10_000, "min_rows": min_rows, **buffer}
    tree |= {"phases": list(phases), "buffers": {"main": main}, "env": {**tree["env"], "num_envs": ENVS}}
    try:
        check_config(load_config(tree))
    except ConfigError as error:
        return str(error)
    return ""


LEARN = phase("learn", collect(8), UPDATE, duration_steps=1000)


def test_rows_of_a_prefill_are_counted_from_above() -> None:
    """Of 21 steps in cycles of 8 rows there are at most 20 steps, as many beginnings, one more per env, and a cycle."""
    most = 2 * 20 + ENVS + 8 + 8
    prefill = phase("prefill", collect(8), duration_steps=21)
    assert problem(prefill, LEARN, min_rows=most) == ""
    found = problem(prefill, LEARN, min_rows=most + 1)
    assert f"buffers.main.min_rows: update of phase 'learn' comes when at most {most} of {most + 1} are there" in found
    assert f"Set phases.0.duration_steps={most + 1}, or a smaller min_rows" in found


def test_what_the_fix_says_is_enough() -> None:
    assert problem(phase("prefill", collect(8), duration_steps=100), LEARN) == ""


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        ([], 8),
        ([phase("a", collect(8), duration_cycles=3)], 32),
        ([phase("a", collect(8), duration_cycles=3), phase("b", collect(4), collect(4), duration_cycles=2)], 48),
        ([{"name": "loop", "repeat": 5, "phases": [phase("a", collect(8), duration_cycles=2)]}], 88),
        ([phase("a", collect(80), duration_cycles=3, keep=["algorithm"])], 8),
        ([phase("look", {"evaluate": {"episodes": 1}}, type="eval_only", duration_cycles=1)], 8),
    ],
)
def test_earlier_phases_add_up(before: list[dict[str, Any]], rows: int) -> None:
    assert problem(*before, LEARN, min_rows=rows) == ""
    assert f"at most {rows} of {rows + 1} are there" in problem(*before, LEARN, min_rows=rows + 1)


def test_without_a_phase_to_lengthen_one_is_proposed() -> None:
    assert "Put a phase before it that collects for duration_steps: 100" in problem(LEARN)


def test_an_update_for_every_step_may_wait_for_the_first_one() -> None:
    learn = phase("learn", collect(8), {"update": {"updates_per_step": 1}}, duration_steps=1000)
    assert problem(learn, min_rows=8 + ENVS) == ""
    assert f"at most {8 + ENVS} of" in problem(learn, min_rows=8 + ENVS + 1)


@pytest.mark.parametrize(
    "phases",
    [
        [phase("a", {"collect": {"episodes": 4}}, duration_steps=8), LEARN],
        [phase("a", {"collect": {"episodes": 4}}, UPDATE, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"train_ratio": 1}}, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"updates_per_step": 0.01}}, duration_steps=1000)],
        [phase("a", collect(8), {"update": {"updates": 1, "every_steps": 500}}, duration_steps=1000)],
        [phase("a", collect(104), UPDATE, duration_steps=1000), phase("b", UPDATE, type="offline", duration_updates=9)],
    ],
)
def test_what_cannot_be_known_is_not_refused(phases: list[dict[str, Any]]) -> None:
    assert problem(*phases) == ""


def test_stored_data_may_be_enough() -> None:
    offline = phase("offline", UPDATE, type="offline", duration_updates=9)
    assert problem(offline, source="data") == ""
    assert "Name stored data" in problem(offline)


def test_a_loop_without_data_is_told_once() -> None:
    inner = [phase("a", UPDATE, duration_updates=1)]
    assert problem({"name": "loop", "repeat": 3, "phases": inner}).count("comes before there can be data") == 1
