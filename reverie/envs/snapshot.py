"""Tests whether an env continues bit for bit from a snapshot: ``exact``, or ``statistical`` with the reason.

The env plays random actions into the middle of a second or later episode, because a first episode would not reveal
state that survives a reset. Its snapshot is restored in another process (``python -m reverie.envs.snapshot``, JSON in,
JSON out), where memory addresses and hash seeds differ. Both continue with the same actions across a reset, and all
rows are compared by hash. A second snapshot is taken when a reset is due and tested in the same way: the first reset of
the new env must equal the n-th reset of the old one. An accelerator for long episodes must pass the same test, and
saving its states must not change the episode.
"""

from __future__ import annotations

import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from reverie.core.errors import ConfigError, ReverieError, RunError
from reverie.core.rng import make_generator
from reverie.core.specs import read_specs
from reverie.core.types import State
from reverie.envs.accelerators import LONG_EPISODE, find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.episode import Episode, as_action_list
from reverie.envs.make import make_env, max_episode_steps_of
from reverie.envs.native_vector import can_save_native
from reverie.envs.snapshot_cache import SnapshotVerdict, load_verdict, save_verdict
from reverie.envs.vector import allocate_rows, row_layout
from reverie.envs.worker import decode_state, describe_env, encode_state, fresh_interpreter, register_described
from reverie.log.progress import progress

Trace = list[dict[str, str]]
"""For each row, the hash of each of its columns."""

_WARM_UP, _BEFORE, _PATIENCE, _AFTER, _BEYOND = 100, 100, 100, 200, 100
_MIN_ACTIONS = 3
"""Actions that the interrupted episode should have, so that an accelerator has saved at least once."""
_SAVE_EVERY_ACTION = 1
"""An accelerator is tested with saves before every action: a longer replay would hide state that it does not save."""
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class _Interrupted:
    """Two snapshots, the second of them when a reset is due, and the rows after each."""

    inside: State
    due: State
    after_inside: Trace
    after_due: Trace
    may_accelerate: bool


class ProbeFailed(Exception):
    """The test could not be carried out. The text says why."""


def cached_verdict(config: EnvConfig) -> SnapshotVerdict:
    """The verdict on an env, from an earlier test if there was one. A test that failed is repeated next time."""
    verdict = load_verdict(config)
    if verdict is None:
        with progress(f"testing whether {config.id} can be saved and restored exactly"):
            verdict = probe_snapshot(config)
        if verdict.method != "unchecked":
            save_verdict(config, verdict)
    return verdict


def probe_snapshot(config: EnvConfig, seed: int = 0) -> SnapshotVerdict:
    """Restore snapshots in another process and compare the rows that follow."""
    if config.vector == "native":
        return _native_verdict(config)
    if config.vector == "envpool":
        return SnapshotVerdict("statistical", "EnvPool cannot save its envs: a resume starts new episodes", "none")
    if config.vector == "jax":  # the vector saves all arrays that a step depends on
        return SnapshotVerdict("exact", "", "arrays")
    try:
        brief = _describe(config)
        play = _interrupt(config, seed)
        states = [play.due, play.inside]
        if play.may_accelerate:
            accelerated = _interrupt(config, seed, _SAVE_EVERY_ACTION)
            is_harmless = accelerated.after_inside == play.after_inside
            states += [accelerated.inside] if is_harmless and "snapshot" in accelerated.inside else []
        after_due, after_inside, *after_state = _continue_elsewhere(brief, seed, states)
    except ProbeFailed as failure:
        return SnapshotVerdict("statistical", str(failure), "unchecked")
    reason = _difference(play.after_inside, after_inside) or _difference(play.after_due, after_due)
    if reason:
        return SnapshotVerdict("statistical", reason, "replay")
    return SnapshotVerdict("exact", "", "replay+state" if play.after_inside in after_state else "replay")


def _native_verdict(config: EnvConfig) -> SnapshotVerdict:
    if can_save_native(config):
        return SnapshotVerdict("exact", "", "arrays")
    reason = f"the vector class of '{config.id}' cannot be saved: a resume starts new episodes"
    return SnapshotVerdict("statistical", reason, "none")


def _describe(config: EnvConfig) -> dict[str, Any]:
    try:
        return describe_env(config)
    except ConfigError as error:
        raise ProbeFailed(f"it cannot be tested in another process: {error.message.removesuffix('.')}") from error


def _interrupt(config: EnvConfig, seed: int, every: float = math.inf) -> _Interrupted:
    """Play one env from beginning to end, with snapshots and the rows that restored envs must reproduce."""
    with closing(_Player(config, seed, every)) as player:
        try:
            inside = player.reach_middle()
            rows = player.resume()
            due = player.due()
            after_due = player.reset()
        except Exception as error:
            raise ProbeFailed(f"it failed under random actions: {_first_line(error)}") from error
        return _Interrupted(inside, due, rows + after_due, after_due, player.may_accelerate)


class _Player:
    """Plays one env with random actions, which depend on the seed and the purpose."""

    def __init__(self, config: EnvConfig, seed: int, every: float = math.inf) -> None:
        self._env = make_env(config)
        specs = read_specs(self._env)
        accelerator = find_accelerator(self._env, every)
        self.may_accelerate = accelerator is not None and (max_episode_steps_of(self._env) or math.inf) > LONG_EPISODE
        self.episode = Episode(self._env, specs, config.log_keys, seed, "probe", 0, 1, accelerator)
        self._seed, self._action_spec = seed, specs.action
        self._rows = allocate_rows(row_layout(specs, config.log_keys), 1)
        self._episode_step = 0

    def reach_middle(self) -> State:
        """A snapshot from inside an episode after the first. If episodes are very short, from anywhere."""
        for _ in self._play("warm up", _WARM_UP):
            pass
        self.episode.reset(self._rows, 0)
        self._hash_row()
        for step, _ in enumerate(self._play("approach", _BEFORE + 2 * _PATIENCE)):
            wanted = _MIN_ACTIONS if step < _BEFORE + _PATIENCE else 1
            if step >= _BEFORE and self._episode_step >= wanted and not self.episode.pending:
                break
        return self.episode.state()

    def restore(self, state: State) -> None:
        self.episode.load_state(state, self._rows, 0)
        if self.episode.is_lost:
            raise RunError("an episode cannot be repeated from its seed and its actions: it ends early or fails")

    def resume(self) -> Trace:
        """The rows from a snapshot on, starting with the newest row unless a reset is due."""
        now = [] if self.episode.pending else [self._hash_row()]
        return [*now, *self._play("after", _AFTER)]

    def reset(self) -> Trace:
        """The rows from a reset on, whether or not the current episode has ended."""
        self.episode.reset(self._rows, 0)
        return [self._hash_row(), *self._play("beyond", _BEYOND)]

    def due(self) -> State:
        """A snapshot as if a reset were due."""
        state = self.episode.state()
        no_actions = state["actions"][:0]
        return state if self.episode.pending else {"episode": state["episode"], "pending": True, "actions": no_actions}

    def close(self) -> None:
        self._env.close()

    def _play(self, purpose: str, steps: int) -> Iterator[dict[str, str]]:
        actions = self._action_spec.sample(make_generator("snapshot", self._seed, purpose), steps)
        for action in as_action_list(self._action_spec, actions):
            self.episode.step(action, self._rows, 0)
            yield self._hash_row()

    def _hash_row(self) -> dict[str, str]:
        self._episode_step = 0 if self._rows["is_first"][0] else self._episode_step + 1
        return {key: blake2b(array.tobytes(), digest_size=8).hexdigest() for key, array in self._rows.items()}


def _difference(expected: Trace, answer: Trace | str) -> str:
    """How an answer differs from the expected rows. Empty if it does not."""
    if isinstance(answer, str):
        return f"a snapshot could not be restored in another process: {answer}"
    for number, (one, other) in enumerate(zip(expected, answer, strict=True), start=1):
        keys = [key for key in one if one[key] != other[key]]
        if keys:
            return f"restored in another process, row {number} after the snapshot differs in {', '.join(keys)}"
    return ""


def _continue_elsewhere(brief: dict[str, Any], seed: int, states: list[State]) -> list[Trace | str]:
    """The rows after each snapshot in another process, or why it failed. The first snapshot is due for a reset."""
    coded = base64.b64encode(encode_state({str(i): state for i, state in enumerate(states)})).decode()
    command, environment = fresh_interpreter("reverie.envs.snapshot")
    try:
        done = subprocess.run(
            command,
            input=json.dumps({"env": brief, "seed": seed, "states": coded}),
            capture_output=True,
            text=True,
            errors="replace",  # envs may print anything
            env=environment,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(f"another process did not restore it within {_TIMEOUT_SECONDS} seconds") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ProbeFailed(f"another process could not make it: {last}")
    answers: list[Trace | str] = json.loads(done.stdout)
    return answers


def _answer(config: EnvConfig, seed: int, state: State, is_due: bool) -> Trace | str:
    with closing(_Player(config, seed)) as player:
        try:
            player.restore(state)
            return ([] if is_due else player.resume()) + player.reset()
        except Exception as error:
            return _first_line(error)


def _first_line(error: Exception) -> str:
    """The first line of an error, with its type unless it is one of ours."""
    text = error.message if isinstance(error, ReverieError) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0].rstrip(".")


def main() -> None:
    """In the other process: restore the snapshots from stdin and print the rows that follow."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # envs may print to stdout
    task = json.load(sys.stdin)
    states = decode_state(base64.b64decode(task["states"]))
    try:
        config = register_described(task["env"])
        answers = [_answer(config, task["seed"], state, key == "0") for key, state in states.items()]
    except ReverieError as error:
        sys.exit(error.message)
    with os.fdopen(answer, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
