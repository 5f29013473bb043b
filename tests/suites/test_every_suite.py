"""The example of every suite that is installed: random steps, and snapshots as the suite declares them."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config.catalogue import find_env_config
from reverie.envs.config import EnvConfig
from reverie.envs.smoke import smoke_test
from reverie.envs.snapshot import cached_verdict
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES
from tests.conftest import SCRIPTS
from tests.suites.test_smoke import EXAMPLES

STEPS = 60


def marked(suite: Suite) -> Any:
    needed = suite.extra or (suite.name if suite.name in SCRIPTS else "")
    return pytest.param(suite, marks=[pytest.mark.needs(needed)] if needed else [], id=suite.name)


others = pytest.mark.parametrize("suite", [marked(suite) for suite in SUITES if suite.extra not in EXAMPLES])


@others
def test_its_example_passes_the_smoke_test(suite: Suite) -> None:
    assert smoke_test(find_env_config(suite.example), STEPS).problems == ()


@others
def test_its_snapshots_are_as_declared(suite: Suite) -> None:
    verdict = cached_verdict(EnvConfig(id=suite.example))
    assert (verdict.kind, verdict.method != "unchecked") == (suite.snapshots, True), verdict
