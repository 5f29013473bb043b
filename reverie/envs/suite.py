"""The form in which a suite of envs is declared: a :class:`Suite`.

A suite is one file in ``reverie/envs/suites/`` with a declaration in it, and one line in the list of
``reverie/envs/suites/__init__.py``. Everything else (making envs, snapshots, ``reverie play``, ``reverie envs list``,
``reverie doctor``) asks the declaration. Only ``name`` and ``title`` must be given.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import gymnasium as gym

from reverie.core.types import Array, Row, State

Env = gym.Env[Any, Any]
NO_KEY = "none"


class Accelerator(Protocol):
    """Saves and loads the state of one simulator or wrapper, without that of the envs inside it."""

    def save(self, env: Any) -> Row: ...

    def load(self, env: Any, arrays: Row) -> None: ...


class VectorState(Protocol):
    """Saves and loads the state of a vector class that steps many envs at once (``env.vector: native``)."""

    def save(self, env: Any) -> State | None:
        """None before the first reset."""
        ...

    def load(self, env: Any, state: State | None) -> None: ...

    def pending(self, env: Any) -> Array:
        """Which envs reset on the next step, shape (N,)."""
        ...


@dataclass(frozen=True)
class KeyMap:
    """Which keys do which action when a person plays.

    A name is one key, or several joined by ``+`` that are held together. The action of ``none`` is taken while no key
    is held; a tuple of discrete actions is taken in turn. Without ``none`` the game waits for a key. Continuous actions
    of keys that are held together add up.
    """

    actions: Mapping[str, Any]
    fps: float | None = None

    @property
    def waits(self) -> bool:
        return NO_KEY not in self.actions

    def lines(self) -> list[str]:
        """The keys as text, one line each."""
        return [f"{keys:>12}  {action}" for keys, action in self.actions.items() if keys != NO_KEY]


@dataclass(frozen=True)
class Registration:
    """One env that a suite adds to Gymnasium's registry."""

    entry_point: str
    """``module:Class``. The module is imported when the first env is made."""
    max_episode_steps: int | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """All that Reverie knows about a suite. Functions must import the suite's packages inside, not at the top."""

    name: str
    """Short name, also that of the file: ``dm_control``."""
    title: str
    """Name for people: ``the DeepMind Control Suite``."""

    # Which envs belong to it.
    prefixes: tuple[str, ...] = ()
    """What its env ids start with."""
    modules: tuple[str, ...] = ()
    """Packages or modules that define its env classes. This also finds classes that users derive from them."""

    # How its envs get into Gymnasium's registry.
    envs: Mapping[str, Registration] = field(default_factory=dict)
    """Envs that are registered at once."""
    register: Callable[[str], None] | None = None
    """Registers the id of an env that was asked for and is not registered yet, or all ids of the suite."""

    # What it needs.
    extra: str = ""
    """Reverie's extra that installs it."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Import name and pip name of each package. Their versions decide whether snapshots must be probed again."""
    renderer: Literal["", "gl"] = ""
    """``gl`` if frames come from MuJoCo or another OpenGL renderer, for which a GL backend is chosen."""

    # What has to happen around its envs.
    prepare: Callable[[], None] | None = None
    """Called before an env of the suite is made."""
    ignored_warnings: tuple[str, ...] = ()
    """Messages (regular expressions) of DeprecationWarnings that importing its packages causes."""
    patch: Callable[[], None] | None = None
    """Corrects its packages once any env has imported one of them. Called often: must do nothing the second time."""
    repair: Callable[[Env], Env] | None = None
    """Returns the env, wrapped where its episodes would not follow from their seeds."""

    # How its episodes are saved.
    accelerator: Callable[[Any], Accelerator | None] | None = None
    """How to save the simulator's state of an env without wrappers, or None. A probe decides whether it is used."""
    vector_states: Mapping[str, VectorState] = field(default_factory=dict)
    """How to save its vector classes, by ``module:Class``."""

    # How a person plays it.
    keys: Mapping[str, KeyMap] = field(default_factory=dict)
    """Keys for envs with discrete actions, by the start of their ids."""
    continuous_keys: Mapping[str, KeyMap] = field(default_factory=dict)
    """Keys for envs with continuous actions, by the start of their ids."""

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in self.packages)

    @property
    def install_hint(self) -> str:
        """What to type to install what the suite needs."""
        if self.extra:
            return f'pip install "reverie[{self.extra}]"'
        return f"pip install {' '.join(self.packages.values())}" if self.packages else ""

    def defines(self, module: str) -> bool:
        """Whether a class of this module is one of the suite's."""
        return any(module == own or module.startswith(f"{own}.") for own in self.modules)
