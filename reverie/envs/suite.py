"""Declares a suite of envs: :class:`Suite`.

A suite is one file in ``reverie/envs/suites/`` with a declaration, and one line in the list of
``reverie/envs/suites/__init__.py``. Everything else (making envs, snapshots, ``reverie play``, ``reverie envs list``,
``reverie doctor``) reads the declaration. Only ``name`` and ``title`` are required.
Tuned values for all its envs are in ``reverie/presets/suite/<name>.yaml``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np

from reverie.core.types import Array, Row, State
from reverie.envs.batch_task import FindTask
from reverie.envs.config import EnvConfig
from reverie.envs.vary import Variation
from reverie.machine.installation import install_command

Env = gym.Env[Any, Any]
NO_KEY = "none"


class Accelerator(Protocol):
    """Saves and loads the state of one simulator or wrapper, without the envs inside it."""

    def save(self, env: Any) -> Row: ...

    def load(self, env: Any, arrays: Row) -> None: ...


class VectorState(Protocol):
    """Saves and loads the state of a vector class that steps many envs at once (``env.vector: native``)."""

    def save(self, env: Any) -> State | None:
        """None before the first reset."""
        ...

    def load(self, env: Any, state: State | None) -> None: ...

    def pending(self, env: Any) -> Array:
        """Whether each env resets at the next step, shape (N,)."""
        ...


@dataclass(frozen=True)
class KeyMap:
    """The action of each key when a person plays.

    A name is one key, or several joined by ``+`` that are pressed together. ``none`` is the action while no key is
    pressed; a tuple of discrete actions is used in turn. Without ``none`` the game waits for a key. Continuous actions
    of keys that are pressed together are added.
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
class SuccessScore:
    """A score of a suite over many episodes, from the fraction of episodes in which each of its goals was reached."""

    name: str
    """Name of the metric: ``crafter_score`` is ``evaluate/crafter_score``."""
    prefix: str
    """The goals are the entries of ``info`` that begin like this. Reached: above 0 at the end of an episode."""
    goals: int
    """Number of goals. Without all of them in ``env.log_keys`` there is no score."""
    combine: Callable[[Array], float]
    """The score from the success rates (goals,), each from 0 to 1."""

    def of_rates(self, rates: Mapping[str, float]) -> dict[str, float]:
        """The score by its name, from the success rate of each ``log/<key>``. Empty if goals are missing."""
        own = [rate for key, rate in sorted(rates.items()) if key.startswith(f"log/{self.prefix}")]
        return {self.name: self.combine(np.array(own))} if len(own) == self.goals else {}


@dataclass(frozen=True)
class Registration:
    """One env that a suite adds to Gymnasium's registry."""

    entry_point: str
    """``module:Class``. The module is imported when the first env is made."""
    max_episode_steps: int | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Declaration of a suite. Its functions must import the suite's packages inside, not at the top of the file."""

    name: str
    """Short name, like that of the file: ``dm_control``."""
    title: str
    """Name for display: ``the DeepMind Control Suite``."""

    # Which envs belong to it.
    prefixes: tuple[str, ...] = ()
    """Prefixes of its env ids."""
    example: str = ""
    """One of its envs, which stands for the suite in tests, in ``reverie envs smoke`` and among the pictures. An env
    without a preset file of its own if the suite has a preset."""
    id_forms: tuple[str, ...] = ()
    """Forms of its ids, for tables: ``dmc/<domain>_<task>``. Empty: the example."""
    env_ids: Callable[[], Iterable[str]] | None = None
    """All its ids, for ``reverie envs list``. Called only if the suite is installed. None: after ``register`` they are
    all in Gymnasium's registry."""
    modules: tuple[str, ...] = ()
    """Packages or modules that define its env classes. Also used to recognise classes that users derive from them."""

    # Registration with Gymnasium.
    envs: Mapping[str, Registration] = field(default_factory=dict)
    """Envs that are always registered."""
    register: Callable[[str], None] | None = None
    """Called with an id that is not registered: registers it, or all ids of the suite."""

    # Requirements.
    extra: str = ""
    """Reverie's extra that installs it."""
    without_dependencies: tuple[str, ...] = ()
    """Packages that are installed after the extra, without what they depend on, because they ask for other versions."""
    setup: str = ""
    """Command that installs it where pip alone cannot, from a checkout of Reverie. Then ``extra`` is empty."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Import name and pip name of each package. When a version changes, snapshots are tested again."""
    licence: str = ""
    """What the licences of its packages demand, if they are not as permissive as Reverie's."""
    renderer: Literal["", "gl"] = ""
    """``gl`` if frames are rendered with OpenGL, as by MuJoCo. A GL backend is then chosen."""

    one_per_process: bool = False
    """Whether a process can hold only one of its envs at a time. Each env then gets a worker process."""

    # Setup and repairs.
    prepare: Callable[[], None] | None = None
    """Called before an env of the suite is made."""
    ignored_warnings: tuple[str, ...] = ()
    """Messages (regular expressions) of DeprecationWarnings raised by importing its packages."""
    patch: Callable[[], None] | None = None
    """Patches its packages once one of them is imported. Called repeatedly; must have no effect the second time."""
    repair: Callable[[Env], Env] | None = None
    """Returns the env, wrapped if otherwise its seeds would not decide its episodes."""

    # Observations.
    observations: Mapping[str, Callable[[EnvConfig], EnvConfig]] = field(default_factory=dict)
    """What ``env.obs`` may choose: a function for each form, which adds the wrappers or arguments that it needs."""

    # Variations.
    variations: Callable[[Any], Mapping[str, Variation]] | None = None
    """What ``env.vary`` can vary in an unwrapped env, by its name there: colour, mass, friction."""

    # Snapshots.
    snapshots: Literal["exact", "statistical"] = "exact"
    """Whether the example continues bit for bit from a checkpoint. A test compares this with the verdict."""
    accelerator: Callable[[Any], Accelerator | None] | None = None
    """Returns an accelerator for an unwrapped env, or None. A test decides whether it is used."""
    vector_states: Mapping[str, VectorState] = field(default_factory=dict)
    """How to save its vector classes, by ``module:Class``."""

    # Other backends.
    envpool: FindTask | None = None
    """The env of EnvPool that is the same task as one of the suite (``env.vector: envpool``)."""
    native: str = ""
    """Kind of the vector for ``env.vector: native``, if its vector classes need one of their own."""

    # Scores.
    success_score: SuccessScore | None = None
    """The suite's own score, for evaluations and reports."""

    # Human play.
    keys: Mapping[str, KeyMap] = field(default_factory=dict)
    """Keys for envs with discrete actions, by prefixes of their ids."""
    continuous_keys: Mapping[str, KeyMap] = field(default_factory=dict)
    """Keys for envs with continuous actions, by prefixes of their ids."""

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in self.packages)

    @property
    def install_hint(self) -> str:
        """Command that installs the packages of the suite here."""
        return self._install(install_command(self.extra))

    @property
    def index_command(self) -> str:
        """The same where Reverie comes from a package index, for the docs."""
        return self._install(f'pip install "reverie[{self.extra}]"')

    def _install(self, with_extra: str) -> str:
        if self.setup:
            return self.setup
        if self.extra:
            return with_extra + "".join(f" && pip install --no-deps {name}" for name in self.without_dependencies)
        return f"pip install {' '.join(self.packages.values())}" if self.packages else ""

    def owns(self, env_id: str) -> bool:
        """Whether an id has one of the suite's prefixes."""
        return bool(self.prefixes) and env_id.startswith(self.prefixes)

    def defines(self, module: str) -> bool:
        """Whether classes of this module belong to the suite."""
        return any(module == own or module.startswith(f"{own}.") for own in self.modules)
