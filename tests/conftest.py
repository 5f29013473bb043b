"""What every test gets: the ``needs`` marker, no window, and a watch on the global random generators."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["REVERIE_CACHE"] = os.path.join(tempfile.gettempdir(), f"reverie-tests-{os.getuid()}")

EXTRAS = {
    "atari": "ale_py",
    "box2d": "Box2D",
    "crafter": "crafter",
    "dmc": "dm_control",
    "minigrid": "minigrid",
    "mujoco": "mujoco",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}
"""The module that shows whether an optional extra is installed."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        (extra,) = marker.args
        if importlib.util.find_spec(EXTRAS[extra]) is None:
            pytest.skip(f"needs the extra '{extra}' (pip install 'reverie[{extra}]')")


@pytest.fixture(autouse=True)
def _global_generators_untouched() -> Iterator[None]:
    """A draw from a global generator is a draw that no checkpoint knows of, so it fails the test."""
    before = _generator_states()
    yield
    after = _generator_states()
    drawn = [name for name in before if before[name] != after[name]]
    if drawn:
        pytest.fail(f"drew from the global generator of {', '.join(drawn)}; use a named stream instead")


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """An empty folder for run folders."""
    return tmp_path


def _generator_states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - looked at, not drawn from
    states: dict[str, object] = {"random": random.getstate(), "numpy": (kind, keys.tobytes(), *rest)}
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states
