"""When a run is saved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reverie.config.phases import Phase
from reverie.config.schema import CheckpointConfig
from reverie.core.counters import Counters
from reverie.runs.checkpointer import Checkpointer
from reverie.store.run_folder import RunFolder

BY_CYCLES = Phase(name="cycles", duration_cycles=100)
BY_STEPS = Phase(name="steps", duration_steps=1000)


def saves(tmp_path: Path, phases: list[Phase], **every: int) -> list[int]:
    """At the end of which cycles a run is saved whose cycles take 10 env steps and 2 updates; each phase has ten."""
    session: Any = SimpleNamespace(counters=Counters(), scheduler=SimpleNamespace(phase=None))
    checkpointer = Checkpointer(RunFolder(tmp_path), CheckpointConfig(**every), session, Any, Any)  # type: ignore[arg-type]
    found: list[int] = []
    checkpointer.save = lambda: found.append(session.counters.cycles)  # type: ignore[method-assign, assignment, return-value]
    for session.scheduler.phase in phases:
        for _ in range(10):
            counters = session.counters
            counters.env_steps, counters.updates = counters.env_steps + 10, counters.updates + 2
            counters.cycles += 1
            checkpointer.end_cycle(session)
    return found


@pytest.mark.parametrize(
    ("phases", "every", "expected"),
    [
        ([BY_STEPS], {"every_steps": 50}, [5, 10]),
        ([BY_STEPS], {"every_steps": 50, "every_updates": 8}, [4, 5, 8, 10]),
        ([BY_CYCLES], {"every_cycles": 4}, [4, 8]),
        ([BY_CYCLES], {"every_steps": 50}, [5, 10]),
        ([BY_CYCLES, BY_STEPS], {"every_steps": 30, "every_cycles": 4}, [4, 8, 12, 15, 18]),
        ([BY_STEPS, BY_CYCLES], {"every_steps": 50, "every_cycles": 4}, [5, 10, 12, 16, 20]),
        ([BY_STEPS], {"every_cycles": 4}, []),
    ],
)
def test_runs_are_saved_at_intervals(
    tmp_path: Path, phases: list[Phase], every: dict[str, int], expected: list[int]
) -> None:
    assert saves(tmp_path, phases, **every) == expected
