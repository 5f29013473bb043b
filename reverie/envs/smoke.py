"""Smoke test of an env: random actions, and the mistakes that every env could make with them.

It checks for NaN, black frames, episodes that do not end at their time limit, and memory that keeps growing. Each env
is tested in a process of its own (``python -m reverie.envs.smoke``, JSON in, JSON out): a crash in its C code, or the
memory of another env, must not decide about it.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reverie.core.errors import ReverieError
from reverie.core.rng import make_generator
from reverie.core.specs import Specs, read_specs
from reverie.core.wording import count
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.make import make_env, make_with_frames, max_episode_steps_of
from reverie.envs.render import explain_rendering, has_frames
from reverie.envs.vector import allocate_rows, row_layout
from reverie.envs.worker import describe_env, fresh_interpreter, register_described
from reverie.log.video_frames import as_picture
from reverie.machine.usage import resident_memory

STEPS = 1000
MOST_GROWTH = 5e6
"""Bytes by which memory may grow per 1,000 steps after a warm-up."""
SHORT_LIMIT = 7
"""Time limit with which the end of episodes is tested, in steps of the env without wrappers."""
RENDER_EVERY = 100
TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class SmokeResult:
    """What happened to one env. ``problems`` is empty if it passed."""

    problems: tuple[str, ...] = ()
    growth: float | None = None
    """Bytes by which memory grew after the warm-up. None if the system does not report memory."""
    frame: tuple[int, ...] = ()
    """Shape of a rendered frame. Empty if the env does not render."""


class SmokeFailed(Exception):
    """The env broke one of the rules. The text says how."""


def smoke_test(config: EnvConfig, steps: int = STEPS) -> SmokeResult:
    """Play random steps in a process of its own."""
    command, environment = fresh_interpreter("reverie.envs.smoke")
    try:
        task = json.dumps({"env": describe_env(config), "steps": steps})
        done = subprocess.run(
            command, input=task, capture_output=True, text=True, errors="replace", env=environment,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except ReverieError as error:
        return SmokeResult((f"{error.message} {error.fix}".strip(),))
    except subprocess.TimeoutExpired:
        return SmokeResult((f"no answer within {TIMEOUT_SECONDS} seconds",))
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        return SmokeResult((f"the process ended with code {done.returncode}: {last}",))
    answer = json.loads(done.stdout)
    return SmokeResult(tuple(answer["problems"]), answer["growth"], tuple(answer["frame"]))


def examine(config: EnvConfig, steps: int = STEPS) -> SmokeResult:
    """Play random steps in this process. The first broken rule ends the test."""
    growth: float | None = None
    shape: tuple[int, ...] = ()
    try:
        with closing(_Player(config)) as player:
            player.play(max(SHORT_LIMIT, steps // 2))
            growth = _measure_growth(player, steps)
            shape = player.frame_shape
        _check_short_episodes(config)
    except SmokeFailed as failure:
        return SmokeResult((str(failure),), growth, shape)
    except ReverieError as error:
        return SmokeResult((f"{error.message} {error.fix}".strip(),), growth, shape)
    return SmokeResult((), growth, shape)


class _Player:
    """One env under random actions. Checks every row."""

    def __init__(self, config: EnvConfig) -> None:
        self.env = make_with_frames(config)
        self.can_render = has_frames(self.env)
        self.specs: Specs = read_specs(self.env, max_episode_steps_of(self.env))
        self.frame_shape: tuple[int, ...] = ()
        self.length = 0
        """Steps of the current episode."""
        self._episode = Episode(self.env, self.specs, config.log_keys, 0, "smoke", 0, 1)
        self._rows = allocate_rows(row_layout(self.specs, config.log_keys), 1)
        self._rng = make_generator("smoke")
        self._played = 0

    def play(self, steps: int) -> None:
        actions = self.specs.action.sample(self._rng, steps)
        for action in as_action_list(self.specs.action, actions):
            self._episode.step(action, self._rows, 0)
            self.length = 0 if self._rows["is_first"][0] else self.length + 1
            self._check_row()
            if self.can_render and self._played % RENDER_EVERY == 0:
                self._check_frame()
            self._played += 1

    def close(self) -> None:
        self.env.close()

    def _check_row(self) -> None:
        for key, values in self._rows.items():
            if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
                raise SmokeFailed(f"{key} is not finite at step {self._played + 1}")
        limit, is_over = self.specs.max_episode_steps, self._episode.pending
        if limit is not None and self.length >= limit and not is_over:
            raise SmokeFailed(f"an episode went on after its time limit of {count(limit, 'step')}")

    def _check_frame(self) -> None:
        try:
            frame = as_picture(self.env.render())
        except Exception as error:  # rendering may raise anything
            advice = explain_rendering(error)
            raise SmokeFailed(f"rendering failed: {type(error).__name__}: {error} {advice}".strip()) from error
        if not frame.any():
            raise SmokeFailed(f"the frame at step {self._played + 1} is black")
        self.frame_shape = frame.shape


def _measure_growth(player: _Player, steps: int) -> float | None:
    """Bytes by which memory grew. A leak shows in every measurement, so that the smaller one of two counts."""
    allowed = MOST_GROWTH * max(1.0, steps / STEPS)
    growth = _growth_of(player, steps)
    if growth is not None and growth > allowed:
        growth = min(growth, _growth_of(player, steps) or 0.0)
        if growth > allowed:
            raise SmokeFailed(f"memory grew by {growth / 1e6:.1f} MB in {count(steps, 'step')}")
    return growth


def _growth_of(player: _Player, steps: int) -> float | None:
    gc.collect()
    before = resident_memory()
    player.play(steps)
    gc.collect()
    after = resident_memory()
    return None if before is None or after is None else float(after - before)


def _check_short_episodes(config: EnvConfig) -> None:
    """With a short time limit, episodes must be truncated exactly there, unless they terminate before.

    Without wrappers: those that begin an episode with steps of their own use up some of its time.
    """
    limited = config.model_copy(update={"max_episode_steps": SHORT_LIMIT, "wrappers": ()})
    with closing(make_env(limited)) as env:
        specs = read_specs(env, max_episode_steps_of(env))
        limit = specs.max_episode_steps or SHORT_LIMIT
        episode = Episode(env, specs, config.log_keys, 0, "smoke", 0, 1)
        rows = allocate_rows(row_layout(specs, config.log_keys), 1)
        episode.reset(rows, 0)
        for step, action in enumerate(_random_actions(specs, limit), start=1):
            episode.step(action, rows, 0)
            terminated, truncated = bool(rows["terminated"][0]), bool(rows["truncated"][0])
            if terminated:
                return
            if truncated != (step == limit):
                state = "is truncated" if truncated else "is not truncated"
                raise SmokeFailed(f"an episode {state} at step {step}; its time limit is {limit}")


def _random_actions(specs: Specs, steps: int) -> list[Any]:
    return as_action_list(specs.action, specs.action.sample(make_generator("smoke", "limit"), steps))


def main() -> None:
    """In the other process: test the env from stdin and print the result."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # envs may print to stdout
    task = json.load(sys.stdin)
    try:
        result = examine(register_described(task["env"]), task["steps"])
    except ReverieError as error:
        result = SmokeResult((f"{error.message} {error.fix}".strip(),))
    with os.fdopen(answer, "w") as file:
        json.dump(asdict(result), file)


if __name__ == "__main__":
    main()
