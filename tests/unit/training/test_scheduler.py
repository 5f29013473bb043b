"""The scheduler alone, driven by counters: no env, no algorithm."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.training.phases import Phase
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
