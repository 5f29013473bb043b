"""Lets a person play an env with the keyboard."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from reverie.core.rng import derive_seed
from reverie.envs.config import EnvConfig
from reverie.envs.keyboard import Keyboard
from reverie.envs.make import make_env, max_episode_steps_of
from reverie.envs.render import render_fps
from reverie.envs.suite import KeyMap
from reverie.log.video import ViewerLeft
from reverie.log.video_frames import Canvas, Caption, as_return
from reverie.log.window import IDLE_FPS, Window, open_window

MOST_FPS = 60.0


def play_by_hand(
    config: EnvConfig, keys: KeyMap, seed: int = 0, episodes: int | None = None, fps: float | None = None
) -> list[float]:
    """Play until the window is closed, or at most ``episodes`` episodes. Returns the returns of the finished ones."""
    env = make_env(config, "rgb_array")
    returns: list[float] = []
    try:
        speed = fps or keys.fps or min(MOST_FPS, render_fps(env))
        with open_window(f"Reverie: {config.id}", speed) as window:
            game = _Game(env, Keyboard(keys, env.action_space), window, config.id)
            while episodes is None or len(returns) < episodes:
                returns.append(game.play(derive_seed(seed, "by hand", len(returns))))
                game.rest()
    except ViewerLeft:
        pass
    finally:
        env.close()
    return returns


class _Game:
    def __init__(self, env: gym.Env[Any, Any], keyboard: Keyboard, window: Window, title: str) -> None:
        self.env, self.keyboard, self.window = env, keyboard, window
        self.canvas = Canvas(title)
        self.limit = max_episode_steps_of(env) or 0

    def play(self, seed: int) -> float:
        """Play one episode and return its return."""
        self.env.reset(seed=seed)
        total, length, is_over = 0.0, 0, False
        self._show(total, length)
        while not is_over:
            action = self._ask()
            _, reward, terminated, truncated, _ = self.env.step(action)
            total, length, is_over = total + float(reward), length + 1, bool(terminated or truncated)
            self._show(total, length, " (over)" if is_over else "")
        return total

    def rest(self) -> None:
        """Show the last frame for one second."""
        for _ in range(IDLE_FPS):
            self.window.wait()
        self.window.take_tapped()

    def _ask(self) -> Any:
        """The person's action. A turn-based game waits for a key press."""
        if not self.keyboard.keys.waits:
            return self.keyboard.action(self.window.pressed)
        while (action := self.keyboard.action(self.window.take_tapped())) is None:
            self.window.wait()
        return action

    def _show(self, total: float, length: int, note: str = "") -> None:
        caption = Caption(
            f"return {as_return(total)}{note}", f"step {length:,}", length / self.limit if self.limit else 0.0
        )
        self.window.add(self.canvas.draw(self.env.render(), caption))
