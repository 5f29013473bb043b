"""The policy bundle: an algorithm with the normaliser and the specs that belong to it.

Collection, evaluation, ``reverie eval`` and the Python API all act through this one class, so that what is
evaluated or exported can never disagree with what was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reverie.core import registry
from reverie.core.contracts import Algorithm
from reverie.core.errors import ReverieError, RunError
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, Specs, flatten_observation
from reverie.core.types import Array, Carry, Clock, Mode, Row, State
from reverie.data.normaliser import Normaliser, NormaliserConfig
from reverie.runs.storage import check_file, delete_any, digest_files, install_folder, read_tree, write_tree

BUNDLE_VERSION = 1


class Policy:
    """Acts on rows of a vector of envs."""

    def __init__(self, algorithm: Algorithm, normaliser: Normaliser, specs: Specs) -> None:
        self.algorithm = algorithm
        self.normaliser = normaliser
        self.specs = specs

    def initial_carry(self, num_envs: int) -> Carry:
        return self.algorithm.initial_carry(num_envs)

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        """The answer to raw rows (with ``previous_action``): actions, the next carry, extras."""
        return self.algorithm.act(self.normaliser.normalise_observation(now), carry, clock, rng, mode)

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the bundle; ``about`` (env config, score, env steps) is kept with it. It is whole or not there."""
        tree = {
            "version": BUNDLE_VERSION,
            "algorithm_config": self.algorithm.config.model_dump(mode="json"),
            "normaliser_config": self.normaliser.config.model_dump(mode="json"),
            "specs": self.specs.to_json(),
            "algorithm": self.algorithm.policy_state(),
            "normaliser": self.normaliser.state(),
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
    def load(cls, folder: Path) -> tuple[Policy, dict[str, Any]]:
        """Read a bundle back, with what it says about itself."""
        tree = read_bundle(folder)
        kind = registry.load("algorithm", tree["algorithm_config"]["kind"])
        config = kind.Config.model_validate(tree["algorithm_config"])
        normaliser_config = NormaliserConfig.model_validate(tree["normaliser_config"])
        policy = cls._build(kind, config, normaliser_config, Specs.from_json(tree["specs"]))
        policy.algorithm.load_policy_state(tree["algorithm"])
        policy.normaliser.load_state(tree["normaliser"])
        return policy, tree["about"]

    def copy(self) -> Policy:
        """A policy that acts the same and leaves this one alone: acting may change an algorithm's state."""
        twin = self._build(type(self.algorithm), self.algorithm.config, self.normaliser.config, self.specs)
        twin.algorithm.load_policy_state(self.algorithm.policy_state())
        twin.normaliser.load_state(self.normaliser.state())
        return twin

    @classmethod
    def _build(cls, kind: Any, config: Any, normaliser_config: NormaliserConfig, specs: Specs) -> Policy:
        algorithm = kind(config, specs, make_generator(0, "unused initial weights"))
        return cls(algorithm, Normaliser(normaliser_config, specs, num_envs=1), specs)


def read_bundle(folder: Path) -> State:
    """The contents of a bundle; RunError if it is not what was saved."""
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


class Agent:
    """A policy that plays one env: ``agent.act(observation)`` gives an action for ``env.step``."""

    def __init__(self, policy: Policy, about: dict[str, Any], env_space: Any, to_env_action: Any) -> None:
        self.policy = policy
        self.about = about
        self._space = env_space
        self._to_env_action = to_env_action
        self._rng = make_generator(0, "agent")
        self.reset()

    def make_env(self, render_mode: str | None = None) -> Any:
        """The Gymnasium env that the agent was trained on, with the run's wrappers: its observations fit."""
        from reverie.envs.config import EnvConfig
        from reverie.envs.make import make_env

        return make_env(EnvConfig.model_validate(self.about["env"]), render_mode)

    def reset(self) -> None:
        """Call at the start of every episode; forgets what happened before."""
        self._begin(1)

    def act(self, observation: Any, deterministic: bool = True) -> Any:
        """The action for this observation, in the env's own action space.

        Observations with a leading axis are those of several envs, and so are the actions then: an array, or a list
        where actions have parts. Such envs start their episodes together.
        """
        row, is_batch = self._read(observation)
        count = len(next(iter(row.values())))
        if count != len(self._previous):
            self._check_may_begin(count)
            self._begin(count)
        row |= {
            "reward": np.zeros(count, np.float32), "is_first": np.full(count, self._is_first),
            "terminated": np.zeros(count, bool), "truncated": np.zeros(count, bool), "previous_action": self._previous,
        }  # fmt: skip
        mode = Mode.EVALUATE if deterministic else Mode.COLLECT
        action, self._carry, _ = self.policy.act(row, self._carry, Clock(), self._rng, mode)
        self._previous, self._is_first = action, False
        actions = [self._to_env_action(one) for one in action]
        if not is_batch:
            return actions[0]
        return actions if self.policy.specs.action.parts else np.array(actions)

    def _begin(self, count: int) -> None:
        self._carry = self.policy.initial_carry(count)
        self._previous = self.policy.specs.action.zeros(count)
        self._is_first = True

    def _check_may_begin(self, count: int) -> None:
        """What is remembered of some envs is of no use for another number of them."""
        if self._carry and not self._is_first:
            raise ReverieError(
                f"This agent remembers what it saw, of {len(self._previous)} envs, and now sees {count}.",
                "Call reset() first.",
            )

    def _read(self, observation: Any) -> tuple[Row, bool]:
        """An observation, or a batch of them, as rows (N, ...), and which of the two it is."""
        specs = self.policy.specs.observations
        try:
            leaves = flatten_observation(self._space, observation)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise _misfit(specs, f"of type {type(observation).__name__}") from error
        if all(leaf.shape == specs[key].shape for key, leaf in leaves.items()):
            return {key: leaf[None] for key, leaf in leaves.items()}, False
        is_batch = all(leaf.shape[1:] == specs[key].shape and leaf.size for key, leaf in leaves.items())
        if not is_batch or len({leaf.shape[:1] for leaf in leaves.values()}) > 1:
            raise _misfit(specs, ", ".join(f"{key} {leaf.shape}" for key, leaf in leaves.items()))
        return leaves, True


def _misfit(specs: Mapping[str, ObservationSpec], seen: str) -> ReverieError:
    shapes = ", ".join(f"{key} {spec.shape} {spec.dtype}" for key, spec in specs.items())
    return ReverieError(
        f"The observation does not fit this agent. It expects {shapes}; what it got is {seen}.",
        "Give it what agent.make_env() shows, or a batch of that with a leading axis.",
    )
