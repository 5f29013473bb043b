"""Explains what is wrong with what an env returns or raises.

``reverie envs check`` collects these mistakes, training stops at the first one. The checks cost nothing while an env
works: :class:`~reverie.envs.episode.Episode` runs them only when a row could not be written.
"""

from __future__ import annotations

import math
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import TrainingError
from reverie.core.wording import count as counted

_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})
_OURS = Path(__file__).parent
_WRAPPER_FILES = (
    *(str(_OURS / f"{name}.py") for name in ("episode", "repairs", "check", "smoke", "trial")),
    str(_OURS / "wrappers"),
    str(Path(gym.__file__).parent / "wrappers"),
    str(Path(gym.__file__).parent / "core.py"),
)
"""Files of wrappers, whose stack frames precede those of the env."""


class EnvError(TrainingError):
    """An env raised or violated Gymnasium's API. ``topic`` names the mistake, ``cause`` the exception and its line."""

    def __init__(self, message: str, fix: str, topic: str, cause: str = "") -> None:
        super().__init__(message, fix)
        self.topic = topic
        self.cause = cause


def explain_exception(name: str, error: Exception) -> EnvError:
    """An error for an exception of ``reset`` or ``step``, with the env's own traceback and the line to correct."""
    if isinstance(error, EnvError):
        return error
    frames = _own_frames(error)
    where = _users_frame(frames)
    text = f"{name}() raised {type(error).__name__}: {error}"
    fix = f"Correct {name}() in {where.filename}, line {where.lineno}."
    if isinstance(error, TypeError) and name == "reset" and ("seed" in str(error) or "options" in str(error)):
        return EnvError(text, "Accept the keyword arguments seed and options in reset().", "raised")
    trace = "".join(traceback.format_list(frames)).rstrip()
    cause = f"{type(error).__name__} {where.filename}:{where.lineno}"
    return EnvError(f"{text}\n\n{trace}\n", fix, "raised", cause)


def line_of(error: BaseException) -> str:
    """File and line of the user's code that raised an exception. Empty if no user code was involved."""
    where = _users_frame(traceback.extract_tb(error.__traceback__))
    return f"{where.filename}, line {where.lineno}" if _is_users(where) else ""


def is_from_wrapper(error: Exception) -> bool:
    """Whether a wrapper raised, probably because of what the env returned."""
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(_WRAPPER_FILES)


def _own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """The stack frames without the wrappers before the env's code."""
    frames = list(traceback.extract_tb(error.__traceback__))
    while len(frames) > 1 and frames[0].filename.startswith(_WRAPPER_FILES):
        frames.pop(0)
    return frames


def _users_frame(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """The last frame outside of installed packages: if numpy raises, its caller made the mistake."""
    return next((frame for frame in reversed(frames) if _is_users(frame)), frames[-1])


def _is_users(frame: traceback.FrameSummary) -> bool:
    is_installed = frame.filename.startswith(_LIBRARIES) or frame.filename.startswith("<frozen")
    return not is_installed and not Path(frame.filename).is_relative_to(_OURS.parent)


def check_reset(result: Any) -> tuple[Any, dict[str, Any]]:
    """The observation and info that ``reset`` returned. Raises EnvError if it returned something else."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise EnvError(
        "reset() does not return two values, observation and info.",
        "Return (observation, info), where info is a dict. Gym before 0.26 returned only the observation.", "reset",
    )  # fmt: skip


def check_step(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """The five values that ``step`` returned. Raises EnvError if it returned something else."""
    count = len(result) if isinstance(result, tuple) else 1
    if count != 5:
        fix = "Return (observation, reward, terminated, truncated, info)."
        if count == 4:
            fix += " The old Gym API had one 'done': split it into terminated (task over) and truncated (time limit)."
        raise EnvError(f"step() returns {counted(count, 'value')} instead of 5.", fix, "step")
    if not isinstance(result[4], dict):
        message = f"step() returns a {type(result[4]).__name__} as info, its fifth value."
        raise EnvError(message, "Return a dict as info: (observation, reward, terminated, truncated, {}).", "step")
    return result  # type: ignore[no-any-return]


def check_reward(reward: Any, when: str = "") -> float:
    """The reward as a float. Raises EnvError if it is not a finite number."""
    moment = f" {when}" if when else ""
    if not _is_number(reward):
        raise EnvError(f"The reward{moment} is {reward!r}, not a number.", "Return float(reward).", "reward")
    number = float(reward)
    if not math.isfinite(number):
        fix = "Look for a division by zero in the reward."
        raise EnvError(f"The reward{moment} is {number}.", fix, "reward_finite")
    return number


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float, np.number, np.bool_)):
        return not isinstance(value, np.complexfloating)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return getattr(value, "shape", None) == () and kind in "biuf" and kind != ""  # an array without axes


def check_form(space: gym.Space[Any], observation: Any, when: str, name: str = "the observation") -> None:
    """Raise EnvError if an observation lacks a leaf of its space, or a leaf has the wrong shape."""
    for path, leaf, value in leaves_of(name, space, observation, when):
        expected = leaf.shape or ()
        try:
            shape = np.shape(value)
        except ValueError:  # lists of different lengths
            shape = None
        if shape != expected:
            shown = "no regular shape" if shape is None else f"shape {shape}"
            message = f"{path} has {shown} {when}; its space has {expected}."
            raise EnvError(capital(message), "Correct the space or the observation.", "shape")


def leaves_of(name: str, space: gym.Space[Any], value: Any, when: str) -> Iterator[tuple[str, gym.Space[Any], Any]]:
    """Name, space and value of each leaf. Raises EnvError if a value does not have the structure of its space."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(value, dict):
            message = f"{name} is a {type(value).__name__} {when}; its space is a Dict."
            raise EnvError(capital(message), "Return a dict with the keys of the space.", "structure")
        for key, sub in space.spaces.items():
            if key not in value:
                message = f"{name} lacks the key '{key}' {when}, which its space has."
                found = ", ".join(f"'{own}'" for own in value) or "no keys"
                fix = f"It has {found}: add the key, or remove it from the space."
                raise EnvError(capital(message), fix, "structure")
            yield from leaves_of(f"observation '{key}'", sub, value[key], when)
    elif isinstance(space, gym.spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            count = counted(len(value), "part") if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
            message = f"{name} is {count} {when}; its space is a Tuple of {len(space.spaces)}."
            raise EnvError(capital(message), "Return a tuple with one value for each space.", "structure")
        for index, sub in enumerate(space.spaces):
            yield from leaves_of(f"observation {index}", sub, value[index], when)
    else:
        yield name, space, value


def find_mistake(env: gym.Env[Any, Any], action: Any = None) -> EnvError | None:
    """Reset and step the env without its wrappers once more. Returns its mistake, or None if it makes none.

    Starts a new episode, so only for an env that is no longer needed.
    """
    bare = env.unwrapped
    try:
        observation, _ = check_reset(_call("reset", bare.reset, seed=0))
        check_form(bare.observation_space, observation, "at reset")
        if action is not None:
            observation, reward, *_ = check_step(_call("step", bare.step, action))
            check_form(bare.observation_space, observation, "at step 1")
            check_reward(reward, "at step 1")
    except EnvError as error:
        return error
    return None


def _call(name: str, method: Any, *arguments: Any, **settings: Any) -> Any:
    try:
        return method(*arguments, **settings)
    except Exception as error:
        raise explain_exception(name, error) from error


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
