"""Mode.OBSERVE: in phases with a controller the agent follows the episode and chooses nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reverie.core.reads import Rollout
from reverie.core.rng import make_generator
from reverie.core.types import Mode
from tests.checking import CheckingAlgorithm
from tests.sessions import checking_config, finished

RANDOM: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}], "controller": "random", "duration_cycles": 2}
OWN: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 2}


def test_a_planner_plans_only_where_its_actions_are_used() -> None:
    config = checking_config(RANDOM, OWN, algorithm={"kind": "tests.toys.ToyPlanner"})
    with finished(config) as run:
        algorithm: Any = run.session.algorithm
        assert algorithm.plans == 48  # the rows of the second phase


def test_the_carry_continues_from_a_random_phase_in_mid_episode() -> None:
    """The agent asserts that its carry follows the episodes and that no env got its action of a random phase."""
    with finished(checking_config(RANDOM, OWN)) as run:
        assert run.algorithm.acts == 32


@pytest.mark.parametrize("observes", [True, False])
def test_only_algorithms_that_declare_it_are_asked_to_observe(observes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get COLLECT, so that they draw the same random numbers as before the mode existed."""
    modes: list[Mode] = []
    act = CheckingAlgorithm.act

    def note(self: CheckingAlgorithm, now: Any, carry: Any, clock: Any, rng: np.random.Generator, mode: Mode) -> Any:
        modes.append(mode)
        return act(self, now, carry, clock, rng, mode)

    monkeypatch.setattr(CheckingAlgorithm, "act", note)
    monkeypatch.setattr(CheckingAlgorithm, "traits", replace(CheckingAlgorithm.traits, observes=observes))
    with finished(checking_config(RANDOM, OWN)):
        expected = Mode.OBSERVE if observes else Mode.COLLECT
        assert modes == [expected] * 16 + [Mode.COLLECT] * 16


@pytest.mark.parametrize("amount", [{"rows": 24}, {"episodes": 3}])
def test_numbers_about_acting_are_recorded_and_not_stored(amount: dict[str, int]) -> None:
    """The toy reports the step of the episode where it acts, counted from 1; each collect records one mean."""
    own = {**OWN, "hooks": [{"collect": amount}]}
    config = checking_config({**RANDOM, "duration_cycles": 1}, own, algorithm={"kind": "tests.toys.ToyPlanner"})
    with finished(config) as run:
        assert "collect/step" not in run.metrics[0]
        found = run.values("collect/step")
        assert len(found) == 2
        buffer = run.session.buffers["main"]
        stored = buffer.sample(Rollout(), run.session.collector.now, make_generator(0))
        assert "act_metrics" not in stored
        if "rows" in amount:
            second = stored["rows"][:, -9:-1]
            assert found[1] == pytest.approx(second.mean())
