"""What ``--dry-run`` tells."""

from __future__ import annotations

from typing import Any

from reverie.envs.config import EnvConfig
from reverie.preflight.plan import make_plan, plan_lines
from tests.sessions import checking_config

COLLECT: dict[str, Any] = {"hooks": [{"collect": {"rows": 12}}, {"update": {}}], "duration_steps": 1000}
UNTIL: dict[str, Any] = {
    "name": "polish", "hooks": [{"collect": {"rows": 1200}}, {"evaluate": {"episodes": 2, "every_cycles": 2}}],
    "duration_cycles": 5, "until": {"at_least": 3},
}  # fmt: skip


def test_the_plan_lists_every_phase_in_order() -> None:
    loop = {"name": "loop", "repeat": 2, "phases": [{"name": "a", **COLLECT}, UNTIL]}
    plan = make_plan(checking_config(loop, COLLECT, horizon_steps=3000, seed=4))
    assert [phase["name"] for phase in plan["phases"]] == ["a", "polish", "a", "polish", "phase 1"]
    assert (plan["seed"], plan["num_envs"], plan["vector"], plan["env_steps"]) == (4, 3, "sync", 3000)


def test_cycles_are_worked_out_where_they_can_be() -> None:
    episodes = {"hooks": [{"collect": {"episodes": 3}}, {"update_episodes": {}}], "duration_steps": 10}
    plan = make_plan(checking_config(COLLECT, UNTIL, episodes))
    assert [phase["cycles"] for phase in plan["phases"]] == [84, 5, None]


def test_the_plan_as_text() -> None:
    lines = plan_lines(make_plan(checking_config(COLLECT, UNTIL, horizon_steps=3000)))
    assert lines == [
        "Reverie/Counting-v0 with tests.checking.CheckingAlgorithm, seed 0",
        "3 envs (sync), cpu, 1 thread, 1,000 env steps",
        "1. phase 0 (online): 1,000 env steps, about 84 cycles",
        "     collect  rows 12",
        "     update",
        "2. polish (online): 5 cycles",
        "     collect  rows 1,200",
        "     evaluate  episodes 2  every cycles 2",
        "     until evaluate/return_mean at least 3",
    ]


def test_the_plan_counts_frames_if_actions_are_repeated() -> None:
    config = checking_config(COLLECT, horizon_steps=1000)
    wrappers = [{"kind": "action_repeat", "repeats": 3}]
    repeating = config.model_copy(update={"env": EnvConfig(id=config.env.id, wrappers=wrappers)})
    plan = make_plan(repeating)
    assert (plan["action_repeat"], plan["frames"]) == (3, 3000)
    assert plan_lines(plan)[1].endswith("1,000 env steps, 3,000 frames (action repeat 3)")


def test_the_plan_states_what_whole_cycles_make_of_a_budget() -> None:
    short = {**COLLECT, "hooks": [{"collect": {"rows": 300}}, {"collect": {"rows": 600}}, {"update": {}}]}
    assert plan_lines(make_plan(checking_config(COLLECT, short)))[1].endswith(
        "about 2,808 env steps (2,000 rounded up to whole cycles)"
    )
    assert plan_lines(make_plan(checking_config(COLLECT)))[1].endswith("thread, 1,000 env steps")
