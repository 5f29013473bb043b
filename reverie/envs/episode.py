"""One env as a stream of rows: seeds, automatic resets, action scaling, and a snapshot that is a replay.

Each episode resets with a seed of its own, made from the run's seed, so an episode can be had again from its
number and the actions since its reset. That is the whole snapshot: deep copies and pickles of environments
fail or are silently wrong for MuJoCo, Atari and Box2D. Where a simulator's own state call was found exact, a
long episode starts its replay from the last such state instead of the reset. An episode that cannot be restored
(the env does not follow from its seed, was changed, or the episode is longer than ``longest_replay``) is cut by a
final row with the last observation, and a new one begins. Automatic resets live here too
(Gymnasium's NEXT_STEP: the call after a final row ignores the action and returns the first row of the next
episode), because a reset that waits somewhere else could not be restored.

Rows are written into arrays that the caller owns, at the place of this env: no row is built and copied twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import RunError
from reverie.core.rng import derive_seed
from reverie.core.specs import ActionSpec, Specs, flatten_observation
from reverie.core.types import Array, Row, State
from reverie.envs.errors import (
    EnvError,
    check_form,
    check_reset,
    check_reward,
    check_step,
    explain_exception,
    find_mistake,
    is_from_wrapper,
)

if TYPE_CHECKING:
    from reverie.envs.accelerators import ChainState


class Episode:
    """The stream of episodes of one env out of ``stride``; ``number`` is -1 before the first reset."""

    def __init__(
        self,
        env: gym.Env[Any, Any],
        specs: Specs,
        log_keys: Sequence[str],
        seed: int,
        stream: str,
        index: int,
        stride: int,
        accelerator: ChainState | None = None,
        longest_replay: float = math.inf,
    ) -> None:
        self.env = env
        self.number = -1
        self.pending = True  # a first call to step resets, too
        self.is_lost = False
        """Whether the episode cannot go on, because its saved state could not be restored: the next row cuts it."""
        self._last_seen: Row = {}
        self._is_logged = True
        self._action_spec = specs.action
        self._actions: list[Any] = []  # since the reset, or since the simulator's state in _base
        self._base: Row = {}
        self._accelerator = accelerator
        self._longest_replay = longest_replay if accelerator is None else min(accelerator.every, longest_replay)
        self._seed, self._stream, self._index, self._stride = seed, stream, index, stride
        self._to_env = make_action_map(specs.action, env.action_space)
        self._log_keys = [(f"log/{key}", key) for key in log_keys]
        self._shapes = {key: spec.shape for key, spec in specs.observations.items()}
        self._is_plain = env.observation_space.shape == self._shapes.get("obs")
        self._is_plain &= isinstance(env.observation_space, gym.spaces.Box)

    def reset(self, rows: Row, place: int) -> None:
        """Start the next episode and write its first row."""
        self.number += 1
        self._actions, self._base, self._is_logged, self.is_lost = [], {}, True, False
        seed = derive_seed(self._seed, self._stream, self._index + self.number * self._stride)
        result: Any = None
        try:
            result = self.env.reset(seed=seed)
            observation, info = check_reset(result)
            self._write(rows, place, observation, info)
        except Exception as error:
            raise self._explain("reset", result, error) from error
        self.pending = False
        rows["reward"][place] = 0
        rows["is_first"][place] = True
        rows["terminated"][place] = rows["truncated"][place] = False

    def step(self, action: Any, rows: Row, place: int) -> None:
        """Do the agent's action, or reset if the last row was final; write the row that arrives."""
        if self.pending:
            (self._cut if self.is_lost else self.reset)(rows, place)
            return
        if isinstance(action, np.ndarray):
            action = action.copy()  # the caller may write the next action into the same memory
        if len(self._actions) >= self._longest_replay:
            self._shorten_log()
        self._actions.append(action)
        result: Any = None
        try:
            result = self.env.step(self._to_env(action))
            observation, reward, terminated, truncated, info = result
            self._write(rows, place, observation, info)
            rows["reward"][place] = reward if _is_plain_number(reward) else check_reward(reward, self._moment())
            self.pending = bool(terminated or truncated)
            rows["terminated"][place] = terminated
            rows["truncated"][place] = truncated
        except Exception as error:
            raise self._explain("step", result, error, action) from error
        rows["is_first"][place] = False

    def _explain(self, name: str, result: Any, error: Exception, action: Any = None) -> EnvError:
        """Say what the env did wrong: it raised, or what it returned could not be written."""
        if isinstance(error, EnvError):
            return error
        if result is None:
            found = None
            if is_from_wrapper(error):  # a wrapper choked on what the env inside returned
                found = find_mistake(self.env, None if action is None else self._to_env(action))
            return found or explain_exception(name, error)
        try:
            observation = (check_reset(result) if name == "reset" else check_step(result))[0]
            check_form(self.env.observation_space, observation, self._moment())
        except EnvError as found:
            return found
        text = f"What {name}() returned {self._moment()} cannot be used: {type(error).__name__}: {error}"
        return EnvError(text, "`reverie envs check <env>` looks for the usual mistakes.", "unusable")

    def _moment(self) -> str:
        if self._base:
            return "late in an episode"
        return f"at step {len(self._actions)}" if self._actions else "at reset"

    def _shorten_log(self) -> None:
        """Replay from here on, or not at all where the simulator's state cannot be saved.

        Only before a step, so that a replay always ends with the row that arrived last.
        """
        if self._accelerator is not None and self._accelerator.every < math.inf:
            self._base = self._accelerator.save()
        else:
            self._is_logged = False
        self._actions = []

    def lose(self, rows: Row, place: int) -> None:
        """Give up the episode: the next row repeats the observation at ``place`` and cuts it, then a new one begins."""
        self._last_seen = {key: rows[key][place].copy() for key in self._shapes}
        self._actions, self._base = [], {}
        self.is_lost = self.pending = True

    def _cut(self, rows: Row, place: int) -> None:
        for key, values in self._last_seen.items():
            rows[key][place] = values
        for key in (*(row_key for row_key, _ in self._log_keys), "reward", "is_first", "terminated"):
            rows[key][place] = 0
        rows["truncated"][place] = True
        self.is_lost = False

    def _write(self, rows: Row, place: int, observation: Any, info: dict[str, Any]) -> None:
        if self._is_plain:
            if getattr(observation, "shape", None) != self._shapes["obs"]:  # numpy would stretch it
                check_form(self.env.observation_space, observation, self._moment())
            rows["obs"][place] = observation
        else:
            for key, value in flatten_observation(self.env.observation_space, observation).items():
                if value.shape != self._shapes[key]:
                    check_form(self.env.observation_space, observation, self._moment())
                rows[key][place] = value
        for row_key, key in self._log_keys:
            rows[row_key][place] = info.get(key, 0)

    def render(self) -> Any:
        return self.env.render()

    def state(self) -> State:
        """Number, flag and the actions since reset; none when a reset is due, which makes them void.

        In a long episode with an accelerator: the simulator's state as ``snapshot`` and the actions since. An episode
        that is too long to be replayed is saved as ``lost``: it will be cut.
        """
        spec = self._action_spec
        is_lost = self.is_lost or not (self._is_logged or self.pending)
        done = [] if self.pending or is_lost else self._actions
        actions = np.array(done, dtype=spec.dtype).reshape(len(done), *spec.shape)
        state = {"episode": self.number, "pending": self.pending and not is_lost, "actions": actions}
        if is_lost:
            return {**state, "lost": True}
        return {**state, "snapshot": self._base} if self._base and not self.pending else state

    def load_state(self, state: State, rows: Row, place: int) -> None:
        """Restore by replay; unless a reset is due, ``place`` then holds the row that arrived last.

        An episode that does not repeat (its seed does not decide it, or the env was changed) is lost.
        """
        self.number, self.pending = int(state["episode"]), bool(state["pending"])
        self._actions, self._base, self._is_logged, self.is_lost = [], {}, True, False
        if not self.pending and (state.get("lost") or not self._replay(state, rows, place)):
            self.lose(rows, place)

    def _replay(self, state: State, rows: Row, place: int) -> bool:
        """Whether the saved episode could be played up to the moment of saving."""
        self.number -= 1
        try:
            self.reset(rows, place)
            if "snapshot" in state:
                self._load_base(state["snapshot"])
            for action in as_action_list(self._action_spec, state["actions"]):
                if self.pending:
                    return False
                self.step(action, rows, place)
        except EnvError:  # actions that were fine in the saved episode need not be in this one
            return False
        return not self.pending

    def _load_base(self, arrays: Row) -> None:
        if self._accelerator is None:
            raise RunError(
                f"The saved episode {self.number} of env {self._index} holds a simulator's state that this env lacks.",
                "Use the env and the wrappers that the run was saved with.",
            )
        self._accelerator.load(arrays)
        self._base = arrays


def _is_plain_number(reward: Any) -> bool:
    """The quick answer for almost all rewards; others are looked at closely."""
    return isinstance(reward, (float, int, np.floating)) and math.isfinite(reward)


def as_action_list(spec: ActionSpec, actions: Array) -> list[Any]:
    """One action per entry, as Python ints where that is what an env takes: faster than numpy scalars."""
    return np.asarray(actions).tolist() if spec.kind == "discrete" else list(np.asarray(actions, spec.dtype))


def make_action_map(spec: ActionSpec, space: gym.Space[Any]) -> Callable[[Any], Any]:
    """How an action of the agent becomes one of the env's space."""
    if spec.parts:
        return _map_parts(spec, space)
    if isinstance(space, gym.spaces.Discrete):
        start = int(space.start)
        return lambda action: int(action) + start
    if isinstance(space, gym.spaces.MultiDiscrete):
        offset = space.start
        return lambda action: (action + offset).astype(space.dtype)
    if isinstance(space, gym.spaces.MultiBinary):
        return lambda action: action.astype(np.int8)
    if spec.is_scaled:
        assert isinstance(space, gym.spaces.Box)
        return _scale_to(space)
    assert isinstance(space, gym.spaces.Box)
    return _clip_to(space)


def _map_parts(spec: ActionSpec, space: gym.Space[Any]) -> Callable[[Array], Any]:
    """A vector of parts side by side onto a Dict or Tuple space, whose leaves come in the order of the parts."""
    ends = np.cumsum([part.width for part in spec.parts]).tolist()
    places = iter([(part, slice(end - part.width, end)) for part, end in zip(spec.parts, ends, strict=True)])

    def make(space: gym.Space[Any]) -> Callable[[Array], Any]:
        if isinstance(space, gym.spaces.Dict):
            inner = {key: make(sub) for key, sub in space.spaces.items()}
            return lambda action: {key: to_env(action) for key, to_env in inner.items()}
        if isinstance(space, gym.spaces.Tuple):
            ordered = [make(sub) for sub in space.spaces]
            return lambda action: tuple(to_env(action) for to_env in ordered)
        part, place = next(places)
        to_leaf = make_action_map(part, space)
        return lambda action: to_leaf(action[place].reshape(part.shape).astype(part.dtype))

    return make(space)


def _scale_to(space: gym.spaces.Box) -> Callable[[Array], Array]:
    """[-1, 1] onto the bounds, in float64 so that the ends are met exactly; what lies beyond is clipped."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    middle, reach = (low + high) / 2, (high - low) / 2
    is_whole = np.issubdtype(space.dtype, np.integer)

    def scale(action: Array) -> Array:
        scaled = np.minimum(np.maximum(middle + reach * action, low), high)
        return (np.rint(scaled) if is_whole else scaled).astype(space.dtype)

    return scale


def _clip_to(space: gym.spaces.Box) -> Callable[[Array], Array]:
    """Actions as they are, clipped where the space has a bound; sides without one let everything through."""
    if not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return lambda action: action.astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return lambda action: np.minimum(np.maximum(action, low), high).astype(space.dtype)
