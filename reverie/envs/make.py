"""Makes envs from configs: a single env, its specs, or a vector of envs."""

from __future__ import annotations

import copy
import math
import os
import re
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from reverie.core import registry
from reverie.core.contracts import NeedsPixels, Vector
from reverie.core.errors import ConfigError, ReverieError, did_you_mean, nearest
from reverie.core.rng import make_generator
from reverie.core.specs import Specs, read_specs
from reverie.envs import gl
from reverie.envs.config import DecidedVector, EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.errors import line_of
from reverie.envs.jax_env import JaxEnv
from reverie.envs.objects import explain_missing
from reverie.envs.render import has_frames, prepare_rendering
from reverie.envs.repairs import repair_env
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES, find_suite, register_env, register_suites, suite_of_module
from reverie.envs.vary import Vary
from reverie.envs.wrappers.text import TextTokens, has_text
from reverie.machine.libraries import install_library

_PROBE_STEPS, _PROBE_SECONDS = 200, 0.3
_OF_PARTS = (gym.spaces.Dict, gym.spaces.Tuple)


def make_env(config: EnvConfig, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """One env with its time limit and wrappers, without Gymnasium's checks at every step."""
    config = with_observation(config)
    wrappers = [(registry.load("wrapper", wrapper.kind), wrapper) for wrapper in config.wrappers]
    if any(isinstance(found, NeedsPixels) and found.needs_pixels for found, _ in wrappers):
        render_mode = "rgb_array"
    if render_mode is not None:
        prepare_rendering()
    kwargs = dict(config.kwargs) if render_mode is None else {**config.kwargs, "render_mode": render_mode}
    env = _vary(repair_env(_make_bare(config, kwargs), SUITES), config)
    for wrapper_class, wrapper in wrappers:
        env = wrapper_class(env, wrapper)
    return TextTokens(env, TextTokens.Config()) if has_text(getattr(env, "observation_space", None)) else env


def make_with_frames(config: EnvConfig) -> gym.Env[Any, Any]:
    """Like :func:`make_env`, with ``render_mode="rgb_array"`` if the env renders frames."""
    env = make_env(config)
    if not has_frames(env):
        return env
    env.close()
    return make_env(config, "rgb_array")


def _vary(env: gym.Env[Any, Any], config: EnvConfig) -> gym.Env[Any, Any]:
    """The env, wrapped if ``env.vary`` changes something."""
    ranges = config.vary.ranges()
    if not ranges:
        return env
    suite = suite_of_module(type(env.unwrapped).__module__)
    find = suite.variations if suite is not None else None
    return Vary(env, ranges, find(env.unwrapped) if find is not None else {})


def with_observation(config: EnvConfig) -> EnvConfig:
    """The config with the wrappers and arguments that the observation ``env.obs`` needs, and without ``env.obs``."""
    if not config.obs:
        return config
    suite = suite_of(config.id)
    forms = {"pixels": _with_pixels, **(suite.observations if suite is not None else {})}
    if config.obs not in forms:
        raise ConfigError(
            f"'{config.id}' has no observation '{config.obs}'.",
            f"{nearest(config.obs, forms)} Without env.obs, it is the env's own.".strip(),
        )
    return forms[config.obs](config).model_copy(update={"obs": ""})


def _with_pixels(config: EnvConfig) -> EnvConfig:
    pixels = registry.load("wrapper", "render_pixels").Config()
    return config.model_copy(update={"wrappers": (pixels, *config.wrappers)})


def make_specs(config: EnvConfig) -> Specs:
    """The specs of an env, read from a temporary copy."""
    env = make_env(config)
    try:
        return read_specs(env, max_episode_steps_of(env))
    finally:
        env.close()


def make_vector(config: EnvConfig, seed: int, stream: str = "collect", num_envs: int | None = None) -> Vector:
    """A vector of ``num_envs`` copies (default: ``config.num_envs``) of the kind ``config.vector``."""
    if config.vector == "auto":
        raise ConfigError(
            "env.vector=auto cannot be built: it is resolved when a run is created.",
            "Set env.vector to sync, process, native, envpool or jax.",
        )
    count = num_envs or config.num_envs
    vector: Vector = registry.load("vector", _vector_kind(config, count))(config, seed, stream, count)
    return vector


def _vector_kind(config: EnvConfig, count: int) -> str:
    if config.vector == "native":
        return native_kind(config.id)
    is_crowded = config.vector == "sync" and count > 1 and needs_own_process(config.id)
    return "process" if is_crowded else config.vector  # their rows are the same


def native_kind(env_id: str) -> str:
    """The kind of vector that runs an env's own vector class."""
    suite = suite_of(env_id)
    return (suite.native if suite is not None else "") or "native"


def max_episode_steps_of(env: gym.Env[Any, Any]) -> int | None:
    """The time limit of an env in actions of the agent. None if neither the env nor its wrappers declare one."""
    if not isinstance(env, gym.Wrapper):
        return env.spec.max_episode_steps if env.spec is not None else None
    inner = max_episode_steps_of(env.env)
    if isinstance(env, gym.wrappers.TimeLimit):
        limit = int(env._max_episode_steps)
        return limit if inner is None else min(limit, inner)
    repeats = getattr(env, "steps_per_action", 1)
    return inner if inner is None else math.ceil(inner / repeats)


def is_dotted(env_id: str) -> bool:
    """Whether this is the dotted path of a class (``my_module.MyEnv``) and not a Gymnasium id."""
    parts = env_id.split(".")
    return env_id not in gym.registry and len(parts) > 1 and all(part.isidentifier() for part in parts)


def suite_of(env_id: str) -> Suite | None:
    """The suite of an env that is named by an id or by the dotted path of its class."""
    return suite_of_module(env_id) if is_dotted(env_id) else find_suite(find_spec(env_id).id)


def needs_own_process(env_id: str) -> bool:
    """Whether a process can hold only one env of this kind."""
    suite = suite_of(env_id)
    return suite is not None and suite.one_per_process


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Gymnasium's registration of an id. For ``package:Id-v0``, the package is imported first to register it."""
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
        if isinstance(getattr(sys.modules.get(module), name, None), type):
            raise ConfigError(f"'{name}' is a class, not a Gymnasium id.", f"Write {module}.{name}, with a dot.")
        advice = "For an env of another package, install the package and write package:Id, "
        advice += "such as minigrid:MiniGrid-Empty-5x5-v0."
        fix = f"{_close_ids(name)} All environments: reverie envs list.".strip() + ("" if module else f"\n{advice}")
        raise ConfigError(f"There is no environment called '{env_id}'.", fix)
    return gym.registry[name]


def _close_ids(name: str) -> str:
    """A sentence that names other versions of the same env, else up to three similar ids. Empty if there are none."""
    base = name.rpartition("-v")[0]
    versions = [known for known in gym.registry if base and known.rpartition("-v")[0] == base]
    return did_you_mean(name, versions or gym.registry, cutoff=0.6)


def _make_bare(config: EnvConfig, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    try:
        if is_dotted(config.id):
            return _make_own_class(config, kwargs)
        spec = copy.copy(find_spec(config.id))
        spec.order_enforce = False  # a wrapper that only checks, at every step
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
    """What a constructor raised and where, and which arguments to set."""
    text = str(error).partition(" was raised from the environment creator")[0]
    line = line_of(error) or line_of(error.__cause__ or error)
    missing = re.search(r"missing \d+ required .*argument", text)
    if isinstance(error, TypeError) and missing:
        names = re.findall(r"'(\w+)'", text[missing.end() :])
        wanted = " ".join(f"env.kwargs.{name}=..." for name in names)
        return ConfigError(
            f"The environment '{config.id}' cannot be made without {' and '.join(names)}.", f"Set {wanted}"
        )
    where = f" ({line})" if line else ""
    arguments = f"Its arguments were {kwargs}. Change them with env.kwargs." if kwargs else ""
    return ConfigError(
        f"The environment '{config.id}' cannot be made: {type(error).__name__}: {text}{where}",
        install_library(error) or arguments,
    )


def _make_own_class(config: EnvConfig, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    registry.check_foreign("env", config.id)
    env: gym.Env[Any, Any] = registry.import_name(config.id, what="environment")(**kwargs)
    if not isinstance(env, gym.Env):
        raise ConfigError(f"'{config.id}' is not a Gymnasium environment.", "Inherit from gymnasium.Env.")
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
            f"Install its package, for example: pip install {module.partition('.')[0]}",
        ) from error


def _missing_package(env_id: str, error: Exception) -> ConfigError:
    suite = suite_of(env_id)
    fix = suite.install_hint if suite is not None else "Install the missing package."
    fix = install_library(error) or fix
    return ConfigError(f"The environment '{env_id}' cannot be made: {error}", fix)


def resolve_vector(config: EnvConfig, env: gym.Env[Any, Any]) -> DecidedVector:
    """Resolve ``vector: auto``: jax for several copies of an env in JAX, otherwise sync or process, whose rows are
    identical, by timing a few steps of a temporary env.

    Workers pay off if they save at least twice the time of a round trip to them, which is about 0.1 ms plus 0.04 ms per
    worker.
    """
    if config.vector != "auto":
        return config.vector
    if needs_own_process(config.id):
        return "process"
    if config.num_envs > 1 and has_jax_vector(config, env):
        return "jax"
    workers = num_workers(config, config.num_envs)
    if workers == 1 or not _works_in_workers(config):
        return "sync"
    saved = _step_seconds(config, env) * (config.num_envs - math.ceil(config.num_envs / workers))
    return "process" if saved > 2 * (100e-6 + 40e-6 * workers) else "sync"


def has_jax_vector(config: EnvConfig, env: gym.Env[Any, Any]) -> bool:
    """Whether one JAX program can step all copies of an env: it is written in JAX, and nothing is around it."""
    if not isinstance(env.unwrapped, JaxEnv) or isinstance(env.action_space, _OF_PARTS):
        return False
    return not with_observation(config).wrappers and not config.vary.ranges()


def _works_in_workers(config: EnvConfig) -> bool:
    """Whether a worker process can make this env. Not if it is defined in the script that runs."""
    from reverie.envs.worker import describe_env  # worker.py imports this module

    try:
        describe_env(config)
    except ConfigError:
        return False
    return True


def num_workers(config: EnvConfig, num_envs: int) -> int:
    """Number of worker processes: ``config.workers`` or one per core, at most one per env."""
    if needs_own_process(config.id):
        return num_envs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(num_envs, config.workers or cores)


def _step_seconds(config: EnvConfig, env: gym.Env[Any, Any]) -> float:
    """Median time of an env step with random actions, measured for at most 0.3 seconds."""
    from reverie.envs.vector import allocate_rows, row_layout  # vector.py imports this module

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
