"""Tabular learning: the three targets by hand, rollouts in pieces, tables over every discrete space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.algos.qlearning import QLearning, QLearningConfig
from reverie.core.errors import ConfigError, TrainingError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs, flatten_observation, read_specs
from reverie.core.types import Clock, Mode, Row
from reverie.store.trees import read_tree, write_tree
from tests.unit.algos.batches import DISCRETE, INDEX, VECTOR, column_of, random_rows

STATES = {"obs": ObservationSpec((), "int64", "discrete", (3,))}
TWO = ActionSpec("discrete", (), "int64", (2,))
SPECS = Specs(STATES, TWO)
TABLE = [[0.0, 0.0], [4.0, 8.0], [2.0, 6.0]]


def make_table(specs: Specs = SPECS, **values: Any) -> QLearning:
    defaults = {"gamma": 0.5, "learning_rate": 0.5, "exploration": {"kind": "epsilon", "epsilon": 0.5}}
    return QLearning(QLearningConfig.model_validate({**defaults, **values}), specs, make_generator("unused"))


def make_rollout(states: list[int], actions: list[int], rewards: list[float], **flags: int) -> Row:
    """Rows of one env. The last action is not chosen yet. A flag names the column where it is set."""
    rows = {
        "obs": np.array([states]), "action": np.array([[*actions, 0]]),
        "reward": np.array([[0.0, *rewards]], np.float32),
        **{name: np.zeros((1, len(states)), bool) for name in ("is_first", "terminated", "truncated")},
    }  # fmt: skip
    for name, column in flags.items():
        rows[name][:, column] = True
    return rows


def learn(batch: Row, clock: Clock = Clock(), **values: Any) -> QLearning:  # noqa: B008
    agent = make_table(**values)
    agent.values[:] = TABLE
    agent.update(batch, clock, make_generator("unused"))
    return agent


def make_long_rollout(specs: Specs, envs: int, length: int, seed: int = 0) -> Row:
    """Random rows in which each env has terminated and truncated episodes, at other times than the others."""
    rows = random_rows(specs, envs, length, seed)
    for env in range(envs):
        for end in range(4 + env, length, 6 + env):
            rows["terminated" if end % 2 else "truncated"][env, end] = True
            rows["is_first"][env, end + 1 : end + 2] = True
    return rows


def pieces(rows: Row, sizes: list[int]) -> list[Row]:
    """A rollout as the buffer serves it in several reads. Neighbours share a row, whose action the first one lacks."""
    parts, start = [], 0
    for size in sizes:
        part = {key: value[:, start : start + size + 1].copy() for key, value in rows.items()}
        part["action"][:, -1] = 0
        parts.append(part)
        start += size
    return parts


# ---------------------------------------------------------------- targets by hand


def test_q_learning() -> None:
    agent = learn(make_rollout([0, 1, 2], [0, 0], [1, 2]), target="q")
    assert agent.values[0].tolist() == [0.5 * (1 + 0.5 * 8), 0]
    assert agent.values[1].tolist() == [4 + 0.5 * (2 + 0.5 * 6 - 4), 8]
    assert agent.visits.tolist() == [[1, 0], [1, 0], [0, 0]]


def test_expected_sarsa() -> None:
    # Epsilon 1/2 of two actions: the best has 3/4. State 1: 7, state 2: 5.
    agent = learn(make_rollout([0, 1, 2], [0, 0], [1, 2]), target="expected_sarsa")
    assert agent.values[0].tolist() == [0.5 * (1 + 0.5 * 7), 0]
    assert agent.values[1].tolist() == [4 + 0.5 * (2 + 0.5 * 5 - 4), 8]


def test_sarsa_waits_for_the_next_action() -> None:
    agent = learn(make_rollout([0, 1, 2], [0, 0], [1, 2]), target="sarsa")
    assert agent.values[0].tolist() == [0.5 * (1 + 0.5 * 4), 0]
    assert agent.values[1].tolist() == [4, 8]  # the action in state 2 is not known yet
    following = make_rollout([2, 0], [1], [0])
    following["reward"][0, 0] = 2  # the shared row, with the reward that arrived in it
    agent.update(following, Clock(), make_generator("unused"))
    assert agent.values[1].tolist() == [4 + 0.5 * (2 + 0.5 * 6 - 4), 8]
    assert agent.values[2].tolist() == [2, 6]


@pytest.mark.parametrize("target", ["q", "sarsa", "expected_sarsa"])
def test_only_a_terminal_state_ends_the_value(target: str) -> None:
    for flag, following in (("terminated", 0.0), ("truncated", 1.0)):
        batch = make_rollout([0, 1, 2, 2], [0, 1, 0], [1, 5, 0], is_first=2, **{flag: 1})
        agent = learn(batch, target=target)
        next_value = 7 if target == "expected_sarsa" else 8
        assert agent.values[0, 0] == 0.5 * (1 + 0.5 * following * next_value)
        assert agent.values[1].tolist() == [4, 8]  # the action of the final row was never executed
        assert agent.visits[1].sum() == 0


def test_moments_are_learned_in_order() -> None:
    """On a circle of two states, the second lap uses the values of the first."""
    agent = make_table(learning_rate=1.0, gamma=1.0)
    agent.update(make_rollout([0, 1, 0, 1], [0, 0, 0], [1, 1, 1]), Clock(), make_generator("unused"))
    assert agent.values[:, 0].tolist() == [3, 2, 0]


# ---------------------------------------------------------------- step sizes


def test_average_is_the_mean() -> None:
    specs = Specs({"obs": ObservationSpec((), "int64", "discrete", (1,))}, DISCRETE)
    agent = make_table(specs, learning_rate="average", gamma=0.0, initial_value=100.0)
    rewards: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for seed in range(5):
        batch = random_rows(specs, 4, 8, seed)
        agent.update(batch, Clock(), make_generator("unused"))
        for action, reward in zip(batch["action"][:, :-1].ravel(), batch["reward"][:, 1:].ravel(), strict=True):
            rewards[int(action)].append(float(reward))
    assert agent.visits[0].tolist() == [len(rewards[action]) for action in range(3)]
    assert agent.values[0] == pytest.approx([np.mean(rewards[action]) for action in range(3)])


def test_step_sizes_follow_the_clock() -> None:
    falling = {"start": 1.0, "end": 0.0, "from": 0, "to": 100}
    batch = make_rollout([0, 1], [0], [1])
    for steps, rate in ((0, 1.0), (50, 0.5), (100, 0.0)):
        assert learn(batch, Clock(env_steps=steps), learning_rate=falling).values[0, 0] == rate * 5


def test_envs_with_the_same_state_and_action_step_as_if_one_after_the_other() -> None:
    """Two steps of 1/2 to the mean target, 3: three quarters of the way. The third env is in another state."""
    batch = {key: np.repeat(value, 3, 0) for key, value in make_rollout([0, 1], [0], [0]).items()}
    batch["reward"][:, 1], batch["terminated"][:, 1], batch["obs"][2, 0] = [2, 4, 10], True, 2
    agent = learn(batch)
    assert agent.values[0].tolist() == [2.25, 0]
    assert agent.values[2].tolist() == [2 + 0.5 * (10 - 2), 6]
    assert agent.visits[[0, 2], 0].tolist() == [2, 1]


def test_many_envs_with_large_steps_do_not_overshoot() -> None:
    specs = Specs({"obs": ObservationSpec((), "int64", "discrete", (1,))}, TWO)
    agent = make_table(specs, learning_rate=0.9, gamma=0.0)
    for seed in range(50):
        batch = random_rows(specs, 16, 2, seed)
        batch["reward"] = np.tanh(batch["reward"])
        agent.update(batch, Clock(), make_generator("unused"))
    assert np.abs(agent.values).max() <= 1


# ---------------------------------------------------------------- rollouts in pieces


@pytest.mark.parametrize("target", ["q", "sarsa", "expected_sarsa"])
@pytest.mark.parametrize("rate", [0.5, "average"])
def test_pieces_equal_one_long_rollout(target: str, rate: Any) -> None:
    specs = Specs(INDEX, DISCRETE)
    rows = make_long_rollout(specs, 3, 41)
    whole, parted = (make_table(specs, target=target, learning_rate=rate) for _ in range(2))
    whole.update(rows, Clock(), make_generator("unused"))
    for part in pieces(rows, [1, 1, 7, 2, 1, 13, 15]):
        parted.update(part, Clock(), make_generator("unused"))
    assert np.array_equal(whole.values, parted.values)
    assert np.array_equal(whole.visits, parted.visits)
    assert whole.visits.sum() > 80


def test_sarsa_takes_rollouts_with_and_without_a_column_valid() -> None:
    """Collecting episodes adds the column; collecting rows does not."""
    specs = Specs(INDEX, DISCRETE)
    plain, marked = (make_table(specs, target="sarsa") for _ in range(2))
    for index, part in enumerate(pieces(make_long_rollout(specs, 2, 21), [4, 6, 10])):
        plain.update(part, Clock(), make_generator("unused"))
        valid = {"valid": np.ones_like(part["is_first"])} if index == 1 else {}
        marked.update(part | valid, Clock(), make_generator("unused"))
    assert np.array_equal(plain.values, marked.values)
    part = make_long_rollout(specs, 2, 8, seed=1)
    visits = marked.visits.sum()
    marked.update(part | {"valid": np.zeros_like(part["is_first"])}, Clock(), make_generator("unused"))
    assert marked.visits.sum() == visits


def test_an_episode_that_starts_between_two_rollouts_makes_no_transition() -> None:
    agent = learn(make_rollout([0, 1], [0], [1]), target="sarsa")
    agent.update(make_rollout([2, 1, 1], [0, 0], [3, 0], is_first=0), Clock(), make_generator("unused"))
    assert agent.visits.tolist() == [[0, 0], [0, 0], [1, 0]]


@pytest.mark.parametrize("target", ["q", "sarsa"])
def test_state_continues_exactly(target: str, tmp_path: Path) -> None:
    specs = Specs(INDEX, DISCRETE)
    first, *rest = pieces(make_long_rollout(specs, 3, 31), [9, 10, 11])
    one, two = (make_table(specs, target=target) for _ in range(2))
    one.update(first, Clock(), make_generator("unused"))
    write_tree(tmp_path / "state", one.state())
    two.load_state(read_tree(tmp_path / "state"))
    for agent in (one, two):
        for part in rest:
            agent.update(part, Clock(), make_generator("unused"))
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.visits, two.visits)


def test_a_saved_state_does_not_change_with_the_agent() -> None:
    agent = learn(make_rollout([0, 1, 2], [0, 0], [1, 2]))
    state = agent.state()
    before = state["values"].copy()
    agent.update(make_rollout([0, 1, 2], [1, 1], [1, 2]), Clock(), make_generator("unused"))
    assert np.array_equal(state["values"], before)


# ---------------------------------------------------------------- spaces


def test_every_state_of_blackjack_has_its_own_index() -> None:
    env = gym.make("Blackjack-v1")
    specs = read_specs(env)
    agent = make_table(specs)
    assert agent.values.shape == (32 * 11 * 2, 2)
    observations = [(total, card, ace) for total in range(32) for card in range(11) for ace in range(2)]
    flat = [flatten_observation(env.observation_space, observation) for observation in observations]
    row = {key: np.stack([one[key] for one in flat]) for key in flat[0]}
    states = agent._states({**row, "is_first": np.zeros(len(flat), bool)})
    assert sorted(states.tolist()) == list(range(32 * 11 * 2))
    batch = random_rows(specs, 4, 5)
    agent.update(batch, Clock(), make_generator("unused"))
    assert agent.visits.sum() == 16
    assert agent.act(column_of(batch), {}, Clock(), make_generator("act"), Mode.COLLECT)[0].shape == (4,)
    env.close()


def test_several_indices_in_one_observation() -> None:
    agent = make_table(Specs({"obs": ObservationSpec((2,), "int64", "discrete", (3, 4))}, TWO))
    row = {"obs": np.array([[0, 0], [0, 1], [1, 0], [2, 3]]), "is_first": np.zeros(4, bool)}
    assert agent._states(row).tolist() == [0, 1, 4, 11]


BERNOULLI = {"kind": "thompson", "rewards": "bernoulli"}
HUGE = {"obs": ObservationSpec((9,), "int64", "discrete", (10,) * 9)}
REFUSED: dict[str, tuple[Specs, dict[str, Any], str]] = {
    "numbers": (Specs(VECTOR, TWO), {}, "needs discrete observations"),
    "too many": (Specs(HUGE, TWO), {}, "1e\\+09 states does not fit"),
    "wins": (SPECS, {"learning_rate": 0.5, "exploration": BERNOULLI}, "each value must be the mean of all rewards"),
    "ucb": (SPECS, {"target": "expected_sarsa", "exploration": {"kind": "ucb"}}, "'ucb' has none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_table_cannot_do_is_refused(case: str) -> None:
    specs, values, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as caught:
        make_table(specs, **values)
    assert caught.value.fix


@pytest.mark.parametrize("reward", [-0.1, 1.5])
def test_bernoulli_thompson_sampling_refuses_other_rewards(reward: float) -> None:
    agent = make_table(gamma=0.0, learning_rate="average", exploration=BERNOULLI)
    batch = random_rows(SPECS, 2, 2)
    batch["reward"][:, 1] = [1, 0]
    agent.update(batch, Clock(), make_generator("unused"))
    batch["reward"][1, 1] = reward
    with pytest.raises(TrainingError, match=f"between 0 and 1; there was one of {reward}") as caught:
        agent.update(batch, Clock(), make_generator("unused"))
    assert "rewards=gaussian" in caught.value.fix
    gaussian = make_table(gamma=0.0, learning_rate="average", exploration={"kind": "thompson"})
    gaussian.update(batch, Clock(), make_generator("unused"))
    assert gaussian.visits.sum() == 2


# ---------------------------------------------------------------- acting


def test_evaluation_is_greedy_and_draws_nothing() -> None:
    agent, rng = make_table(exploration={"kind": "epsilon", "epsilon": 1.0}), make_generator("act")
    agent.values[:] = [[0.0, 0.0], [4.0, 8.0], [6.0, 2.0]]
    row = {"obs": np.arange(3).repeat(20), "is_first": np.zeros(60, bool)}
    state = rng.bit_generator.state
    action, carry, extras = agent.act(row, {}, Clock(), rng, Mode.EVALUATE)
    assert action.tolist() == [0] * 20 + [1] * 20 + [0] * 20  # the first of equals
    assert (carry, extras) == ({}, {})
    assert rng.bit_generator.state == state
    assert not np.array_equal(agent.act(row, {}, Clock(), rng, Mode.COLLECT)[0], action)


def test_epsilon_falls_with_the_env_steps() -> None:
    falling = {"start": 1.0, "end": 0.0, "from": 0, "to": 100}
    agent = make_table(exploration={"kind": "epsilon", "epsilon": falling})
    agent.values[:] = TABLE
    row = {"obs": np.full(4000, 1), "is_first": np.zeros(4000, bool)}
    for steps, share in ((0, 0.5), (50, 0.25), (100, 0.0)):
        action, _, _ = agent.act(row, {}, Clock(env_steps=steps), make_generator("act"), Mode.COLLECT)
        assert np.mean(action == 0) == pytest.approx(share, abs=0.04)


def test_optimism_sees_the_visits() -> None:
    agent = make_table(exploration={"kind": "ucb"})
    agent.values[0], agent.visits[0] = [9, 0], [50, 0]
    row = {"obs": np.zeros(5, int), "is_first": np.zeros(5, bool)}
    assert agent.act(row, {}, Clock(), make_generator("act"), Mode.COLLECT)[0].tolist() == [1] * 5


def test_metrics_say_how_wrong_and_how_far() -> None:
    agent = make_table()
    agent.values[:] = TABLE
    metrics = agent.update(make_rollout([0, 1, 2], [0, 0], [1, 2]), Clock(), make_generator("unused")).metrics
    assert metrics["loss"] == pytest.approx((5 + 1) / 2)
    assert metrics["visited"] == pytest.approx(2 / 6)
    empty = make_table().update(make_rollout([0, 1], [0], [1], terminated=0), Clock(), make_generator("unused"))
    assert empty.metrics["loss"] == 0
