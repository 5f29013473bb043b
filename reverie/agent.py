"""A trained policy as a Python object: ``agent.act(observation)``, ``predict``, ``evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reverie.core.counters import Counters
from reverie.core.errors import ReverieError
from reverie.core.rng import make_generator
from reverie.core.specs import ObservationSpec, flatten_observation
from reverie.core.types import Array, Carry, Mode, Row
from reverie.core.wording import count as counted
from reverie.policy import Policy


@dataclass(frozen=True)
class AgentState:
    """The state of an agent within its episodes: carry and previous actions, one entry per env."""

    carry: Carry
    previous_action: Array

    def __len__(self) -> int:
        return len(self.previous_action)


class Agent:
    """A policy that acts in one env or in several at once.

    Schedules, such as the exploration of DQN, keep the value they had when the policy was saved.
    """

    def __init__(self, policy: Policy, about: dict[str, Any], env_space: Any, to_env_action: Any) -> None:
        self.policy = policy
        self.about = about
        self.clock = Counters.saved_in(about).clock()
        self._space = env_space
        self._to_env_action = to_env_action
        self._rng = make_generator(0, "agent")
        self._state: AgentState | None = None

    @classmethod
    def load(cls, run: Path, which: str = "best") -> Agent:
        """The ``best`` or ``final`` policy of a run folder."""
        from reverie.envs.config import EnvConfig
        from reverie.envs.episode import make_action_map
        from reverie.envs.make import make_env
        from reverie.runs.policies import load_policy

        policy, about = load_policy(run, which)
        env = make_env(EnvConfig.model_validate(about["env"]))
        env.close()
        return cls(policy, about, env.observation_space, make_action_map(policy.specs.action, env.action_space))

    def make_env(self, render_mode: str | None = None) -> Any:
        """The Gymnasium env that the agent was trained in, with the run's wrappers."""
        from reverie.envs.config import EnvConfig
        from reverie.envs.make import make_env

        return make_env(EnvConfig.model_validate(self.about["env"]), render_mode)

    def reset(self) -> None:
        """Start a new episode. Call it at the start of every episode if you use ``act``."""
        self._state = None

    def act(self, observation: Any, deterministic: bool = True) -> Any:
        """The action for an observation, in the env's own action space. The agent keeps the state of the episode.

        A batch of observations (a leading axis over envs) gives a batch of actions: an array, or a list if actions have
        parts. The envs of a batch must start their episodes together. If they do not, use ``predict``.
        """
        row, is_batch = self._read(observation)
        count = _count(row)
        if self._state is not None and len(self._state) != count:
            if self._state.carry:
                raise ReverieError(
                    f"This agent has the state of {counted(len(self._state), 'env')}, but got {count} observations.",
                    "Call agent.reset() before you change the number of envs.",
                )
            self._state = None
        actions, self._state = self._act(row, self._state, np.zeros(count, bool), deterministic)
        return self._to_env(actions, is_batch)

    def predict(
        self, observation: Any, state: AgentState | None = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, AgentState]:
        """The action and the state for the next call, as in Stable-Baselines3. The agent itself keeps no state.

        ``state=None`` starts new episodes. ``episode_start``, a bool or one per env, marks later starts.
        """
        row, is_batch = self._read(observation)
        is_first = _read_starts(episode_start, _count(row))
        _check_state(state, _count(row))
        actions, state = self._act(row, state, is_first, deterministic)
        return self._to_env(actions, is_batch), state

    def evaluate(
        self, episodes: int = 10, seed: int | None = None, deterministic: bool | None = None
    ) -> dict[str, Any]:
        """Play whole episodes and summarise the scores: ``return_mean``, ``return_std``, all ``returns`` and more.

        By default the episodes are those of the run's evaluations, and actions are sampled if the run's evaluations
        sample them (``evaluate.sample``).
        """
        from reverie.runs.evaluate import evaluate_policy

        sample = None if deterministic is None else not deterministic
        return evaluate_policy(self.policy, self.about, episodes, seed, sample)

    def _act(
        self, row: Row, state: AgentState | None, is_first: Array, deterministic: bool
    ) -> tuple[Array, AgentState]:
        count = len(is_first)
        if state is None:
            state = AgentState(self.policy.initial_carry(count), self.policy.specs.action.zeros(count))
            is_first = np.ones(count, bool)
        now = row | {
            "reward": np.zeros(count, np.float32), "is_first": is_first, "terminated": np.zeros(count, bool),
            "truncated": np.zeros(count, bool), "previous_action": state.previous_action,
        }  # fmt: skip
        mode = Mode.EVALUATE if deterministic else Mode.COLLECT
        actions, carry, _ = self.policy.act(now, state.carry, self.clock, self._rng, mode)
        return actions, AgentState(carry, actions)

    def _to_env(self, actions: Array, is_batch: bool) -> Any:
        """Convert the policy's actions to those of the env."""
        converted = [self._to_env_action(action) for action in actions]
        if not is_batch:
            return converted[0]
        return converted if self.policy.specs.action.parts else np.array(converted)

    def _read(self, observation: Any) -> tuple[Row, bool]:
        """An observation, or a batch of them, as rows (N, ...). Also returns whether it is a batch."""
        specs = self.policy.specs.observations
        try:
            leaves = flatten_observation(self._space, observation)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise _misfit(specs, f"of type {type(observation).__name__}") from error
        _check_values(leaves, specs)
        if all(leaf.shape == specs[key].shape for key, leaf in leaves.items()):
            return {key: leaf[None] for key, leaf in leaves.items()}, False
        is_batch = all(leaf.shape[1:] == specs[key].shape and leaf.size for key, leaf in leaves.items())
        if not is_batch or len({leaf.shape[:1] for leaf in leaves.values()}) > 1:
            raise _misfit(specs, ", ".join(f"{key} {leaf.shape}" for key, leaf in leaves.items()))
        return leaves, True


def _count(row: Row) -> int:
    return len(next(iter(row.values())))


def _read_starts(episode_start: Any, count: int) -> Array:
    starts = np.asarray(False if episode_start is None else episode_start)
    if starts.dtype.kind not in "bui" or starts.shape not in ((), (count,)):
        raise ReverieError(
            f"episode_start must be a bool or {count} of them, not {episode_start!r}.",
            "Pass terminated | truncated from env.step, or leave it out.",
        )
    return np.broadcast_to(starts.astype(bool), count)


def _check_state(state: Any, count: int) -> None:
    if state is None:
        return
    if not isinstance(state, AgentState):
        raise ReverieError(
            f"The state must come from the last predict(), but its type is {type(state).__name__}.",
            "Write: action, state = agent.predict(observation, state)",
        )
    if len(state) != count:
        raise ReverieError(
            f"The state belongs to {counted(len(state), 'env')}, but there are {count} observations.",
            "Keep one state per vector of envs. state=None starts new episodes.",
        )


def _check_values(leaves: Row, specs: Mapping[str, ObservationSpec]) -> None:
    """Refuse NaN and values out of range: a network would turn them into actions that look valid."""
    for key, leaf in leaves.items():
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            raise ReverieError(
                f"The observation '{key}' contains NaN or infinity.",
                "Find the cause in the env: reverie envs check ENV plays it and names the step.",
            )
        classes = specs[key].classes
        if classes and leaf.size and (leaf.min() < 0 or leaf.max() >= max(classes)):
            raise ReverieError(
                f"The observation '{key}' is outside of its space: {leaf.tolist()}.",
                f"Its values must be from 0 to {max(classes) - 1}.",
            )


def _misfit(specs: Mapping[str, ObservationSpec], seen: str) -> ReverieError:
    shapes = ", ".join(f"{key} {spec.shape} {spec.dtype}" for key, spec in specs.items())
    return ReverieError(
        f"The observation does not fit this agent. It expects {shapes}, but got {seen}.",
        "Pass observations of agent.make_env(), or a batch of them with a leading axis.",
    )
