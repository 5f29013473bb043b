"""Envs that a Python program hands over as objects, turned into an id that configs, workers and run folders can hold.

What another process can import becomes a dotted path, what ``gym.make`` made its id and arguments. Anything else (a
lambda, a class inside of a function) is registered with Gymnasium under ``Python/<name>``: it can be trained on in this
process, but not be made by workers or by a later program.
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
"""Objects by the id under which they are registered."""


def describe_object(env: Any) -> tuple[str, dict[str, Any]]:
    """The id of an env that is given as an id, a class, a function that makes it, or an env; and its settings."""
    if isinstance(env, str):
        return env, {}
    if isinstance(env, gym.Env):
        return _describe_made(env)
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError(
            "A vector of envs cannot be trained on: Reverie makes its own.",
            "Give the single env, and how many of it as overrides={'env.num_envs': 8}.",
        )
    if isinstance(env, type) and not issubclass(env, gym.Env):
        raise ConfigError(
            f"The class {env.__qualname__} is not a Gymnasium environment.", "Let it inherit from gymnasium.Env."
        )
    if callable(env):
        return registry.path_of(env) or _register(env), {}
    raise ConfigError(
        f"Cannot train on {_shown(env)}.",
        "Give 'CartPole-v1:ppo', the class of an env, a function that makes one, or an env of gymnasium.make.",
    )


def _describe_made(env: gym.Env[Any, Any]) -> tuple[str, dict[str, Any]]:
    """An env of ``gym.make`` by what it was made from: training needs copies of it, and evaluation others."""
    spec, name = env.spec, type(env.unwrapped).__qualname__
    if spec is None:
        raise ConfigError(
            f"This {name} cannot be copied, and training needs several: for evaluation, and for env.num_envs.",
            f"Give the class, with its arguments as settings: train({name}, overrides={{'env.kwargs': {{...}}}}); or a "
            f"function that makes it: train(lambda: {name}(...)).",
        )
    unknown = next((wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None), None)
    if unknown is not None:
        raise ConfigError(
            f"This {name} is wrapped in {unknown}, which Gymnasium cannot make again, and training needs several.",
            f"Give a function that makes it: train(lambda: {unknown}(gymnasium.make('{spec.id}'))).",
        )
    arguments = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    if spec.additional_wrappers or spec.id not in gym.registry or not _is_plain(arguments):
        return _register(lambda **given: gym.make(spec, disable_env_checker=True, **given), name), {}
    limit = spec.max_episode_steps
    limited = {} if limit == gym.registry[spec.id].max_episode_steps else {"env.max_episode_steps": limit}
    return spec.id, {**({"env.kwargs": arguments} if arguments else {}), **limited}


def _register(make: Callable[..., Any], name: str = "") -> str:
    """The id under which Gymnasium makes it, in this process; the same object keeps its id."""
    known = next((env_id for env_id, given in _given.items() if given is make), None)
    if known is not None:
        return known
    name = name or getattr(make, "__name__", type(make).__name__)
    stem = NAMESPACE + ("env" if name == "<lambda>" else name.rpartition(".")[2])
    number = sum(given == stem or given.startswith(f"{stem}-") for given in _given) + 1
    env_id = stem if number == 1 else f"{stem}-{number}"
    gym.register(env_id, lambda **arguments: make(**arguments))  # a function of here, which no worker tries to import
    _given[env_id] = make
    return env_id


def explain_missing(env_id: str) -> ConfigError | None:
    """Why an env that was given as an object is not here; None if the id is another one's."""
    if not env_id.startswith(NAMESPACE):
        return None
    return ConfigError(
        f"The environment '{env_id}' was given to train() as a Python object, which only that program has.",
        "Put its class, or the function that makes it, at the top of a module, and train on that.",
    )


def _is_plain(arguments: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(json.dumps(arguments)) == arguments)
    except (TypeError, ValueError):
        return False


def _shown(env: Any) -> str:
    text = repr(env)
    return f"{text if len(text) <= 60 else text[:57] + '...'}, of type {type(env).__name__}"
