"""What every test gets: the ``needs`` marker, no window, and a watch on the global random generators."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rich.style  # noqa: F401 - its first import draws from the global generator

from reverie.envs import gl, make
from reverie.report import write as reports

MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_BYTES = 2 << 30
"""Free space that the folders of tests may need; Docker gives /dev/shm 64 MB unless asked."""

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["REVERIE_CACHE"] = os.path.join(tempfile.gettempdir(), f"reverie-tests-{os.getuid()}")
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["REVERIE_CACHE"], "config")

# Saving syncs files and deletes old ones, which takes longer on a disk than everything else that small runs do.
if MEMORY_DISK.is_dir() and os.access(MEMORY_DISK, os.W_OK) and shutil.disk_usage(MEMORY_DISK).free > MEMORY_DISK_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))

REPORT_FINISHED = reports.report_finished
EXTRAS = {
    "atari": "ale_py",
    "atari-objects": "ocatari",
    "box2d": "Box2D",
    "brax": "brax",
    "bsuite": "bsuite",
    "craftax": "craftax",
    "crafter": "crafter",
    "dmc": "dm_control",
    "envpool": "envpool",
    "jax": "jax",
    "memory-maze": "memory_maze",
    "dmlab": "deepmind_lab",
    "metaworld": "metaworld",
    "minedojo": "minedojo",
    "minerl": "minerl",
    "minari": "minari",
    "minigrid": "minigrid",
    "mujoco": "mujoco",
    "onnx": "onnxruntime",
    "pandas": "pyarrow",
    "playground": "mujoco_playground",
    "procgen": "procgen",
    "pusht": "gym_pusht",
    "retro": "stable_retro",
    "robotics": "gymnasium_robotics",
    "scope": "scope",
    "tensorboard": "tensorboard",
    "video": "imageio_ffmpeg",
    "vizdoom": "vizdoom",
    "wandb": "wandb",
}
"""The module that shows whether an optional extra is installed."""
PROGRAMS = {"browser": ("chromium", "chromedriver")}
"""The same for what is no Python package."""
SCRIPTS = {"dmlab": "deepmind_lab", "minedojo": "minedojo", "minerl": "minerl"}
"""The same for packages that a script in setup/ builds."""


ROOT = Path(__file__).resolve().parents[1]
FIRST = ("resume/", "e2e/test_learning", "e2e/test_readme.py", "e2e/")
"""Where the long tests are, longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long tests first: otherwise one worker ends with them while the other has nothing left to do."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        name = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        return next((number for number, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))

    items.sort(key=rank)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        (extra,) = marker.args
        if extra == "gl":
            if gl.choose_backend() is None:
                pytest.skip("needs the extra 'gl' (a library that renders without a screen: see reverie doctor)")
        elif extra in PROGRAMS:
            if not all(map(shutil.which, PROGRAMS[extra])):
                pytest.skip(f"needs the extra '{extra}' ({' and '.join(PROGRAMS[extra])} on the PATH: make {extra})")
        elif extra in SCRIPTS:
            if importlib.util.find_spec(SCRIPTS[extra]) is None:
                pytest.skip(f"needs the extra '{extra}' (sh setup/{extra}.sh)")
        elif importlib.util.find_spec(EXTRAS[extra]) is None:
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


@pytest.fixture(autouse=True)
def _nothing_written_beside_the_code() -> Iterator[None]:
    """Tests write below ``tmp_path``. A file in the project's root would be committed by accident."""
    before = _visible_names(ROOT)
    yield
    new = sorted(_visible_names(ROOT) - before)
    if new:
        pytest.fail(f"new in {ROOT}: {', '.join(new)} (written by this test, or by one that ran at the same time)")


@pytest.fixture(autouse=True, scope="session")
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Tests started with ``nohup`` or ``&`` inherit ignored signals, and so would the processes that they stop."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    ignored = [number for number in defaults if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, defaults[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _processes_without_coverage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Coverage makes a process that a test starts cost 1.4 times as much, so tests ask for it with a marker."""
    if request.node.get_closest_marker("measure_processes") is not None:
        yield
        return
    settings = {name: os.environ.pop(name) for name in ("COVERAGE_PROCESS_CONFIG",) if name in os.environ}
    yield
    os.environ.update(settings)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing guards against power cuts, which do not happen in tests."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(autouse=True, scope="session")
def _no_videos_by_default() -> Iterator[None]:
    """Runs are filmed where a test asks for it; filming each of them would take longer than all the training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reverie.config.decide.can_record", lambda can_render: False)
        yield


@pytest.fixture(autouse=True, scope="session")
def _runs_without_reports() -> Iterator[None]:
    """Reports at the end of the many small runs would take longer than the runs; ``real_reports`` brings them back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "report_finished", lambda run: run / "report.html")
        yield


@pytest.fixture(autouse=True, scope="session")
def _envs_in_this_process() -> Iterator[None]:
    """``env.vector: auto`` is settled by a stopwatch, and a stopwatch must not decide what a test tries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make, "_step_seconds", lambda config, env: 0.0)
        yield


@pytest.fixture
def real_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this test write their report, as they do everywhere else."""
    monkeypatch.setattr(reports, "report_finished", REPORT_FINISHED)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """An empty folder for run folders."""
    return tmp_path


def _visible_names(folder: Path) -> set[str]:
    """Caches and coverage data have names that begin with a dot."""
    return {name for name in os.listdir(folder) if not name.startswith(".")}


def _generator_states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - looked at, not drawn from
    states: dict[str, object] = {"random": random.getstate(), "numpy": (kind, keys.tobytes(), *rest)}
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states
