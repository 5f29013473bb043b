"""Checks an environment for common mistakes, and explains how to correct them.

Unlike Gymnasium's checker it continues after the first finding where possible, plays whole episodes, and tests what
exact resumes need: that the seed alone decides an episode, whatever the env did before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError, nearest
from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import Specs, flatten_observation, read_specs
from reverie.core.types import Array
from reverie.core.wording import count as counted
from reverie.envs.config import EnvConfig
from reverie.envs.episode import as_action_list, make_action_map
from reverie.envs.errors import (
    EnvError,
    capital,
    check_form,
    check_reset,
    check_reward,
    check_step,
    explain_exception,
    find_mistake,
    is_from_wrapper,
    leaves_of,
)
from reverie.envs.make import make_env, max_episode_steps_of
from reverie.log.progress import progress

_LARGE = 100.0
_COMPARED_STEPS = 200
_SET_LIMIT = "Train with env.max_episode_steps=1000, or another limit."


@dataclass(frozen=True)
class Finding:
    """A mistake (error) or something worth knowing (warning), and what to do about it."""

    severity: Literal["error", "warning"]
    message: str
    fix: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


class _Broken(Exception):
    """The env cannot be used any further. The findings say why."""


def check_env(config: EnvConfig, episodes: int = 3, max_steps: int = 1000) -> list[Finding]:
    """Play a few episodes with random actions, of at most ``max_steps`` steps, and return all findings."""
    checker = _Checker(config, episodes, max_steps)
    try:
        with progress(f"checking {config.id}"):
            checker.run()
    except _Broken:
        pass
    finally:
        checker.close()
    return checker.findings


class _Checker:
    def __init__(self, config: EnvConfig, episodes: int, max_steps: int) -> None:
        self.config, self.episodes, self.max_steps = config, episodes, max_steps
        self.findings: list[Finding] = []
        self._topics: set[str] = set()
        """Topics of the findings."""
        self._info_keys: set[str] = set()
        self._has_truncated = False
        self._envs: list[gym.Env[Any, Any]] = []

    def run(self) -> None:
        self.env = self._make()
        self.specs = self._read_specs()
        self._check_action_bounds()
        for episode in range(self.episodes):
            self._play(episode)
        self._check_limit()
        self._check_log_keys()
        self._check_reproducible()
        self._check_rendering()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def report(self, topic: str, severity: Literal["error", "warning"], message: str, fix: str) -> None:
        """Add a finding, at most one per topic."""
        if topic not in self._topics:
            self._topics.add(topic)
            self.findings.append(Finding(severity, message, fix))

    def _make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        env = make_env(self.config, render_mode)
        self._envs.append(env)
        return env

    def _read_specs(self) -> Specs:
        try:
            return read_specs(self.env, max_episode_steps_of(self.env))
        except ConfigError as error:
            self.report("spaces", "error", error.message, error.fix)
        except AttributeError as error:
            fix = "Set self.observation_space and self.action_space in __init__."
            self.report("spaces", "error", f"The env has no observation or action space: {error}.", fix)
        raise _Broken

    def _check_action_bounds(self) -> None:
        space = self.env.action_space
        if not isinstance(space, gym.spaces.Box):
            return
        if not self.specs.action.is_scaled:
            fix = "Set finite bounds, best -1 and 1, and scale actions inside the env."
            self.report("bounds", "warning", "The action space has no finite bounds.", fix)
        elif not np.allclose(space.low, -space.high):
            fix = (
                "If that is intended, do nothing: -1, 0 and 1 of the agent map to the lowest, middle and highest value."
            )
            self.report("bounds", "warning", "The action bounds are not symmetric around 0.", fix)

    def _actions(self, seed: int) -> Iterator[Any]:
        spec, rng = self.specs.action, make_generator("check", seed)
        to_env = make_action_map(spec, self.env.action_space)
        while True:
            yield to_env(as_action_list(spec, spec.sample(rng, 1))[0])

    def _play(self, episode: int) -> None:
        """Play one episode and check every row."""
        last = observation = self.reset(self.env, episode)
        for step, action in zip(range(1, self.max_steps + 1), self._actions(episode), strict=False):
            copies = self._leaves(last)
            observation, ended = self.step(self.env, action, step)[:2]
            if any(not _same(copies[key], leaf) for key, leaf in self._leaves(last).items()):
                fix = "Return a copy of the array: observation.copy()."
                message = f"Step {step} changed the observation that step {step - 1} had returned."
                self.report("aliasing", "warning", message, fix)
            last = observation
            if ended:
                return
        if self.specs.max_episode_steps is None:
            self.report(
                "limit",
                "warning",
                f"An episode did not end within {counted(self.max_steps, 'step')}. The env declares no limit.",
                _SET_LIMIT,
            )

    def _check_limit(self) -> None:
        if self.specs.max_episode_steps is None and not self._has_truncated:
            message = "The env has no time limit, so an episode may never end."
            self.report("limit", "warning", message, _SET_LIMIT)

    def reset(self, env: gym.Env[Any, Any], seed: int) -> Any:
        """Reset the env and check what it returns."""
        with self._reporting_errors():
            result = self._call("reset", env, lambda: env.reset(seed=derive_seed("check", seed)))
            observation, info = check_reset(result)
            self._check_observation(env, observation, "at reset")
        self._info_keys |= set(info)
        return observation

    def step(self, env: gym.Env[Any, Any], action: Any, step: int) -> tuple[Any, bool, float]:
        """Step the env and check what it returns. Returns the observation, whether the episode ended, the reward."""
        with self._reporting_errors():
            result = self._call("step", env, lambda: env.step(action), action)
            observation, reward, terminated, truncated, info = check_step(result)
            self._check_observation(env, observation, f"at step {step}")
            number = self._read_reward(reward, f"at step {step}")
        self._check_flags(terminated, truncated)
        self._info_keys |= set(info)
        self._has_truncated |= bool(truncated)
        return observation, bool(terminated or truncated), number

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Report an EnvError and stop the checks."""
        try:
            yield
        except EnvError as error:
            self.report(error.topic, "error", error.message, error.fix)
            raise _Broken from error

    def _call(self, name: str, env: gym.Env[Any, Any], call: Callable[[], Any], action: Any = None) -> Any:
        try:
            return call()
        except Exception as error:
            found = find_mistake(env, action) if is_from_wrapper(error) else None
            raise found or explain_exception(name, error) from error

    def _read_reward(self, reward: Any, when: str) -> float:
        """The reward. An infinite or NaN reward is reported without stopping the checks."""
        try:
            return check_reward(reward, when)
        except EnvError as error:
            if error.topic != "reward_finite":
                raise
            self.report(error.topic, "error", error.message, error.fix)
            return float(reward)

    def _check_observation(self, env: gym.Env[Any, Any], observation: Any, when: str) -> None:
        for name, space, value in leaves_of("the observation", env.observation_space, observation, when):
            self._check_leaf(name, space, value, when)
        is_reported = bool(self._topics & {"type", "dtype", "finite", "outside"})
        if not is_reported and not env.observation_space.contains(observation):
            message = f"The observation {when} is not in its space {env.observation_space}."
            fix = "Correct observation_space, or what reset() and step() return."
            self.report("outside", "error", message, fix)

    def _check_leaf(self, name: str, space: gym.Space[Any], value: Any, when: str) -> None:
        if not isinstance(space, gym.spaces.Box):
            return
        check_form(space, value, when, name)
        array = np.asarray(value)
        if not isinstance(value, np.ndarray):
            message = f"{name} is a {type(value).__name__} {when} instead of a numpy array."
            self.report("type", "error", capital(message), f"Return np.array(..., np.{space.dtype}).")
        elif array.dtype != space.dtype:
            message = f"{name} is {array.dtype} {when}; its space has {space.dtype}."
            fix = f"Return observation.astype(np.{space.dtype}), or change the space."
            is_converted = np.can_cast(array.dtype, space.dtype, "same_kind")  # float64 becomes float32 in every row
            self.report("dtype", "warning" if is_converted else "error", capital(message), fix)
        if not np.isfinite(array).all():
            fix = "Look for a division by zero or an unset value in the env."
            self.report("finite", "error", f"{capital(name)} contains NaN or infinity {when}.", fix)
        elif (array < space.low).any() or (array > space.high).any():
            message = f"{name} leaves its bounds {when}: from {array.min():.4g} to {array.max():.4g}."
            self.report("outside", "error", capital(message), "Widen the space's low and high, or clip.")
        elif array.dtype != np.uint8 and np.abs(array).max(initial=0) > _LARGE:
            message = f"{name} contains large numbers (up to {np.abs(array).max():.4g}), which slow down learning."
            self.report(
                "large", "warning", capital(message), "Scale it in the env, or set normaliser.observation=rolling."
            )

    def _check_flags(self, *flags: Any) -> None:
        if not all(isinstance(flag, (bool, np.bool_)) for flag in flags):
            shown = ", ".join(type(flag).__name__ for flag in flags)
            fix = "Return bool(terminated) and bool(truncated)."
            self.report("flags", "warning", f"terminated and truncated are {shown} instead of bool.", fix)

    def _check_log_keys(self) -> None:
        for key in self.config.log_keys:
            if key not in self._info_keys:
                message = f"env.log_keys lists '{key}', but no info contained it: it will be logged as 0."
                self.report(f"log {key}", "warning", message, nearest(key, self._info_keys))

    def _check_reproducible(self) -> None:
        """Compare episodes of two new envs, then with the env that has played before."""
        for seed in range(self.episodes, self.episodes + 3):
            first, second, used = (self._trace(env, seed) for env in (self._make(), self._make(), self.env))
            if first != second:
                message = f"With the same seed and actions, episodes differ {_where(first, second)}."
                fix = "Draw every random number from self.np_random, which super().reset(seed=seed) seeds."
                self.report("seed", "error", f"{message} Runs cannot be repeated or resumed exactly.", fix)
            elif first != used:
                message = f"Episodes depend on earlier episodes: a used env differs {_where(first, used)}."
                fix = "Set everything that step() changes in reset(). Until then, resumed runs are not exact."
                self.report("seed", "error", message, fix)

    def _trace(self, env: gym.Env[Any, Any], seed: int) -> list[str]:
        """One digest for each row of an episode."""
        trace = [self._digest(self.reset(env, seed))]
        for step, action in zip(range(1, _COMPARED_STEPS + 1), self._actions(seed), strict=False):
            observation, ended, reward = self.step(env, action, step)
            trace.append(self._digest(observation, reward, ended))
            if ended:
                break
        return trace

    def _digest(self, observation: Any, *numbers: float) -> str:
        data = b"".join(leaf.tobytes() for leaf in self._leaves(observation).values())
        return hashlib.blake2b(data + repr(numbers).encode()).hexdigest()

    def _leaves(self, observation: Any) -> dict[str, Array]:
        leaves = flatten_observation(self.env.observation_space, observation)
        return {key: leaf.copy() for key, leaf in leaves.items()}

    def _check_rendering(self) -> None:
        fix = "Add 'rgb_array' to metadata['render_modes'] and let render() return a uint8 image (H, W, 3)."
        if "rgb_array" not in (self.env.metadata or {}).get("render_modes", []):
            self.report("render", "warning", "The env cannot render images.", fix)
            return
        try:
            env = self._make("rgb_array")
            env.reset(seed=0)
            image = np.asarray(env.render())
        except Exception as error:
            self.report("render", "warning", f"render() raised {type(error).__name__}: {error}", fix)
            return
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            message = f"render() returns {image.dtype} of shape {image.shape} instead of an image."
            self.report("render", "warning", message, fix)


def _same(left: Array, right: Array) -> bool:
    return left.tobytes() == right.tobytes()


def _where(left: list[str], right: list[str]) -> str:
    step = next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    return "in length" if step is None else "from the reset on" if step == 0 else f"from step {step} on"
