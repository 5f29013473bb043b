"""One env as a stream of rows: seeds, automatic resets, action scaling, and snapshots by replay.

Each episode resets with its own seed, derived from the run's seed, so its number and its actions are enough to
reproduce it. They are the snapshot: deep copies and pickles of envs fail or are silently wrong for MuJoCo, Atari and
Box2D. If saving the simulator's state was found to be exact, a long episode is replayed from the last saved state. An
episode that cannot be restored (its seed does not decide it, the env has changed, or it is longer than
``longest_replay``) is truncated: a final row repeats the last observation, and a new episode starts. Automatic resets
happen here too, because a reset that is due must be part of the snapshot. As in Gymnasium's NEXT_STEP mode, the call
after a final row ignores the action and returns the first row of the next episode.

Rows are written directly into the caller's arrays, at the index of this env.
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
    """The episodes of one env of a vector of ``stride`` envs. ``number`` is -1 before the first reset."""

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
        self.pending = True
        """Whether the next step resets."""
        self.is_lost = False
        """Whether the episode could not be restored: the next row truncates it."""
        self._last_observation: Row = {}
        self._is_replayable = True
        self._action_spec = specs.action
        self._actions: list[Any] = []  # since the reset, or since the simulator state in _base
        self._base: Row = {}
        self._accelerator = accelerator
        self._spans_episodes = accelerator is not None and accelerator.spans_episodes
        self._longest_replay = longest_replay if accelerator is None else min(accelerator.every, longest_replay)
        self._seed, self._stream, self._index, self._stride = seed, stream, index, stride
        self._to_env = make_action_map(specs.action, env.action_space)
        self._log_keys = [(f"log/{key}", key) for key in log_keys]
        self._shapes = {key: spec.shape for key, spec in specs.observations.items()}
        self._is_plain = env.observation_space.shape == self._shapes.get("obs")
        self._is_plain &= isinstance(env.observation_space, gym.spaces.Box)

    def reset(self, rows: Row, index: int) -> None:
        """Start the next episode and write its first row."""
        self.number += 1
        self._actions, self._base, self._is_replayable, self.is_lost = [], {}, True, False
        seed = derive_seed(self._seed, self._stream, self._index + self.number * self._stride)
        result: Any = None
        try:
            result = self.env.reset(seed=seed)
            observation, info = check_reset(result)
            self._write(rows, index, observation, info)
        except Exception as error:
            raise self._explain("reset", result, error) from error
        self.pending = False
        if self._accelerator is not None and self._spans_episodes:
            self._base = self._accelerator.save()
        rows["reward"][index] = 0
        rows["is_first"][index] = True
        rows["terminated"][index] = rows["truncated"][index] = False

    def step(self, action: Any, rows: Row, index: int) -> None:
        """Step the env, or reset it if the last row was final, and write the arriving row."""
        if self.pending:
            (self._truncate if self.is_lost else self.reset)(rows, index)
            return
        if isinstance(action, np.ndarray):
            action = action.copy()  # the caller may reuse the array
        if len(self._actions) >= self._longest_replay:
            self._restart_log()
        self._actions.append(action)
        result: Any = None
        try:
            result = self.env.step(self._to_env(action))
            observation, reward, terminated, truncated, info = result
            self._write(rows, index, observation, info)
            rows["reward"][index] = reward if _is_plain_number(reward) else check_reward(reward, self._moment())
            self.pending = bool(terminated or truncated)
            rows["terminated"][index] = terminated
            rows["truncated"][index] = truncated
        except Exception as error:
            raise self._explain("step", result, error, action) from error
        rows["is_first"][index] = False

    def _explain(self, name: str, result: Any, error: Exception, action: Any = None) -> EnvError:
        """The mistake of the env: it raised, or what it returned could not be written."""
        if isinstance(error, EnvError):
            return error
        if result is None:
            found = None
            if is_from_wrapper(error):  # perhaps because of what the env inside returned
                found = find_mistake(self.env, None if action is None else self._to_env(action))
            return found or explain_exception(name, error)
        try:
            observation = (check_reset(result) if name == "reset" else check_step(result))[0]
            check_form(self.env.observation_space, observation, self._moment())
        except EnvError as found:
            return found
        text = f"The result of {name}() {self._moment()} cannot be used: {type(error).__name__}: {error}"
        return EnvError(text, "`reverie envs check <env>` looks for common mistakes.", "unusable")

    def _moment(self) -> str:
        if self._base:
            return "late in an episode"
        return f"at step {len(self._actions)}" if self._actions else "at reset"

    def _restart_log(self) -> None:
        """Save the simulator's state and log actions from here on. If it cannot be saved, stop logging.

        Only called before a step, so that a replay always ends with the newest row.
        """
        if self._accelerator is not None and self._accelerator.every < math.inf:
            self._base = self._accelerator.save()
        else:
            self._is_replayable = False
        self._actions = []

    def abandon(self, rows: Row, index: int) -> None:
        """Give up the episode: the next row truncates it with the observation in ``rows``, then a new one starts."""
        self._last_observation = {key: rows[key][index].copy() for key in self._shapes}
        self._actions, self._base = [], {}
        self.is_lost = self.pending = True

    def _truncate(self, rows: Row, index: int) -> None:
        for key, values in self._last_observation.items():
            rows[key][index] = values
        for key in (*(row_key for row_key, _ in self._log_keys), "reward", "is_first", "terminated"):
            rows[key][index] = 0
        rows["truncated"][index] = True
        self.is_lost = False

    def _write(self, rows: Row, index: int, observation: Any, info: dict[str, Any]) -> None:
        if self._is_plain:
            if getattr(observation, "shape", None) != self._shapes["obs"]:  # numpy would broadcast it
                check_form(self.env.observation_space, observation, self._moment())
            rows["obs"][index] = observation
        else:
            for key, value in flatten_observation(self.env.observation_space, observation).items():
                if value.shape != self._shapes[key]:
                    check_form(self.env.observation_space, observation, self._moment())
                rows[key][index] = value
        for row_key, key in self._log_keys:
            rows[row_key][index] = info.get(key, 0)

    def render(self) -> Any:
        return self.env.render()

    def state(self) -> State:
        """The episode's number, whether a reset is due, and the actions since the reset.

        In a long episode with an accelerator: the simulator's state as ``snapshot`` and the actions since. So too if
        the simulator goes on across resets. An episode that is too long to be replayed is saved as ``lost``: a resume
        truncates it.
        """
        spec = self._action_spec
        is_lost = self.is_lost or not (self._is_replayable or self.pending)
        logged = [] if self.pending or is_lost else self._actions
        actions = np.array(logged, dtype=spec.dtype).reshape(len(logged), *spec.shape)
        state = {"episode": self.number, "pending": self.pending and not is_lost, "actions": actions}
        if is_lost:
            return {**state, "lost": True}
        if self.pending and self._accelerator is not None and self._spans_episodes:
            return {**state, "snapshot": self._accelerator.save()}
        return {**state, "snapshot": self._base} if self._base and not self.pending else state

    def load_state(self, state: State, rows: Row, index: int) -> None:
        """Restore by replay. Unless a reset is due, writes the newest row of the saved episode into ``rows``.

        An episode whose replay ends early or fails is lost.
        """
        self.number, self.pending = int(state["episode"]), bool(state["pending"])
        self._actions, self._base, self._is_replayable, self.is_lost = [], {}, True, False
        if self.pending and "snapshot" in state:
            self._replay(state, rows, index)
            self.pending = True
        elif not self.pending and (state.get("lost") or not self._replay(state, rows, index)):
            self.abandon(rows, index)

    def _replay(self, state: State, rows: Row, index: int) -> bool:
        """Replay a saved episode. Returns whether it reached the saved step."""
        self.number -= 1
        try:
            self.reset(rows, index)
            if "snapshot" in state:
                self._load_base(state["snapshot"])
            for action in as_action_list(self._action_spec, state["actions"]):
                if self.pending:
                    return False
                self.step(action, rows, index)
        except EnvError:  # in a different episode, the saved actions may be invalid
            return False
        return not self.pending

    def _load_base(self, arrays: Row) -> None:
        if self._accelerator is None:
            raise RunError(
                f"The checkpoint has a simulator state for episode {self.number} of env {self._index}, but this env "
                "cannot load one.",
                "Use the env and the wrappers that the run was saved with.",
            )
        self._accelerator.load(arrays)
        self._base = arrays


def _is_plain_number(reward: Any) -> bool:
    """Fast path for nearly all rewards; ``check_reward`` examines the others."""
    return isinstance(reward, (float, int, np.floating)) and math.isfinite(reward)


def as_action_list(spec: ActionSpec, actions: Array) -> list[Any]:
    """A list with one action per env. Discrete actions become Python ints, which are faster than numpy scalars."""
    return np.asarray(actions).tolist() if spec.kind == "discrete" else list(np.asarray(actions, spec.dtype))


def make_action_map(spec: ActionSpec, space: gym.Space[Any]) -> Callable[[Any], Any]:
    """A function from actions of the agent to actions of the env."""
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
    """From a vector of concatenated parts to a Dict or Tuple space, whose leaves have the order of the parts."""
    ends = np.cumsum([part.width for part in spec.parts]).tolist()
    slices = iter([(part, slice(end - part.width, end)) for part, end in zip(spec.parts, ends, strict=True)])

    def make(space: gym.Space[Any]) -> Callable[[Array], Any]:
        if isinstance(space, gym.spaces.Dict):
            inner = {key: make(sub) for key, sub in space.spaces.items()}
            return lambda action: {key: to_env(action) for key, to_env in inner.items()}
        if isinstance(space, gym.spaces.Tuple):
            ordered = [make(sub) for sub in space.spaces]
            return lambda action: tuple(to_env(action) for to_env in ordered)
        part, own = next(slices)
        to_leaf = make_action_map(part, space)
        return lambda action: to_leaf(action[own].reshape(part.shape).astype(part.dtype))

    return make(space)


def _scale_to(space: gym.spaces.Box) -> Callable[[Array], Array]:
    """Scale [-1, 1] to the bounds and clip. In float64, so that -1 and 1 become exactly the bounds."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    middle, half_range = (low + high) / 2, (high - low) / 2
    is_integer = np.issubdtype(space.dtype, np.integer)

    def scale(action: Array) -> Array:
        scaled = np.minimum(np.maximum(middle + half_range * action, low), high)
        return (np.rint(scaled) if is_integer else scaled).astype(space.dtype)

    return scale


def _clip_to(space: gym.spaces.Box) -> Callable[[Array], Array]:
    """Clip actions to the bounds that are finite."""
    if not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return lambda action: action.astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return lambda action: np.minimum(np.maximum(action, low), high).astype(space.dtype)
