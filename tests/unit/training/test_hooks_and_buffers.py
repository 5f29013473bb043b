"""Hooks with buffers of their own, epochs, counters per hook, and a look at the data when a phase starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reverie.config.phases import Phase
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.core.traits import check_algorithm
from tests.sessions import assert_same_state, checking_config, finished, started
from tests.toys import ToyTwoBuffers

TOY = {"kind": "tests.toys.ToyTwoBuffers"}
BUFFERS = {"main": {"kind": "replay", "capacity": 1000, "min_rows": 1}, "fitness": {"kind": "rollout"}}
COLLECT = {"collect": {"rows": 24, "into": ["main", "fitness"]}}


def phase(*hooks: Any, **values: Any) -> dict[str, Any]:
    return {"hooks": list(hooks), "duration_cycles": 3, **values}


def config(*phases: dict[str, Any], **values: Any) -> Any:
    return checking_config(*phases, algorithm=TOY, buffers=BUFFERS, **values)


BOTH = phase(COLLECT, {"update_dynamics": {"updates": 2}}, {"update_fitness": {"buffer": "fitness"}})


def test_a_hook_reads_the_buffer_that_it_names() -> None:
    with finished(config(BOTH)) as run:
        assert run.values("update_fitness/columns") == [9.0] * 3  # a rollout: emptied by every read
        assert len(run.session.buffers["main"]) == 72  # a replay: it keeps all rows


def test_updates_are_counted_for_each_hook() -> None:
    with finished(config(BOTH)) as run:
        counters = run.session.counters
        assert counters.hook_updates == {"update_dynamics": 6, "update_fitness": 6}
        assert counters.updates == 12
        assert run.values("updates/update_fitness") == [2, 4, 6]
        restored = Counters()
        restored.load_state(counters.state())
        assert restored == counters == Counters.saved_in(counters.state())


def test_counters_of_older_checkpoints_load() -> None:
    counters = Counters(hook_updates={"update": 3})
    counters.load_state({"env_steps": 5, "rows": 6, "updates": 4, "cycles": 1, "episodes": 0, "horizon_steps": 9})
    assert (counters.updates, counters.hook_updates) == (4, {})


def test_epochs_pass_over_the_rows_that_are_stored_when_the_hook_starts() -> None:
    with finished(config(phase(COLLECT, {"update_dynamics": {"epochs": 2}}, duration_cycles=2))) as run:
        # 24 rows and then 48, twice, four rows at a time
        assert run.session.counters.hook_updates == {"update_dynamics": 12 + 24}


@pytest.mark.parametrize("updates", [1, 7, 13, 20])
def test_a_stop_within_an_epoch_changes_nothing(updates: int) -> None:
    learning = config(phase(COLLECT, {"update_dynamics": {"epochs": 2}}, duration_cycles=2))
    with finished(learning) as whole, started(learning) as first, started(learning) as second:
        counters = first.session.counters
        first.orchestrator.should_stop = lambda: counters.updates >= updates
        assert not first.orchestrator.run()
        second.session.load_state(first.session.state())
        assert second.orchestrator.run()
        assert_same_state(second.session.state(), whole.session.state())


def test_epochs_need_a_read_of_a_fixed_size() -> None:
    with (
        pytest.raises(ConfigError, match="epochs has no meaning for the hook 'update_fitness'"),
        started(config(phase(COLLECT, {"update_fitness": {"epochs": 2, "buffer": "fitness"}}))),
    ):
        pass


def test_an_algorithm_sees_the_data_when_a_phase_starts_and_not_after_a_resume() -> None:
    two = config(phase(COLLECT, duration_cycles=2), phase(COLLECT, {"update_dynamics": {}}))
    with started(two) as run, started(two) as resumed:
        run.stop_after(100)
        algorithm: Any = run.session.algorithm
        assert algorithm.prepared == [0, 96]  # 48 rows in each buffer
        resumed.session.load_state(run.session.state())
        assert resumed.orchestrator.run()
        other: Any = resumed.session.algorithm
        assert other.prepared == [0, 96]


def test_a_method_of_that_name_is_not_called_without_the_trait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyTwoBuffers, "traits", replace(ToyTwoBuffers.traits, prepares=False))
    with finished(config(phase(COLLECT, {"update_dynamics": {}}))) as run:
        algorithm: Any = run.session.algorithm
        assert algorithm.prepared == []


def test_the_trait_needs_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ToyTwoBuffers, "prepare")
    with pytest.raises(ConfigError, match=r"declares prepares, but has no method prepare"):
        check_algorithm(TOY["kind"])


def test_a_phase_that_does_not_keep_its_buffer_empties_all_that_it_used() -> None:
    dropping = phase(COLLECT, keep=["algorithm", "normaliser", "episodes"])
    with finished(config(dropping, phase({"collect": {"rows": 3}}, duration_cycles=1))) as run:
        assert {name: len(buffer) for name, buffer in run.session.buffers.items()} == {"main": 3, "fitness": 0}


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ([{"collect": {"rows": 24, "into": ["maim"]}}], "there is no buffer 'maim'"),
        ([COLLECT, {"update_fitness": {"buffer": "fit"}}], "there is no buffer 'fit'"),
        ([COLLECT, {"update_fitness": {"into": ["fitness"]}}], "update_fitness fills no buffers"),
        ([{"collect": {"rows": 24, "buffer": "main"}}], "collect does not read a buffer"),
        (
            [{"collect": {"rows": 24}}, {"update_fitness": {"buffer": "fitness"}}],
            "can be data in buffer 'fitness'",
        ),
        ([COLLECT, {"update_dynamics": {"epochs": 2, "updates": 3}}], "cannot both hold"),
    ],
)
def test_what_cannot_work_is_refused(hooks: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(phase(*hooks))


def test_names_of_buffers_survive_a_dump() -> None:
    first = Phase.model_validate({"name": "a", **BOTH})
    assert Phase.model_validate(first.model_dump(mode="json")) == first
    assert first.buffers() == ("main", "fitness")


def test_a_schedule_of_updates_reaches_its_end_with_the_last_update() -> None:
    rate = {"start": 1.0, "end": 0.0, "from": 0, "to": 4, "unit": "updates"}
    toy = {**TOY, "rate": rate}
    hooks = phase(COLLECT, {"update_dynamics": {}}, duration_cycles=5)
    with finished(checking_config(hooks, algorithm=toy, buffers=BUFFERS)) as run:
        assert run.values("update_dynamics/rate") == [1.0, 0.75, 0.5, 0.25, 0.0]
