"""The mistakes of environments, in words: the one place that says what is wrong with what an env returns or raises.

``reverie envs check`` collects them; training stops at the first one. Looking for them costs nothing while an env
works: :class:`~reverie.envs.episode.Episode` asks only when a row could not be written.
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
    *(str(_OURS / f"{name}.py") for name in ("episode", "repairs", "check", "smoke")),
    str(_OURS / "wrappers"),
    str(Path(gym.__file__).parent / "wrappers"),
    str(Path(gym.__file__).parent / "core.py"),
)
"""Files whose frames stand between us and the code of an env."""


class EnvError(TrainingError):
    """An env broke Gymnasium's rules or raised. ``topic`` names the mistake, ``cause`` the exception and its line."""

    def __init__(self, message: str, fix: str, topic: str, cause: str = "") -> None:
        super().__init__(message, fix)
        self.topic = topic
        self.cause = cause


def explain_exception(name: str, error: Exception) -> EnvError:
    """What ``reset`` or ``step`` raised, with the env's own traceback and the line to look at."""
    if isinstance(error, EnvError):
        return error
    frames = _own_frames(error)
    where = _users_frame(frames)
    text = f"{name}() raised {type(error).__name__}: {error}"
    fix = f"Correct {name}() in {where.filename}, line {where.lineno}."
    if isinstance(error, TypeError) and name == "reset" and ("seed" in str(error) or "options" in str(error)):
        return EnvError(text, "Let reset accept the keyword arguments seed and options.", "raised")
    trace = "".join(traceback.format_list(frames)).rstrip()
    cause = f"{type(error).__name__} {where.filename}:{where.lineno}"
    return EnvError(f"{text}\n\n{trace}\n", fix, "raised", cause)


def line_of(error: BaseException) -> str:
    """The file and line of the user's code that an exception came from; empty if it passed none."""
    where = _users_frame(traceback.extract_tb(error.__traceback__))
    return f"{where.filename}, line {where.lineno}" if _is_users(where) else ""


def is_from_wrapper(error: Exception) -> bool:
    """Whether a wrapper raised, which choked on what the env gave it."""
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(_WRAPPER_FILES)


def _own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """The frames from the env's own code on."""
    frames = list(traceback.extract_tb(error.__traceback__))
    while len(frames) > 1 and frames[0].filename.startswith(_WRAPPER_FILES):
        frames.pop(0)
    return frames


def _users_frame(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """The last frame outside of installed packages: a mistake in a call to numpy is the caller's."""
    return next((frame for frame in reversed(frames) if _is_users(frame)), frames[-1])


def _is_users(frame: traceback.FrameSummary) -> bool:
    is_installed = frame.filename.startswith(_LIBRARIES) or frame.filename.startswith("<frozen")
    return not is_installed and not Path(frame.filename).is_relative_to(_OURS.parent)


def check_reset(result: Any) -> tuple[Any, dict[str, Any]]:
    """What ``reset`` returned, if it has the right form."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise EnvError(
        "reset() does not return two values, observation and info.",
        "Return (observation, info), where info is a dict; Gym before 0.26 did not.", "reset",
    )  # fmt: skip


def check_step(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """What ``step`` returned, if it has the right form."""
    count = len(result) if isinstance(result, tuple) else 1
    if count != 5:
        fix = "Return (observation, reward, terminated, truncated, info)."
        if count == 4:
            fix += " The old Gym API had one 'done': split it into the end of the task and a time limit."
        raise EnvError(f"step() returns {counted(count, 'value')} instead of 5.", fix, "step")
    if not isinstance(result[4], dict):
        message = f"step() returns a {type(result[4]).__name__} as info, its fifth value."
        raise EnvError(message, "Return a dict: (observation, reward, terminated, truncated, {}).", "step")
    return result  # type: ignore[no-any-return]


def check_reward(reward: Any, when: str = "") -> float:
    """The reward as a float; text, arrays and NaN are refused."""
    place = f" {when}" if when else ""
    if not _is_number(reward):
        raise EnvError(f"The reward{place} is {reward!r}, not a number.", "Return float(reward).", "reward")
    number = float(reward)
    if not math.isfinite(number):
        fix = "Look for a division by zero in the reward."
        raise EnvError(f"The reward{place} is {number}.", fix, "reward_finite")
    return number


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float, np.number, np.bool_)):
        return not isinstance(value, np.complexfloating)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return getattr(value, "shape", None) == () and kind in "biuf" and kind != ""  # an array of no axes


def check_form(space: gym.Space[Any], observation: Any, when: str, name: str = "the observation") -> None:
    """Refuse observations that lack a part of their space, or hold a part of another shape."""
    for path, leaf, value in leaves_of(name, space, observation, when):
        expected = leaf.shape or ()
        try:
            shape = np.shape(value)
        except ValueError:  # lists of different lengths
            shape = None
        if shape != expected:
            shown = "no regular shape" if shape is None else f"shape {shape}"
            message = f"{path} has {shown} {when}; its space says {expected}."
            raise EnvError(capital(message), "Correct the space or the observation.", "shape")


def leaves_of(name: str, space: gym.Space[Any], value: Any, when: str) -> Iterator[tuple[str, gym.Space[Any], Any]]:
    """Each leaf's name and space with its value; a value that lacks a part of its space is refused."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(value, dict):
            message = f"{name} is a {type(value).__name__} {when}; its space is a Dict."
            raise EnvError(capital(message), "Return a dict with the keys of the space.", "structure")
        for key, sub in space.spaces.items():
            if key not in value:
                message = f"{name} lacks the key '{key}' {when}, which its space has."
                found = ", ".join(f"'{own}'" for own in value) or "none"
                raise EnvError(capital(message), f"It has {found}: add the key, or take it out.", "structure")
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
    """The mistake of the env inside of all wrappers, found by trying it once more; None if it makes none.

    Only for an env that is not needed any more: it begins another episode.
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
