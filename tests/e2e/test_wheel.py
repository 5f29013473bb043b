"""The wheel: built, installed in an environment without the repository, and used for training there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from reverie.config.presets import PACKAGE_PRESETS
from tests.unit.test_project import ROOT

SMALLER = ("phases.learn.collect.rows=128", "algorithm.epochs=1", "evaluate.final_episodes=2")
SMALLER += ("video.enabled=false", "log.report=false")
PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
HERE = ("PYTHONPATH", "PYTHONHOME", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Environment variables that would lead the other interpreter back to this one."""


def run(*command: str | Path, folder: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name not in HERE}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, to leave no files in the repository, and with the installed setuptools: an isolated build
    would have to download it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "reverie", folder / "reverie", ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", ".", folder=folder)
    (built,) = (folder / "dist").glob("reverie-*.whl")
    return built


def test_wheel_contains_every_data_file(wheel: Path) -> None:
    contents = set(zipfile.ZipFile(wheel).namelist())
    data = {path for path in (ROOT / "reverie").rglob("*") if path.suffix not in ("", ".py", ".pyc")}
    assert {PACKAGE_PRESETS / "env" / "CartPole-v1.yaml", ROOT / "reverie/report/style.css"} <= data
    assert {str(path.relative_to(ROOT)) for path in data} - contents == set()
    assert {name for name in contents if name.startswith("tests/")} == set()


def test_an_empty_environment_trains_with_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """It uses only the dependencies of this environment: a .pth file adds a folder, but does not run its .pth files."""
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel, folder=tmp_path)
    packages = Path(run(python, "-c", PACKAGES, folder=tmp_path).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    work = tmp_path / "empty"
    work.mkdir()
    where = run(python, "-c", "import reverie; print(reverie.__file__)", folder=work)
    assert Path(where.strip()).is_relative_to(packages)
    command = tmp_path / "venv" / "bin" / "reverie"
    done = run(command, "train", "CartPole-v1:ppo", "--steps", "500", "--quiet", *SMALLER, folder=work)
    assert done.startswith("CartPole-v1-ppo-s0-1  finished")
    assert (work / "runs" / "CartPole-v1-ppo-s0-1" / "policies" / "final" / "policy.json").exists()
