"""Envs of other packages: a small distribution that declares an env class, a suite and two mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import pytest

from reverie.envs import entry_points

MODULE = """
import gymnasium as gym
import numpy as np

class SmallMaze(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), float(action), False, self.steps == 9, {}
"""
SUITE = """
from reverie.envs.suite import Registration, Suite

SUITE = Suite("maze", "mazes", ("Maze/",), "Maze/Large-v0", modules=("my_maze",),
              envs={"Maze/Large-v0": Registration("my_maze:SmallMaze", 5)})
"""
DECLARED = """[reverie.envs]
Maze/Small-v0 = my_maze:SmallMaze
maze = maze_suite:SUITE
absent = no_such_module:SUITE
wrong = wrong_suite:SUITE
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the installed distribution."""
    files = {
        "my_maze.py": MODULE, "maze_suite.py": SUITE, "wrong_suite.py": "SUITE = 1\n",
        "my_maze-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: my-maze\nVersion: 1.0\n",
        "my_maze-1.0.dist-info/entry_points.txt": DECLARED,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def entries(package: Path) -> list[metadata.EntryPoint]:
    (found,) = metadata.distributions(path=[str(package)])
    return list(found.entry_points)


def reverie(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(package)!r}); from reverie.cli.main import run; run()"
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_classes_are_registered_without_being_imported(package: Path) -> None:
    try:
        entry_points.register_classes(entries(package))
        assert gym.registry["Maze/Small-v0"].entry_point == "my_maze:SmallMaze"
        assert "my_maze" not in sys.modules
    finally:
        gym.registry.pop("Maze/Small-v0", None)


def test_suites_are_loaded_and_mistakes_are_named(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package)
    with pytest.warns(UserWarning, match="declares") as caught:
        (suite,) = entry_points.load_suites(entries(package))
    assert (suite.name, suite.owns("Maze/Large-v0")) == ("maze", True)
    texts = sorted(str(warning.message) for warning in caught)
    assert "my-maze declares no_such_module:SUITE" in texts[0]
    assert "ModuleNotFoundError" in texts[0]
    assert "wrong_suite:SUITE in the entry points reverie.envs, but it is not a" in texts[1]


def test_declared_envs_are_listed_and_checked_like_all_others(package: Path) -> None:
    listed = json.loads(reverie(package, "envs", "list", "maze/", "--json").stdout)
    assert {(entry["name"], entry["suite"], entry["max_episode_steps"]) for entry in listed} == {
        ("Maze/Large-v0", "maze", 5),
        ("Maze/Small-v0", "maze", None),
    }
    checked = reverie(package, "envs", "check", "Maze/Large-v0", "--json")
    (finding,) = json.loads(checked.stdout)
    assert (checked.returncode, finding["message"]) == (0, "The env cannot render images."), checked.stderr
