"""The scheduler alone, driven by counters: no env, no algorithm."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config.phases import Phase
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.training.hook_progress import hook_keys
from reverie.training.scheduler import Scheduler, Step, StepKind


def phase(**values: Any) -> Phase:
    return Phase.model_validate({"name": "learn", **values})


class Driver:
    """Carries out steps as an orchestrator would: collect adds rows, an update reports ``count`` updates."""

    def __init__(self, *phases: Phase, rows_per_update: int | None = 8, count: int = 1, warmup: int = 0) -> None:
        self.scheduler = Scheduler(phases, {"update": rows_per_update, "update_actor": rows_per_update}, warmup)
        self.counters = Counters()
        self.metrics: dict[str, float] = {}
        self.count = count
        self.log: list[str] = []

    def step(self) -> Step | None:
        step = self.scheduler.next(self.counters, self.metrics)
        if step is None:
            return None
        updates = 0
        if step.kind is StepKind.COLLECT:
            assert step.hook is not None
            self.counters.env_steps += step.hook.rows or 0
        if step.kind is StepKind.UPDATE:
            updates = self.count
            self.counters.updates += updates
        if step.kind is StepKind.END_CYCLE:
            self.counters.cycles += 1
        name = step.hook.name if step.hook else step.kind.value
        self.log.append(f"{step.phase.name}:{name}")
        self.scheduler.finish(step, self.counters, updates)
        return step

    def run(self, limit: int = 10_000) -> list[str]:
        for _ in range(limit):
            if self.step() is None:
                return self.log
        raise AssertionError("the scheduler does not come to an end")


def count(log: list[str], word: str) -> int:
    return sum(entry.endswith(word) for entry in log)


def test_a_cycle_runs_its_hooks_in_order_until_the_budget_is_spent() -> None:
    log = Driver(phase(hooks=[{"collect": {"rows": 4}}, {"update": {}}], duration_steps=10)).run()
    cycle = ["learn:collect", "learn:update", "learn:end_cycle"]
    assert log == ["learn:enter", *cycle * 3]  # 12 is the first cycle end at or past 10


def test_budgets_in_updates_and_cycles() -> None:
    by_updates = Driver(phase(hooks=[{"collect": {"rows": 4}}, {"update": {}}], duration_updates=7), count=3)
    assert count(by_updates.run(), "update") == 3
    by_cycles = Driver(phase(hooks=[{"collect": {"rows": 4}}], duration_cycles=5))
    assert count(by_cycles.run(), "collect") == 5


def test_updates_are_counted_by_what_was_done() -> None:
    hooks = [{"collect": {"rows": 4}}, {"update": {"updates": 6}}]
    driver = Driver(phase(hooks=hooks, duration_cycles=2), count=4)
    assert count(driver.run(), "update") == 4  # two calls of four updates reach six, in each of two cycles


def test_train_ratio_pays_its_debt_exactly() -> None:
    hooks = [{"collect": {"rows": 3}}, {"update": {"train_ratio": 2}}]
    driver = Driver(phase(hooks=hooks, duration_steps=300), rows_per_update=8)
    driver.run()
    assert driver.counters.updates == 300 * 2 // 8


def test_updates_per_step_is_another_way_to_say_it() -> None:
    hooks = [{"collect": {"rows": 3}}, {"update": {"updates_per_step": 0.5}}]
    driver = Driver(phase(hooks=hooks, duration_steps=30), rows_per_update=None)
    driver.run()
    assert driver.counters.updates == 15


def test_train_ratio_needs_a_read_of_known_size() -> None:
    hooks = [{"collect": {"rows": 3}}, {"update": {"train_ratio": 2}}]
    with pytest.raises(ConfigError, match="train_ratio"):
        Driver(phase(hooks=hooks, duration_steps=30), rows_per_update=None).run()


@pytest.mark.parametrize(
    ("every", "expected"),
    [({"every_steps": 10}, [12, 20, 32, 40]), ({"every_updates": 5}, [20, 40]), ({"every_cycles": 4}, [16, 32])],
)
def test_intervals_follow_a_grid(every: dict[str, int], expected: list[int]) -> None:
    hooks = [{"collect": {"rows": 4}}, {"update": {}}, {"evaluate": {"episodes": 1, **every}}]
    driver = Driver(phase(hooks=hooks, duration_steps=40))
    seen = []
    while (step := driver.step()) is not None:
        if step.kind is StepKind.EVALUATE:
            seen.append(driver.counters.env_steps)
    assert seen == expected


def test_evaluation_waits_for_the_warm_up() -> None:
    hooks = [{"collect": {"rows": 4}}, {"evaluate": {"episodes": 1}}]
    log = Driver(phase(hooks=hooks, duration_steps=40), warmup=20).run()
    assert count(log, "evaluate") == 6


def test_until_ends_a_phase_at_a_cycle_end() -> None:
    hooks = [{"collect": {"rows": 4}}, {"evaluate": {"episodes": 1}}]
    until = {"metric": "evaluate/return_mean", "at_least": 5}
    driver = Driver(phase(hooks=hooks, duration_steps=400, until=until))
    while (step := driver.step()) is not None:
        if step.kind is StepKind.EVALUATE:
            driver.metrics["evaluate/return_mean"] = driver.counters.cycles
    assert driver.counters.cycles == 6


def test_until_at_most() -> None:
    hooks = [{"collect": {"rows": 4}}]
    driver = Driver(phase(hooks=hooks, duration_steps=400, until={"metric": "update/loss", "at_most": 0.1}))
    driver.metrics["update/loss"] = 0.05
    driver.run()
    assert driver.counters.cycles == 1


def test_loops_are_unrolled() -> None:
    inner = [
        {"name": "wake", "hooks": [{"collect": {"rows": 4}}], "duration_cycles": 1},
        {"name": "sleep", "type": "offline", "hooks": [{"update": {}}], "duration_updates": 2},
    ]
    log = Driver(phase(phases=inner, repeat=2)).run()
    names = [entry.split(":")[0] for entry in log if entry.endswith("enter")]
    assert names == ["wake", "sleep", "wake", "sleep"]
    assert count(log, "update") == 4


def test_each_phase_counts_from_its_own_start() -> None:
    first = phase(hooks=[{"collect": {"rows": 4}}], duration_steps=8)
    second = phase(name="more", hooks=[{"collect": {"rows": 4}}], duration_steps=4)
    assert count(Driver(first, second).run(), "collect") == 3


def test_a_longer_budget_continues_the_last_phase() -> None:
    hooks = [{"collect": {"rows": 4}}, {"update": {}}]
    short = Driver(phase(hooks=hooks, duration_steps=8))
    short.run()
    longer = Driver(phase(hooks=hooks, duration_steps=16))
    longer.counters = short.counters
    longer.scheduler.load_state(short.scheduler.state())
    whole = Driver(phase(hooks=hooks, duration_steps=16))
    assert short.log + longer.run() == whole.run()


def test_state_continues_at_every_step() -> None:
    phases = (
        phase(hooks=[{"collect": {"rows": 3}}, {"update": {"train_ratio": 3}},
                     {"evaluate": {"episodes": 1, "every_steps": 7}}], duration_steps=25),
        phase(name="more", hooks=[{"collect": {"rows": 2}}, {"update": {"updates": 3}}], duration_cycles=3),
    )  # fmt: skip
    whole = Driver(*phases).run()
    for stop in range(len(whole)):
        driver = Driver(*phases)
        for _ in range(stop):
            driver.step()
        fresh = Driver(*phases)
        fresh.counters.load_state(driver.counters.state())
        fresh.scheduler.load_state(driver.scheduler.state())
        assert driver.log + fresh.run() == whole


COLLECT: dict[str, Any] = {"collect": {"rows": 3}}


def resumed(before: Driver, *hooks: dict[str, Any], rows_per_update: int = 32, **values: Any) -> Driver:
    """The run goes on from its saved state with other hooks or other settings."""
    driver = Driver(phase(hooks=list(hooks), duration_steps=10**6, **values), rows_per_update=rows_per_update)
    driver.counters.load_state(before.counters.state())
    driver.scheduler.load_state(before.scheduler.state())
    return driver


def run_for(driver: Driver, env_steps: int) -> list[str]:
    """Whole cycles until so many more env steps are done; the log of these."""
    driver.log.clear()
    end = driver.counters.env_steps + env_steps
    while driver.counters.env_steps < end or not driver.scheduler.between_cycles:
        driver.step()
    return driver.log


def stopped(*hooks: dict[str, Any], env_steps: int = 2043) -> Driver:
    driver = Driver(phase(hooks=list(hooks), duration_steps=10**6), rows_per_update=32)
    run_for(driver, env_steps)
    assert driver.counters.env_steps == env_steps
    return driver


RATIO: dict[str, Any] = {"update": {"train_ratio": 16}}


def test_a_resume_with_unchanged_settings_keeps_the_fraction_owed() -> None:
    before = stopped(COLLECT, RATIO)
    assert before.counters.updates == 1021  # 2,043 steps are worth 1,021.5
    assert count(run_for(resumed(before, COLLECT, RATIO), 3), "update") == 2


@pytest.mark.parametrize(("rows", "expected"), [(16, 280), (64, 70), (32, 140)])
def test_another_batch_size_changes_the_updates_from_the_resume_on(rows: int, expected: int) -> None:
    driver = resumed(stopped(COLLECT, RATIO), COLLECT, RATIO, rows_per_update=rows)
    assert count(run_for(driver, 279), "update") == pytest.approx(expected, abs=1)


def test_what_is_owed_in_mid_cycle_stays_owed_at_another_rate() -> None:
    before = stopped({"collect": {"rows": 64}}, RATIO, env_steps=640)
    for _ in range(3):  # a collect and two of its 32 updates
        before.step()
    driver = resumed(before, {"collect": {"rows": 64}}, RATIO, rows_per_update=64)
    assert count(run_for(driver, 0), "update") == 30
    assert count(run_for(driver, 64), "update") == 16


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"every_steps": 100}, {"every_steps": 1000}, [3000, 4000]),
        ({"every_steps": 1000}, {"every_steps": 100}, [2100 + 100 * n for n in range(26)]),
        ({"every_steps": 100}, {"every_cycles": 400}, [2043 + 1200, 2043 + 2400]),
        ({"every_cycles": 1}, {"every_steps": 1500}, [3543]),
        ({}, {"every_steps": 1500}, [3543]),
    ],
)
def test_another_interval_holds_from_the_resume_on(old: Any, new: Any, expected: list[int]) -> None:
    before = stopped(COLLECT, {"evaluate": {"episodes": 1, **old}})
    driver = resumed(before, COLLECT, {"evaluate": {"episodes": 1, **new}})
    seen = []
    while driver.counters.env_steps < 4700:
        step = driver.step()
        if step is not None and step.kind is StepKind.EVALUATE:
            seen.append(driver.counters.env_steps)
    assert seen == [pytest.approx(steps, abs=2) for steps in expected]


EVALUATE: dict[str, Any] = {"evaluate": {"episodes": 1, "every_steps": 100}}


def test_reordered_hooks_keep_what_they_have_done() -> None:
    driver = resumed(stopped(COLLECT, RATIO, EVALUATE), EVALUATE, COLLECT, RATIO)
    log = run_for(driver, 279)
    assert count(log, "update") == 140
    assert count(log, "evaluate") == 3  # of steps 2,100, 2,200 and 2,300; the last cycle ends at 2,322


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_cycle_under_way_goes_on_with_reordered_hooks(steps: int) -> None:
    before = stopped({"collect": {"rows": 4}}, RATIO, env_steps=400)
    for _ in range(steps):
        before.step()
    done = len([entry for entry in before.log[-steps:] if entry.endswith(("collect", "update"))])
    driver = resumed(before, RATIO, {"collect": {"rows": 4}})
    assert done + len(run_for(driver, 0)) == 4  # a collect, two updates, the end of the cycle; nothing twice


def test_a_hook_added_at_a_resume_counts_from_there() -> None:
    driver = resumed(stopped(COLLECT), COLLECT, RATIO, EVALUATE)
    log = run_for(driver, 102)
    assert count(log, "update") == 51
    assert count(log, "evaluate") == 1


def test_a_hook_removed_at_a_resume_leaves_the_others_alone() -> None:
    driver = resumed(stopped(COLLECT, EVALUATE, RATIO), COLLECT, RATIO)
    assert count(run_for(driver, 279), "update") == 140


def test_equal_hooks_are_told_apart_by_numbers() -> None:
    hooks = [COLLECT, {"update": {"updates": 1}}, {"update": {"train_ratio": 16}}, {"update": {"updates": 2}}]
    before = stopped(*hooks, env_steps=300)
    assert list(before.scheduler.state()["progress"]) == ["collect", "update", "update_2", "update_3"]
    assert count(run_for(resumed(before, *hooks), 300), "update") == 100 + 150 + 200


def test_numbers_of_equal_hooks_are_no_names_of_others() -> None:
    hooks = phase(hooks=["update", "update_2", "update"]).hooks
    assert hook_keys(hooks) == ["update", "update_2", "update_3"]


def positions(driver: Driver) -> dict[str, Any]:
    """The state as it was saved when hooks were told apart by their places."""
    state = driver.scheduler.state()
    known = {"rate_updates": "phase_updates", "cycle_updates": "cycle_updates", "ran": "ran", "intervals": "intervals"}
    entries = [{old: entry[new] for new, old in known.items()} for entry in state["progress"].values()]
    return {**state, "progress": {str(place): entry for place, entry in enumerate(entries)}}


def test_progress_by_position_continues_exactly() -> None:
    hooks = (COLLECT, RATIO, EVALUATE)
    for stop in range(30):
        whole, driver = stopped(*hooks, env_steps=300), stopped(*hooks, env_steps=300)
        for _ in range(stop):
            driver.step()
        fresh = Driver(phase(hooks=list(hooks), duration_steps=10**6), rows_per_update=32)
        fresh.counters.load_state(driver.counters.state())
        fresh.scheduler.load_state(positions(driver))
        expected = run_for(whole, 300)
        run_for(fresh, 600 - fresh.counters.env_steps)
        assert expected[stop:] == fresh.log
        assert fresh.scheduler.state() == whole.scheduler.state()


@pytest.mark.parametrize("hooks", [(COLLECT, RATIO), (COLLECT, RATIO, EVALUATE), (EVALUATE, COLLECT, RATIO)])
def test_progress_by_position_is_forgotten_if_settings_changed(hooks: tuple[dict[str, Any], ...]) -> None:
    before = stopped(COLLECT, RATIO, EVALUATE)
    driver = Driver(phase(hooks=list(hooks), duration_steps=10**6), rows_per_update=16)
    driver.counters.load_state(before.counters.state())
    driver.scheduler.load_state(positions(before))
    driver.scheduler.forget_positions()
    assert count(run_for(driver, 279), "update") == 279


@pytest.mark.parametrize(
    "hooks",
    [
        [{"update": {"train_ratio": 16}}],
        [{"collect": {"rows": 64, "every_steps": 64}}, {"evaluate": {"episodes": 1}}],
        [{"collect": {"rows": 4, "every_updates": 10}}, {"update": {"updates_per_step": 1}}],
        [{"update": {"updates": 5, "every_updates": 5}}],
    ],
)
def test_a_phase_that_can_never_end_is_an_error(hooks: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="'learn' would never end") as caught:
        Driver(phase(hooks=hooks, duration_updates=100)).run()
    assert "every_steps" in caught.value.fix


def test_a_cycle_may_be_idle_if_the_next_one_is_not() -> None:
    hooks = [{"collect": {"rows": 4, "every_cycles": 5}}, {"update": {"train_ratio": 8}}]
    driver = Driver(phase(hooks=hooks, duration_updates=8))
    driver.run()
    assert driver.counters.cycles == 10
    waiting = [{"update": {"train_ratio": 16}}, {"evaluate": {"episodes": 1}}]
    assert count(Driver(phase(hooks=waiting, duration_cycles=3)).run(), "evaluate") == 3


@pytest.mark.parametrize("hooks", [[{"evaluate": {"episodes": 1}}], [{"update": {}}, {"evaluate": {"episodes": 1}}]])
def test_evaluation_does_not_wait_for_env_steps_that_never_come(hooks: list[dict[str, Any]]) -> None:
    assert count(Driver(phase(hooks=hooks, duration_cycles=2), warmup=20).run(), "evaluate") == 2
