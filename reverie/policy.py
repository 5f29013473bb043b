"""The policy: an algorithm with its normaliser and specs.

Collection, evaluation, ``reverie eval`` and the Python API all act through this class, so an evaluated or exported
policy acts as the trained one.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from reverie.core import registry
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Algorithm
from reverie.core.errors import ConfigError, RunError
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Array, Carry, Clock, Mode, Row, State
from reverie.data.normaliser import Normaliser, NormaliserConfig
from reverie.store.files import check_file, delete_any, digest_files, install_folder
from reverie.store.trees import read_tree, write_tree

if TYPE_CHECKING:
    from reverie.backend import Backend

BUNDLE_VERSION = 1


class Policy:
    """Acts on rows of a vector of envs."""

    def __init__(
        self, algorithm: Algorithm, normaliser: Normaliser, specs: Specs, backend: Backend | None = None
    ) -> None:
        self.algorithm = algorithm
        self.normaliser = normaliser
        self.specs = specs
        self.backend = backend

    def initial_carry(self, num_envs: int) -> Carry:
        return self.algorithm.initial_carry(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        """Actions, the next carry and extras for raw rows (with ``previous_action``).

        ``Mode.OBSERVE`` reaches only algorithms with the trait ``observes``. Others get COLLECT: the
        controller's action replaces theirs.
        """
        if mode is Mode.OBSERVE and not self.algorithm.traits.observes:
            mode = Mode.COLLECT
        return self.algorithm.act(self.normaliser.normalise_observation(now), carry, clock, rng, mode)

    def state(self) -> State:
        """What acting needs, also in actors of other processes."""
        return {"algorithm": self.algorithm.policy_state(), "normaliser": self.normaliser.state()}

    def load_state(self, state: State) -> None:
        self.algorithm.load_policy_state(state["algorithm"])
        self.normaliser.load_state(state["normaliser"])

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the bundle; ``about`` (env config, score, env steps) is kept with it. Written atomically."""
        tree = {
            "version": BUNDLE_VERSION,
            "algorithm_config": self.algorithm.config.model_dump(mode="json"),
            "normaliser_config": self.normaliser.config.model_dump(mode="json"),
            "specs": self.specs.to_json(),
            **self.state(),
            "about": about,
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.with_name(f".{folder.name}.new")
        delete_any(temporary)
        temporary.mkdir()
        write_tree(temporary / "policy", tree)
        write_tree(temporary / "digests", dict(digest_files(temporary)))
        install_folder(temporary, folder)

    @classmethod
    def load(cls, folder: Path, backend: Backend | None = None) -> tuple[Policy, dict[str, Any]]:
        """Read a bundle back, with its ``about``."""
        tree = read_bundle(folder)
        return cls.from_bundle(tree, backend), tree["about"]

    @classmethod
    def from_bundle(cls, tree: State, backend: Backend | None = None) -> Policy:
        """The policy of what :func:`read_bundle` has read. Without a backend, it has the default one."""
        kind = registry.load("algorithm", tree["algorithm_config"]["kind"])
        config = kind.Config.model_validate(tree["algorithm_config"])
        normaliser_config = NormaliserConfig.model_validate(tree["normaliser_config"])
        policy = cls._build(kind, config, normaliser_config, Specs.from_json(tree["specs"]), backend)
        policy.load_state(tree)
        return policy

    def copy(self) -> Policy:
        """A policy that acts the same. Acting may change an algorithm's state, so the copy is independent."""
        twin = self._build(
            type(self.algorithm), self.algorithm.config, self.normaliser.config, self.specs, self.backend
        )
        twin.load_state(self.state())
        return twin

    @classmethod
    def _build(
        cls, kind: Any, config: Any, normaliser_config: NormaliserConfig, specs: Specs, backend: Backend | None
    ) -> Policy:
        algorithm = make_algorithm(kind, config, specs, make_generator(0, "unused initial weights"), backend)
        return cls(algorithm, Normaliser(normaliser_config, specs, num_envs=1), specs, backend)


def make_algorithm(
    kind: Any, config: ComponentConfig, specs: Specs, rng: np.random.Generator, backend: Backend | None
) -> Algorithm:
    """Construct an algorithm. One whose constructor has no parameter ``backend`` does not get it."""
    names = _keywords(kind)
    base = next((base for base in getattr(kind, "__mro__", ())[1:] if "backend" in _keywords(base.__init__)), None)
    if base is not None and not names & {"backend", "*", "**"}:
        raise ConfigError(
            f"The constructor of {kind.__name__} takes no backend, so {base.__name__} would ignore the run's.",
            "Write def __init__(self, config, specs, rng, backend), and pass backend on to super().__init__.",
        )
    if backend is None or (base is None and "backend" not in names):
        return cast(Algorithm, kind(config, specs, rng))
    if names & {"backend", "**"}:
        return cast(Algorithm, kind(config, specs, rng, backend=backend))
    return cast(Algorithm, kind(config, specs, rng, backend))


def _keywords(function: Any) -> set[str]:
    """The names of a function's parameters; ``*`` and ``**`` stand for any further ones."""
    kinds: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {kinds.get(parameter.kind, name) for name, parameter in inspect.signature(function).parameters.items()}


def read_bundle(folder: Path) -> State:
    """The contents of a bundle. RunError if files were changed or are missing."""
    digests = read_tree(folder / "digests")
    for name in ("policy.json", "policy.safetensors"):
        if name in digests or (folder / name).exists():
            check_file(folder / name, digests.get(name, ""))
    tree = read_tree(folder / "policy")
    if tree.get("version") != BUNDLE_VERSION:
        raise RunError(
            f"{folder} holds a policy of format {tree.get('version')}, this is {BUNDLE_VERSION}.",
            "Use the Reverie version that wrote it; the run's manifest.json names it.",
        )
    return tree
