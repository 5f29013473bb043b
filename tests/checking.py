"""An agent that learns nothing and checks everything, for ``Reverie/Counting-v0`` with discrete actions.

The env tells in each observation which episode and step it is and which action it received. So this agent
can tell when a loop, a buffer or a checkpoint loses, repeats, shifts or mixes up rows: an assertion fails.
Run it as ``algorithm.kind=tests.checking.CheckingAlgorithm``, with any number of envs and the normaliser off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Episodes, Read, Rollout, Window
from reverie.core.specs import Specs
from reverie.core.types import Array, Batch, Carry, Clock, Mode, Row, State, Update, WriteBack
from reverie.data.rows import transitions
from reverie.envs.suites.reverie.counting import ACTION, EPISODE, STEP, read_counting


class CheckingAlgorithm:
    """Acts in a fixed cycle, so that an action at the wrong place shows."""

    class Config(ComponentConfig):
        """Sizes of reads and updates."""

        kind: str = "tests.checking.CheckingAlgorithm"
        """This class."""
        batch_size: int = Field(4, ge=1)
        """Windows in a batch of update_windows."""
        length: int = Field(6, ge=2)
        """Rows of a window."""
        updates_per_call: int = Field(1, ge=1)
        """How many updates each hook reports."""

    traits = Traits(
        hooks=("update", "update_episodes", "update_windows"), actions=("discrete",), priorities=True, observes=True
    )

    def __init__(self, config: Config, specs: Specs, rng: np.random.Generator) -> None:
        assert specs.action.kind == "discrete", "the checking agent needs discrete actions"
        self.config = config
        self.num_actions = specs.action.classes[0]
        self.acts = 0
        self.calls = dict.fromkeys(self.traits.hooks, 0)

    @property
    def reads(self) -> Mapping[str, Read]:
        windows = Window(self.config.batch_size, self.config.length)
        return {"update": Rollout(), "update_episodes": Episodes(), "update_windows": windows}

    def initial_carry(self, num_envs: int) -> Carry:
        """No episode yet: only a row that is first may follow."""
        return {name: np.full(num_envs, -1, np.int64) for name in ("episode", "count")}

    def act(
        self, now: Row, carry: Carry, clock: Clock, rng: np.random.Generator, mode: Mode
    ) -> tuple[Array, Carry, Row]:
        """The next actions of the cycle. Evaluation does not move it; an action in mode OBSERVE must reach no env."""
        row = as_numpy(now)
        count = np.where(row["is_first"], 0, np.asarray(carry["count"]) + 1)
        check_arrival(row, count, carry)
        action = (self.acts + np.arange(len(count))) % self.num_actions
        extras = {"count": count, "act": np.full(len(count), self.acts)}
        self.acts += mode is not Mode.EVALUATE
        if mode is Mode.OBSERVE:
            action = np.full(len(count), -1)
        return action, {"episode": episodes_of(row), "count": count}, extras

    def update(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """A rollout: every act since the last read in order, and a last column that is not acted on yet."""
        rows = as_numpy(batch)
        expect(rows["action"][:, -1], 0, "the arriving row already has an action")
        expect(rows["act"][:, -1], 0, "the arriving row already has extras")
        acted_on = {key: values[:, :-1] for key, values in rows.items()}
        check_extras(acted_on)
        acts = {"first_act": int(acted_on["act"][0, 0]), "last_act": int(acted_on["act"][0, -1])}
        return self._report("update", batch, check_sequence(rows) | acts)

    def update_episodes(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Whole episodes: each starts with a first row, ends with a final one and is padded behind it."""
        rows = as_numpy(batch)
        valid, last = rows["valid"], rows["terminated"] | rows["truncated"]
        lengths = valid.sum(axis=1)
        expect(valid, np.arange(valid.shape[1]) < lengths[:, None], "padding lies inside an episode")
        expect(rows["is_first"].argmax(axis=1), 0, "an episode does not begin at its first row")
        expect((rows["is_first"] & valid).sum(axis=1), 1, "an entry holds more or less than one first row")
        expect(last.argmax(axis=1), lengths - 1, "an episode does not end at its final row")
        check_extras(rows)
        return self._report("update_episodes", batch, check_sequence(rows) | {"episodes": len(lengths)})

    def update_windows(self, batch: Batch, clock: Clock, rng: np.random.Generator) -> Update:
        """Stretches of stored rows, all of them acted on."""
        rows = as_numpy(batch)
        expect(rows["is_first"].shape, (self.config.batch_size, self.config.length), "wrong window size")
        check_extras(rows)
        return self._report("update_windows", batch, check_sequence(rows))

    def state(self) -> State:
        return {"acts": self.acts, "calls": dict(self.calls)}

    def load_state(self, state: State) -> None:
        self.load_policy_state(state)
        self.calls = {hook: int(count) for hook, count in state["calls"].items()}

    def policy_state(self) -> State:
        return {"acts": self.acts}

    def load_policy_state(self, state: State) -> None:
        self.acts = int(state["acts"])

    def _report(self, hook: str, batch: Batch, metrics: Mapping[str, Any]) -> Update:
        self.calls[hook] += 1
        write_back = None
        if "id" in batch:
            ids = np.asarray(batch["id"]).ravel()
            write_back = WriteBack(ids, {"visits": np.full(len(ids), self.calls[hook], np.float32)})
        return Update({"calls": self.calls[hook], **metrics}, self.config.updates_per_call, write_back)


def check_arrival(row: Row, count: Array, carry: Carry) -> None:
    """What arrives carries on what the carry saw, and the env received what the loop says was done."""
    numbers, follows = read_counting(row), ~row["is_first"]
    crashed = is_crash(row)
    expect(numbers[..., STEP], count - crashed, "the carry has seen another number of rows than the episode has")
    expect(
        episodes_of(row)[follows],
        np.asarray(carry["episode"])[follows],
        "the episode changed without a reset",
    )
    heard = follows & ~crashed
    expect(numbers[heard, ACTION], row["previous_action"][heard], "previous_action is not what the env received")


def check_sequence(rows: Row) -> dict[str, Any]:
    """Neighbouring rows of (B, T + 1) follow each other wherever the weight says so, and only there."""
    now, then, weight = transitions(rows)
    before, after, real = read_counting(now), read_counting(then), weight > 0
    final = now["terminated"] | now["truncated"]
    known = now["valid"] & then["valid"] if "valid" in rows else np.ones_like(final)
    expect(real, known & ~final & ~then["is_first"], "the weight is not that of real steps")
    expect(then["is_first"][final & known], True, "a final row is not followed by a first one")
    expect(after[real, EPISODE], before[real, EPISODE], "a step leads into another episode")
    crashed = is_crash(then)[real]
    expect(after[real, STEP], before[real, STEP] + ~crashed, "steps of an episode do not count up by one")
    expect(then["reward"][real], np.where(crashed, 0, after[real, STEP]), "a reward arrived in the wrong row")
    heard = real & ~is_crash(then)
    expect(now["action"][heard], after[heard, ACTION], "a row holds an action that the env did not receive")
    first = rows["is_first"] & rows.get("valid", True)
    expect(read_counting(rows)[first, STEP], 0, "a first row is not at step 0")
    return {"rows": first.size, "transitions": int(real.sum())}


def check_extras(rows: Row) -> None:
    """The extras that ``act`` gave lie beside the observation they were made from."""
    valid = rows.get("valid", np.ones(rows["count"].shape, bool))
    steps = read_counting(rows)[..., STEP] + is_crash(rows)
    expect(rows["count"][valid], steps[valid], "extras belong to another row")
    expect(np.diff(rows["act"], axis=1)[valid[:, 1:]], 1, "an act is missing or out of order")


def is_crash(row: Row) -> Array:
    """The row that stands in for an env that died: its last observation again, cut, without reward."""
    return np.asarray(row["truncated"] & (row["reward"] == 0))


def episodes_of(row: Row) -> Array:
    return read_counting(row)[..., EPISODE].astype(np.int64)


def as_numpy(batch: Mapping[str, Any]) -> Row:
    return {key: np.asarray(value) for key, value in batch.items()}


def expect(found: Any, wanted: Any, otherwise: str) -> None:
    np.testing.assert_array_equal(found, wanted, err_msg=otherwise)
