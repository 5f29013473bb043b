"""Turns envs that a Python program passes as objects into ids for configs, workers and run folders.

An importable class or function becomes a dotted path, an env of ``gym.make`` its id and arguments. Anything else (a
lambda, a class inside a function) is registered with Gymnasium as ``Python/<name>``: this process can train on it, but
workers and later programs cannot make it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from reverie.core import registry
from reverie.core.errors import ConfigError

NAMESPACE = "Python/"
_given: dict[str, Any] = {}
"""Registered objects by their id."""


def describe_object(env: Any) -> tuple[str, dict[str, Any]]:
    """The id of an env that is given as an id, a class, a function that makes it, or an env, and its overrides."""
    if isinstance(env, str):
        return env, {}
    if isinstance(env, gym.Env):
        return _describe_made(env)
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError(
            "Cannot train on a vector of envs: Reverie makes its own.",
            "Pass the single env, and the number of copies as overrides={'env.num_envs': 8}.",
        )
    if isinstance(env, type) and not issubclass(env, gym.Env):
        raise ConfigError(
            f"The class {env.__qualname__} is not a Gymnasium environment.", "Inherit from gymnasium.Env."
        )
    if callable(env):
        return registry.path_of(env) or _register(env), {}
    raise ConfigError(
        f"Cannot train on {_shown(env)}.",
        "Pass 'CartPole-v1:ppo', an env class, a function that makes an env, or an env of gymnasium.make.",
    )


def _describe_made(env: gym.Env[Any, Any]) -> tuple[str, dict[str, Any]]:
    """The id and overrides that ``gym.make`` made an env from, because training and evaluation need copies of it."""
    spec, name = env.spec, type(env.unwrapped).__qualname__
    if spec is None:
        raise ConfigError(
            f"This {name} cannot be copied, but evaluation and env.num_envs need copies.",
            f"Pass the class, with its arguments as overrides: train({name}, overrides={{'env.kwargs': {{...}}}}). Or "
            f"pass a function that makes it: train(lambda: {name}(...)).",
        )
    unknown = next((wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None), None)
    if unknown is not None:
        raise ConfigError(
            f"This {name} cannot be copied: Gymnasium does not know the arguments of its wrapper {unknown}.",
            f"Pass a function that makes it: train(lambda: {unknown}(gymnasium.make('{spec.id}'))).",
        )
    arguments = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    if spec.additional_wrappers or spec.id not in gym.registry or not _is_plain(arguments):
        return _register(lambda **given: gym.make(spec, disable_env_checker=True, **given), name), {}
    limit = spec.max_episode_steps
    limited = {} if limit == gym.registry[spec.id].max_episode_steps else {"env.max_episode_steps": limit}
    return spec.id, {**({"env.kwargs": arguments} if arguments else {}), **limited}


def _register(make: Callable[..., Any], name: str = "") -> str:
    """Register a function with Gymnasium in this process and return its id. The same object keeps its id."""
    known = next((env_id for env_id, given in _given.items() if given is make), None)
    if known is not None:
        return known
    name = name or getattr(make, "__name__", type(make).__name__)
    stem = NAMESPACE + ("env" if name == "<lambda>" else name.rpartition(".")[2])
    number = sum(given == stem or given.startswith(f"{stem}-") for given in _given) + 1
    env_id = stem if number == 1 else f"{stem}-{number}"
    gym.register(env_id, lambda **arguments: make(**arguments))  # a lambda, so that no worker tries to import it
    _given[env_id] = make
    return env_id


def explain_missing(env_id: str) -> ConfigError | None:
    """Why an env that was passed as an object is not registered. None for other ids."""
    if not env_id.startswith(NAMESPACE):
        return None
    return ConfigError(
        f"The environment '{env_id}' was passed to train() as a Python object, which exists only in that program.",
        "Move its class, or the function that makes it, to the top level of a module and train on that.",
    )


def _is_plain(arguments: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(json.dumps(arguments)) == arguments)
    except (TypeError, ValueError):
        return False


def _shown(env: Any) -> str:
    text = repr(env)
    return f"{text if len(text) <= 60 else text[:57] + '...'}, of type {type(env).__name__}"
