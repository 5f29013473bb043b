"""When lines are written and what is in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reverie.core.counters import Counters
from reverie.log.recorder import MOST_PENDING, Recorder


class Listener:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {"metrics": [], "scores": [], "machine": []}
        self.is_closed = False

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        self.records.setdefault(kind, []).append(dict(record))

    def close(self) -> None:
        self.is_closed = True


class Run:
    """A recorder with its counters and a sink; a cycle makes ``steps`` env steps and one update."""

    def __init__(self, every_steps: int = 10) -> None:
        self.counters = Counters()
        self.listener = Listener()
        self.recorder = Recorder(self.counters, every_steps, [self.listener])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return self.listener.records["metrics"]

    def cycle(self, steps: int, loss: float) -> None:
        self.counters.env_steps += steps
        self.counters.updates += 1
        self.counters.cycles += 1
        self.recorder.add("update", {"loss": loss})
        if self.counters.cycles % 3 == 0:
            self.recorder.add_episodes({"episode": [self.counters.cycles], "return": [loss * 2], "length": [4]})
        self.recorder.end_cycle()


def test_metrics_are_averaged_between_two_lines() -> None:
    run = Run(every_steps=10)
    for steps, loss in [(4, 1.0), (4, 2.0), (4, 6.0), (4, 8.0)]:
        run.cycle(steps, loss)
    assert len(run.metrics) == 1
    line = run.metrics[0]
    assert (line["env_steps"], line["updates"], line["cycles"]) == (12, 3, 3)
    assert line["update/loss"] == 3.0
    assert line["collect/return"] == 12.0
    run.recorder.flush()
    assert run.metrics[1]["update/loss"] == 8.0
    assert "collect/return" not in run.metrics[1]
    run.recorder.flush()
    assert len(run.metrics) == 2


def test_frames_are_env_steps_times_the_action_repeat() -> None:
    counters, listener = Counters(env_steps=30), Listener()
    Recorder(counters, 10, [listener], action_repeat=4).write_now("evaluate", {"return_mean": 1.0})
    assert (listener.records["metrics"][0]["env_steps"], listener.records["metrics"][0]["frames"]) == (30, 120)


def test_lines_lie_on_a_grid_of_env_steps() -> None:
    run = Run(every_steps=10)
    for _ in range(30):
        run.cycle(4, 0.0)
    # The first cycle end at or past 10, 20, 30 ..., not ten steps after the last line.
    assert [line["env_steps"] for line in run.metrics] == [12, 20, 32, 40, 52, 60, 72, 80, 92, 100, 112, 120]


def test_a_long_cycle_gives_one_line() -> None:
    run = Run(every_steps=10)
    run.cycle(45, 0.0)
    run.cycle(4, 0.0)
    run.cycle(2, 0.0)
    assert [line["env_steps"] for line in run.metrics] == [45, 51]


def test_phases_without_env_steps_are_recorded_too() -> None:
    run = Run(every_steps=10)
    for _ in range(2 * MOST_PENDING + 1):
        run.cycle(0, 1.0)
    assert [line["updates"] for line in run.metrics] == [MOST_PENDING, 2 * MOST_PENDING]


def test_an_evaluation_is_a_line_of_its_own() -> None:
    run = Run(every_steps=10)
    run.cycle(4, 1.0)
    run.recorder.write_now("evaluate", {"return_mean": 5})
    assert len(run.metrics) == 1
    assert run.metrics[0]["evaluate/return_mean"] == 5.0
    assert "update/loss" not in run.metrics[0]
    assert run.recorder.latest == {"evaluate/return_mean": 5.0}


def test_the_newest_values_are_kept() -> None:
    run = Run(every_steps=4)
    run.cycle(4, 1.0)
    run.cycle(4, 3.0)
    assert run.recorder.latest == {"update/loss": 3.0}


def test_a_phase_starts_with_nothing_measured() -> None:
    run = Run(every_steps=10)
    run.recorder.begin_phase("first")
    run.cycle(4, 1.0)
    run.recorder.write_now("evaluate", {"return_mean": 5})
    run.recorder.begin_phase("second")
    assert run.recorder.latest == {}
    run.cycle(8, 9.0)
    assert [(line["phase"], line.get("update/loss")) for line in run.metrics] == [
        ("first", None), ("first", 1.0), ("second", 9.0),
    ]  # fmt: skip


def test_scores_are_written_at_once_with_the_logs_of_the_env() -> None:
    run = Run(every_steps=10)
    run.counters.env_steps = 7
    run.recorder.add_episodes(
        {"episode": [1, 2], "env": [0, 3], "return": [2.0, 1.5], "length": [7, 5], "log/success": [1.0, 1.0]}
    )
    score, second = run.listener.records["scores"]
    assert score == {"env_steps": 7, "episode": 1, "env": 0, "return": 2.0, "length": 7, "log/success": 1.0}
    assert second == {"env_steps": 7, "episode": 2, "env": 3, "return": 1.5, "length": 5, "log/success": 1.0}
    run.recorder.flush()
    assert run.metrics[0]["collect/log/success"] == 1.0
    assert "collect/env" not in run.metrics[0]


def test_timings_are_kept_apart_from_what_is_reproducible() -> None:
    run = Run(every_steps=4)
    run.cycle(4, 1.0)
    (machine,) = run.listener.records["machine"]
    assert machine["speed/env_steps_per_second"] > 0
    assert machine["memory/peak_megabytes"] > 1
    assert not any("speed" in key or "memory" in key or "time" in key for key in run.metrics[0])


@pytest.mark.parametrize("stop", range(1, 12))
def test_the_state_at_any_cycle_continues_with_the_same_lines(stop: int) -> None:
    whole, first, second = Run(), Run(), Run()
    for number in range(12):
        whole.cycle(4, 0.1 * number)
    for number in range(stop):
        first.cycle(4, 0.1 * number)
    second.counters.load_state(first.counters.state())
    second.recorder.load_state(json.loads(json.dumps(first.recorder.state())))
    for number in range(stop, 12):
        second.cycle(4, 0.1 * number)
    assert first.metrics + second.metrics == whole.metrics
    assert second.recorder.state() == whole.recorder.state()


def test_closing_closes_the_sinks() -> None:
    run = Run()
    run.recorder.close()
    assert run.listener.is_closed


def test_sinks_are_closed_from_last_to_first() -> None:
    """So that JSONL and the console, which come first, still hear of what goes wrong with the others."""
    closed: list[str] = []

    class Closing(Listener):
        def close(self) -> None:
            closed.append(self.name)

    run = Run()
    run.recorder.sinks = [Closing(), Closing()]
    for sink, name in zip(run.recorder.sinks, ("console", "csv"), strict=True):
        sink.name = name  # type: ignore[attr-defined]
    run.recorder.close()
    assert closed == ["csv", "console"]
