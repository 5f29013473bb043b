"""Every shipped preset builds a session that collects, if the packages of its env are installed."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.api import make_config
from reverie.build import build
from reverie.envs.suites import find_suite
from tests.unit.config.test_presets import SPECS

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time


def needs(spec: str) -> Any:
    """The spec, marked with the extra that its env needs."""
    suite = find_suite(spec.rpartition(":")[0])
    assert suite is not None
    extra = suite.name if suite.setup else suite.extra
    return pytest.param(spec, marks=[pytest.mark.needs(extra)] if extra else [])


@pytest.mark.parametrize("spec", [needs(spec) for spec in SPECS])
def test_every_preset_builds_and_collects(spec: str) -> None:
    config = make_config(spec, ["env.vector=sync"], seed=1)
    session = build(config)
    try:
        phase = session.scheduler.phases[0]
        session.enter(phase, None)
        session.collector.collect_rows(session.buffers[phase.buffer], config.env.num_envs)
        assert session.counters.rows == 2 * config.env.num_envs
        assert session.collector.now["previous_action"].shape == (
            config.env.num_envs,
            *session.policy.specs.action.shape,
        )
    finally:
        session.close()
