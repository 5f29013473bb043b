"""From a config to environments: one env, its specs, or a vector of them."""

from __future__ import annotations

import copy
import math
import os
import re
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import gymnasium as gym

from reverie.core import registry
from reverie.core.contracts import NeedsPixels, Vector
from reverie.core.errors import ConfigError, ReverieError, nearest
from reverie.core.rng import make_generator
from reverie.core.specs import Specs, read_specs
from reverie.envs import gl
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.errors import line_of
from reverie.envs.objects import explain_missing
from reverie.envs.render import prepare_rendering
from reverie.envs.repairs import repair_env
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES, find_suite, register_env, register_suites, suite_of_module
from reverie.envs.wrappers.text import TextTokens, has_text

_PROBE_STEPS, _PROBE_SECONDS = 200, 0.3


def make_env(config: EnvConfig, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """One env with its time limit and wrappers, without Gymnasium's checks around every step."""
    wrappers = [(registry.load("wrapper", wrapper.kind), wrapper) for wrapper in config.wrappers]
    if any(isinstance(found, NeedsPixels) and found.needs_pixels for found, _ in wrappers):
        render_mode = "rgb_array"
    if render_mode is not None:
        prepare_rendering()
    kwargs = dict(config.kwargs) if render_mode is None else {**config.kwargs, "render_mode": render_mode}
    env = repair_env(_make_bare(config, kwargs), SUITES)
    for wrapper_class, wrapper in wrappers:
        env = wrapper_class(env, wrapper)
    return TextTokens(env, TextTokens.Config()) if has_text(getattr(env, "observation_space", None)) else env


def make_specs(config: EnvConfig) -> Specs:
    """The specs of an env, read off a throw-away copy."""
    env = make_env(config)
    try:
        return read_specs(env, max_episode_steps_of(env))
    finally:
        env.close()


def make_vector(config: EnvConfig, seed: int, stream: str = "collect", num_envs: int | None = None) -> Vector:
    """``num_envs`` copies (as many as the config says, if not given), run the way ``config.vector`` says."""
    if config.vector == "auto":
        raise ConfigError(
            "env.vector is still 'auto'; how the envs run is decided once, when a run is created.",
            "Set env.vector to sync, process or native.",
        )
    vector: Vector = registry.load("vector", config.vector)(config, seed, stream, num_envs or config.num_envs)
    return vector


def max_episode_steps_of(env: gym.Env[Any, Any]) -> int | None:
    """After how many of the agent's steps an episode is cut at the latest, as far as wrappers tell."""
    if not isinstance(env, gym.Wrapper):
        return env.spec.max_episode_steps if env.spec is not None else None
    inner = max_episode_steps_of(env.env)
    if isinstance(env, gym.wrappers.TimeLimit):
        limit = int(env._max_episode_steps)
        return limit if inner is None else min(limit, inner)
    repeats = getattr(env, "steps_per_action", 1)
    return inner if inner is None else math.ceil(inner / repeats)


def is_dotted(env_id: str) -> bool:
    """Whether an env is named as ``my_module.MyEnv`` rather than by a Gymnasium id."""
    parts = env_id.split(".")
    return env_id not in gym.registry and len(parts) > 1 and all(part.isidentifier() for part in parts)


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Gymnasium's entry for an id; ``package:Id-v0`` imports the package that registers it first."""
    register_suites()
    module, _, name = env_id.rpartition(":")
    if module:
        registry.check_foreign("env", env_id)
        _import_registering(module)
    if name not in gym.registry:
        register_env(name)
    if name not in gym.registry:
        if (error := explain_missing(name)) is not None:
            raise error
        elsewhere = "An id of another package is written package:Id, once that is installed with pip: "
        elsewhere += "minigrid:MiniGrid-Empty-5x5-v0."
        fix = nearest(name, gym.registry) + ("" if module else f"\n{elsewhere}")
        raise ConfigError(f"There is no environment called '{env_id}'.", fix)
    return gym.registry[name]


def _make_bare(config: EnvConfig, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    try:
        if is_dotted(config.id):
            return _make_own_class(config, kwargs)
        spec = copy.copy(find_spec(config.id))
        spec.order_enforce = False  # a wrapper that only checks, on every step
        _prepare_suite(find_suite(spec.id), needs_frames=kwargs.get("render_mode") is not None)
        with _without_warnings_of_suites():
            limit = config.max_episode_steps
            return gym.make(spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
    except ReverieError:
        raise
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise _missing_package(config.id, error) from error
    except Exception as error:
        raise _cannot_make(config, kwargs, error) from error


def _prepare_suite(suite: Suite | None, needs_frames: bool) -> None:
    if suite is None:
        return
    if suite.renderer == "gl" and needs_frames:
        gl.require_backend()
    if suite.prepare is not None:
        suite.prepare()


@contextmanager
def _without_warnings_of_suites() -> Iterator[None]:
    with warnings.catch_warnings():
        for pattern in (pattern for suite in SUITES for pattern in suite.ignored_warnings):
            warnings.filterwarnings("ignore", pattern, DeprecationWarning)
        yield


def _cannot_make(config: EnvConfig, kwargs: dict[str, Any], error: Exception) -> ConfigError:
    """What a constructor raised, where, and which arguments to give."""
    text = str(error).partition(" was raised from the environment creator")[0]
    place = line_of(error) or line_of(error.__cause__ or error)
    missing = re.search(r"missing \d+ required .*argument", text)
    if isinstance(error, TypeError) and missing:
        names = re.findall(r"'(\w+)'", text[missing.end() :])
        wanted = " ".join(f"env.kwargs.{name}=..." for name in names)
        return ConfigError(
            f"The environment '{config.id}' cannot be made without {' and '.join(names)}.", f"Give {wanted}"
        )
    where = f" ({place})" if place else ""
    return ConfigError(
        f"The environment '{config.id}' cannot be made: {type(error).__name__}: {text}{where}",
        f"Its arguments were {kwargs}; set others with env.kwargs." if kwargs else "",
    )


def _make_own_class(config: EnvConfig, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    registry.check_foreign("env", config.id)
    env: gym.Env[Any, Any] = registry.import_name(config.id, what="environment")(**kwargs)
    if not isinstance(env, gym.Env):
        raise ConfigError(f"'{config.id}' is not a Gymnasium environment.", "Let the class inherit from gymnasium.Env.")
    if config.max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, config.max_episode_steps)
    return env


def _import_registering(module: str) -> None:
    registry.make_importable(module)
    try:
        __import__(module)
    except ImportError as error:
        raise ConfigError(
            f"Cannot import '{module}', which should register the environment: {error}",
            f"Install the package that provides it, e.g. pip install {module.partition('.')[0]}",
        ) from error


def _missing_package(env_id: str, error: Exception) -> ConfigError:
    """Which extra of ours would bring what an env lacks."""
    suite = suite_of_module(env_id) if is_dotted(env_id) else find_suite(find_spec(env_id).id)
    fix = suite.install_hint if suite is not None else "Install the package that it needs."
    return ConfigError(f"The environment '{env_id}' cannot be made: {error}", fix)


def resolve_vector(config: EnvConfig, env: gym.Env[Any, Any]) -> Literal["sync", "process", "native"]:
    """Decide ``vector: auto`` by timing a few steps of ``env``, a throw-away one.

    Only between sync and process, which give the same bits. Workers pay off when the env time that they
    save is at least twice what a round trip to them costs: about 0.1 ms and a bit more per worker.
    """
    if config.vector != "auto":
        return config.vector
    workers = num_workers(config, config.num_envs)
    if workers == 1 or not _can_travel(config):
        return "sync"
    saved = _step_seconds(config, env) * (config.num_envs - math.ceil(config.num_envs / workers))
    return "process" if saved > 2 * (100e-6 + 40e-6 * workers) else "sync"


def _can_travel(config: EnvConfig) -> bool:
    """Whether a worker process could make this env: not if it is defined in the script that runs."""
    from reverie.envs.worker import describe_env  # worker builds on this module

    try:
        describe_env(config)
    except ConfigError:
        return False
    return True


def num_workers(config: EnvConfig, num_envs: int) -> int:
    """How many processes share the envs: one per core unless the config says, never more than envs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(num_envs, config.workers or cores)


def _step_seconds(config: EnvConfig, env: gym.Env[Any, Any]) -> float:
    """Median time of one env step under random actions; ends after a third of a second at the latest."""
    from reverie.envs.vector import allocate_rows, row_layout  # vector builds on this module

    specs = read_specs(env)
    rows = allocate_rows(row_layout(specs, config.log_keys), 1)
    episode = Episode(env, specs, config.log_keys, 0, "probe", 0, 1)
    actions = specs.action.sample(make_generator("probe"), _PROBE_STEPS)
    times: list[float] = []
    started = time.perf_counter()
    episode.reset(rows, 0)
    for action in as_action_list(specs.action, actions):
        before = time.perf_counter()
        episode.step(action, rows, 0)
        times.append(time.perf_counter() - before)
        if time.perf_counter() - started > _PROBE_SECONDS:
            break
    return statistics.median(times)
