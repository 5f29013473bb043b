"""An agent in a loop of your own. The checking agent checks the carry that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reverie.agent import Agent
from reverie.config.schema import EvaluateConfig
from reverie.core.errors import ConfigError, ReverieError
from reverie.envs.config import EnvConfig
from reverie.envs.episode import make_action_map
from reverie.envs.make import make_env, make_specs
from reverie.training.session import Session
from tests.sessions import checking_config, finished

LEARN: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 2}


@pytest.fixture
def session() -> Iterator[Session]:
    with finished(checking_config(LEARN)) as run:
        yield run.session


@pytest.fixture
def agent(session: Session) -> Agent:
    return make_agent(session, session.config.env)


def make_agent(session: Session, config: EnvConfig) -> Agent:
    env = make_env(config)
    settings = EvaluateConfig(num_envs=2).model_dump(mode="json")
    about = {"env": config.model_dump(mode="json"), "evaluate": settings, "seed": 1, **session.counters.state()}
    actions = make_action_map(session.policy.specs.action, env.action_space)
    return Agent(session.policy, about, env.observation_space, actions)


def test_predict_follows_one_episode_after_the_other(agent: Agent) -> None:
    env, state, is_start = agent.make_env(), None, True
    observation, _ = env.reset(seed=0)
    for step in range(30):
        action, state = agent.predict(observation, state, episode_start=is_start)
        assert env.action_space.contains(action)
        observation, _, is_start, _, _ = env.step(action)
        if is_start:
            observation, _ = env.reset(seed=step)


def test_predict_follows_envs_whose_episodes_end_at_different_times(agent: Agent) -> None:
    """As in Stable-Baselines3: a new episode's first observation comes with the end of the one before."""
    envs, starts = [agent.make_env() for _ in range(3)], np.ones(3, bool)
    observations, state = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(envs)]), None
    for step in range(30):
        actions, state = agent.predict(observations, state, starts, deterministic=step % 2 == 0)
        for number, env in enumerate(envs):
            observations[number], _, starts[number], _, _ = env.step(actions[number])
            if starts[number]:
                observations[number], _ = env.reset(seed=1000 * step + number)


def test_predict_does_not_change_the_state_of_act(agent: Agent) -> None:
    env = agent.make_env()
    observation, _ = env.reset(seed=0)
    assert agent.predict(observation)[0] == agent.predict(observation)[0]
    action = agent.act(observation)
    agent.predict(np.stack([observation] * 3))
    agent.act(env.step(action)[0])


def test_without_a_state_an_episode_begins(agent: Agent) -> None:
    env = agent.make_env()
    env.reset(seed=0)
    observation = env.step(0)[0]
    with pytest.raises(AssertionError, match="another number of rows"):  # the second row of an episode is no first one
        agent.predict(observation)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"state": (None, None)}, ["its type is tuple", "action, state = agent.predict"]),
        ({"episode_start": [True, False, True]}, ["a bool or 2 of them"]),
        ({"episode_start": "yes"}, ["must be a bool"]),
    ],
)
def test_what_predict_cannot_use_is_explained(agent: Agent, arguments: dict[str, Any], words: list[str]) -> None:
    seen = np.stack([agent.make_env().reset(seed=seed)[0] for seed in range(2)])
    with pytest.raises(ReverieError) as caught:
        agent.predict(seen, **arguments)
    assert all(word in str(caught.value) for word in words)
    _, state = agent.predict(seen)
    with pytest.raises(ReverieError, match="belongs to 2 envs, but there are 1 observations"):
        agent.predict(seen[0], state)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_is_refused(agent: Agent, number: float) -> None:
    observation, _ = agent.make_env().reset(seed=0)
    observation[1] = number
    for answer in (agent.act, agent.predict):
        with pytest.raises(ReverieError, match="'obs' contains NaN or infinity"):
            answer(observation)


def test_what_is_outside_of_its_space_is_refused(session: Session) -> None:
    config = EnvConfig(id="Reverie/Counting-v0", kwargs={"observation": "discrete", "length": 4})
    session.policy.specs = make_specs(config)
    for wrong in (-1, 99):
        with pytest.raises(ReverieError, match="'obs' is outside of its space"):
            make_agent(session, config).act(wrong)


def test_evaluate_plays_what_evaluations_play(agent: Agent) -> None:
    result = agent.evaluate(episodes=4)
    assert (result["episodes"], len(result["returns"])) == (4, 4)
    assert result["return_mean"] == np.mean(result["returns"])
    assert result["return_std"] == np.std(result["returns"])
    assert result["returns"] == [length * (length + 1) / 2 for length in result["lengths"]]
    assert agent.evaluate(episodes=4) == result
    assert agent.evaluate(episodes=4, seed=2)["lengths"] != result["lengths"]
    assert agent.evaluate(1, deterministic=False)["sample"] is True


@pytest.mark.parametrize("episodes", [0, -1, 2.5, "3", True])
def test_a_wrong_number_of_episodes_is_refused(agent: Agent, episodes: Any) -> None:
    with pytest.raises(ConfigError, match="is not a number of episodes"):
        agent.evaluate(episodes)
