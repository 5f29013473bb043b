"""The smoke test of envs: it passes sound ones and finds each kind of mistake."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reverie.core.types import Array
from reverie.envs import smoke
from reverie.envs.config import EnvConfig
from reverie.envs.smoke import examine, smoke_test

WHERE = f"{__name__}."


class Sound(gym.Env[Array, int]):
    """Five steps per episode at most, and a grey frame."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), 9, np.uint8)


class Black(Sound):
    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)


class Unseen(Sound):
    def render(self) -> Any:
        raise RuntimeError("gladLoadGL error")


class NotANumber(Sound):
    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return np.full(2, np.nan, np.float32), 1.0, False, False, {}


class Endless(Sound):
    """Declares a limit that it does not keep."""

    steps_per_action = 1

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.spec = gym.envs.registration.EnvSpec("Endless-v0", max_episode_steps=5)


class EarlyEnd(Sound):
    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, False, True, {}


def test_a_sound_env_passes() -> None:
    result = examine(EnvConfig(id=f"{WHERE}Sound", max_episode_steps=5), steps=20)
    assert (result.problems, result.frame) == ((), (4, 6, 3))
    assert result.growth is None or result.growth < 5e6


@pytest.mark.parametrize(
    ("name", "limit", "problem"),
    [
        ("Black", 5, "the frame at step 1 is black"),
        ("Unseen", 5, "rendering failed: RuntimeError: gladLoadGL error Without a screen"),
        ("NotANumber", 5, "obs is not finite at step 2"),
        ("Endless", None, "went on after its time limit of 5 steps"),
        ("EarlyEnd", 50, "is truncated at step 1; its time limit is 7"),
    ],
)
def test_every_mistake_is_found(name: str, limit: int | None, problem: str) -> None:
    (found,) = examine(EnvConfig(id=f"{WHERE}{name}", max_episode_steps=limit), steps=20).problems
    assert problem in found


def test_memory_that_keeps_growing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, 9e6, 9e6, 17e6, 0, 9e6, 9e6, 9.5e6])
    monkeypatch.setattr(smoke, "resident_memory", lambda: next(sizes))
    config = EnvConfig(id=f"{WHERE}Sound", max_episode_steps=5)
    assert examine(config, steps=20).problems == ("memory grew by 8.0 MB in 20 steps",)
    assert examine(config, steps=20).growth == 0.5e6  # the first measurement was the end of the warm-up


def test_each_env_has_a_process_of_its_own() -> None:
    assert smoke_test(EnvConfig(id="Reverie/Motion-v0"), steps=40) == smoke.SmokeResult(
        (), pytest.approx(0, abs=5e6), (64, 64, 3)
    )
    (problem,) = smoke_test(EnvConfig(id="NoSuchEnv-v0"), steps=10).problems
    assert "There is no environment called 'NoSuchEnv-v0'" in problem


def test_the_end_of_a_process_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "fresh_interpreter", lambda module: (["false"], {}))
    assert smoke_test(EnvConfig(id="CartPole-v1")).problems == ("the process ended with code 1: nothing was printed",)
