"""All commands in the README work, in its order and with smaller budgets."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import reverie as package
from tests.e2e.conftest import Command
from tests.unit.test_project import FENCED, ROOT, commands_of

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

README = (ROOT / "README.md").read_text()
BUDGETS = {"train": ("--steps", "300"), "resume": ("--steps", "900"), "eval": ("--episodes", "3")}
BUDGETS["envs check"] = ("--episodes", "1")
SMALLER = ("phases.learn.collect.rows=128", "algorithm.epochs=1", "evaluate.final_episodes=2")


def cut(command: list[str]) -> list[str]:
    """The command with a budget small enough for a test."""
    name = next((name for name in BUDGETS if command[: len(name.split())] == name.split()), None)
    if name is None:
        return command
    option, amount = BUDGETS[name]
    if option in command:
        index = command.index(option)
        command = [*command[:index], *command[index + 2 :]]
    smaller = SMALLER if name == "train" and ":ppo" in command[1] else ()
    return [*command, *smaller, option, amount]


def test_budgets_are_shortened() -> None:
    assert cut(["eval", "@last", "--episodes", "100"]) == ["eval", "@last", "--episodes", "3"]
    assert cut(["train", "X:ppo", "--steps", "9", "a=1"]) == ["train", "X:ppo", "a=1", *SMALLER, "--steps", "300"]
    assert cut(["config", "show", "X:ppo"]) == ["config", "show", "X:ppo"]


def test_every_command_runs(reverie: Command) -> None:
    commands = commands_of(README)
    assert {words[0] for words in commands} >= {"train", "eval", "resume", "verify", "config", "envs"}
    for words in commands:
        done = reverie(*cut(words))
        assert done.code == 0, f"reverie {' '.join(words)}\n{done.err}"
        assert done.out


def test_the_page_on_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    full_train, started = package.train, []

    def train(env: object, **options: object) -> package.Run:
        started.append(env)
        return full_train(env, *SMALLER, **options, steps=300)  # type: ignore[arg-type]

    monkeypatch.setattr(package, "train", train, raising=False)
    blocks = [block for language, block in FENCED.findall((ROOT / "docs" / "python.md").read_text())]
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert len(started) == 2
    assert names["action"] in (0, 1)


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    full_train = package.train
    monkeypatch.setattr(package, "train", lambda *words, **options: full_train(*words, *SMALLER, **options, steps=300),
                        raising=False)  # fmt: skip
    blocks = [block for language, block in FENCED.findall(README) if language == "python"]
    assert blocks
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), names)
        assert isinstance(names["run"], package.Run)
        assert isinstance(names["env"], gym.Env)
        assert names["action"] in (0, 1)
