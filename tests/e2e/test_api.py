"""Reverie from Python: train, find, load, evaluate, act."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector.utils import concatenate, create_empty_array

import reverie
from reverie.core.errors import ConfigError, ReverieError, RunError
from reverie.core.rng import derive_seed
from reverie.core.types import Mode
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env
from reverie.log.sinks import read_jsonl
from reverie.runs.record import Cast
from tests.e2e.conftest import SMALL

TINY = ("env.vector=sync", "env.num_envs=2", "phases.learn.collect.rows=32", "algorithm.epochs=1")
TINY += ("evaluate.final_episodes=1",)


def test_run_object_describes_the_run(trained: reverie.Run) -> None:
    assert trained.state == "finished"
    assert trained.exit_code == 0
    assert trained.name == "CartPole-v1-ppo-s1-1"
    assert trained.metrics() == read_jsonl(trained.path / "metrics.jsonl")
    assert any("evaluate/return_mean" in line for line in trained.metrics())
    assert sum(score["length"] for score in trained.scores()) <= trained.status["env_steps"]
    found = reverie.find(trained.name, runs_dir=trained.path.parent)
    assert (found.path, found.state) == (trained.path, "finished")


def test_agent_reproduces_the_final_evaluation(trained: reverie.Run) -> None:
    """Repeats the final evaluation with plain Gymnasium."""
    agent = trained.agent("final")
    env = make_env(EnvConfig.model_validate(agent.about["env"]))
    scores = [play(agent, env, derive_seed(1, "evaluate", episode)) for episode in range(3)]
    assert np.mean(scores) == trained.status["final_score"]
    env.close()


def play(agent: reverie.Agent, env: gym.Env[object, object], seed: int) -> float:
    observation, _ = env.reset(seed=seed)
    agent.reset()
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        total, done = total + float(reward), terminated or truncated
    return total


def test_an_agent_is_deterministic_unless_asked(trained: reverie.Run) -> None:
    agent = reverie.load(str(trained.path))
    observation = np.array([0.01, 0.0, -0.02, 0.0], np.float32)
    assert len({agent.act(observation) for _ in range(20)}) == 1
    assert {agent.act(observation, deterministic=False) for _ in range(60)} == {0, 1}
    other = reverie.load(str(trained.path))
    drawn = [[one.act(observation, deterministic=False) for _ in range(20)] for one in (other, trained.agent())]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("observation", "action"),
    [("dict", "continuous"), ("tuple", "multi_discrete"), ("image", "multi_binary"), ("discrete", "unbounded")],
)
def test_agent_uses_the_spaces_of_its_env(tmp_path: Path, observation: str, action: str) -> None:
    kwargs = f"env.kwargs={{observation: {observation}, action: {action}, length: 5}}"
    run = reverie.train("Reverie/Counting-v0:ppo", kwargs, *TINY, steps=40, runs_dir=tmp_path)
    agent = run.agent()
    env = make_env(EnvConfig.model_validate(agent.about["env"]))
    assert play(agent, env, seed=3) == 15.0
    seen, _ = env.reset(seed=1)
    assert env.action_space.contains(agent.act(seen))
    assert env.action_space.contains(agent.act(seen, deterministic=False))
    other = env.step(agent.act(seen))[0]
    env.close()
    both = concatenate(env.observation_space, [seen, other], create_empty_array(env.observation_space, 2))
    singly = [agent.act(one) for one in (seen, other)]
    np.testing.assert_allclose(agent.act(both), singly, rtol=1e-5)
    assert agent.act(both).shape == (2, *np.shape(singly[0]))


@pytest.mark.parametrize(
    ("observation", "seen"),
    [
        (np.zeros(5), r"obs \(5,\)"), (np.zeros((2, 3)), r"obs \(2, 3\)"), (np.zeros((1, 2, 4)), r"obs \(1, 2, 4\)"),
        (np.zeros((0, 4)), r"obs \(0, 4\)"), (0.0, r"obs \(\)"), ("left", "of type str"),
    ],
)  # fmt: skip
def test_mismatched_observation_is_refused(trained: reverie.Run, observation: object, seen: str) -> None:
    with pytest.raises(ReverieError, match=rf"expects obs \(4,\) float32, but got {seen}\."):
        trained.agent().act(observation)


def test_reset_clears_the_carry(tmp_path: Path) -> None:
    """Smooth noise keeps its direction until the agent is reset or its interval ends."""
    words = ("algorithm.state_dependent_noise=true", "algorithm.noise_steps=-1", *TINY)
    run = reverie.train(
        "Reverie/Counting-v0:ppo", "env.kwargs={action: continuous}", *words, steps=40, runs_dir=tmp_path
    )
    agent = run.agent()
    seen = np.zeros(4, np.float32)
    first = agent.act(seen, deterministic=False)
    assert agent.act(seen, deterministic=False).tolist() == first.tolist()
    agent.reset()
    assert agent.act(seen, deterministic=False).tolist() != first.tolist()


def test_evaluate_from_python(trained: reverie.Run) -> None:
    runs_dir = trained.path.parent
    result = reverie.evaluate(episodes=6, which="final", runs_dir=runs_dir)
    assert result["episodes"] == 6
    assert result == reverie.evaluate(trained.name, episodes=6, which="final", runs_dir=runs_dir)
    assert result["return_min"] <= result["return_mean"] <= result["return_max"]


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> reverie.Run:
    """A DQN run that no longer explores when its policies are saved, but samples actions in evaluations."""
    words = ("algorithm.epsilon={start: 1.0, end: 0.0, from: 0, to: 100}", "evaluate.sample=true")
    words += ("evaluate.final_episodes=2", "phases.prefill.duration_steps=50", "phases.prefill.collect.rows=50")
    words += ("buffers.main.min_rows=50", "env.vector=sync", "env.num_envs=1", "phases.learn.duration_steps=150")
    return reverie.train("CartPole-v1:dqn", *words, runs_dir=tmp_path_factory.mktemp("runs"))


def test_agent_explores_as_when_it_was_saved(explorer: reverie.Run) -> None:
    agent = explorer.agent("final")
    assert agent.clock.env_steps == explorer.status["env_steps"] >= 100
    for seed in range(40):
        seen = np.asarray(np.random.default_rng(seed).uniform(-1, 1, 4), np.float32)
        assert agent.act(seen, deterministic=False) == agent.act(seen)


def test_evaluate_samples_actions_if_the_run_does(explorer: reverie.Run) -> None:
    path = str(explorer.path)
    assert reverie.evaluate(path, episodes=2)["sample"] is True
    assert reverie.evaluate(path, episodes=2, sample=False)["sample"] is False
    again = reverie.evaluate(path, episodes=2, which="final")
    assert np.mean(again["returns"]) == again["return_mean"] == explorer.status["final_score"]
    assert Cast.of_run(explorer.path).player.mode is Mode.COLLECT  # type: ignore[attr-defined]
    assert Cast.of_run(explorer.path, sample=False).player.mode is Mode.EVALUATE  # type: ignore[attr-defined]


def test_evaluate_reports_the_policy_it_used(trained: reverie.Run, tmp_path: Path) -> None:
    """If a run has only one policy, that one is used and reported."""
    run = shutil.copytree(trained.path, tmp_path / trained.name)
    assert reverie.evaluate(trained.name, episodes=1, runs_dir=tmp_path)["policy"] == "best"
    for path in (run / "policies").glob("best-*"):
        shutil.rmtree(path)
    assert reverie.evaluate(trained.name, episodes=1, runs_dir=tmp_path)["policy"] == "final"


def test_a_config_can_be_made_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = reverie.make_config("CartPole-v1:ppo", ["algorithm.gamma=0.5"], seed=3, steps=5_000)
    assert (config.seed, config.horizon_steps, config.algorithm.gamma) == (3, 5_000, 0.5)  # type: ignore[attr-defined]
    assert config.env.vector in ("sync", "process")
    assert config.algorithm.network.kind == "mlp"  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_a_run_can_be_given_instead_of_its_name(trained: reverie.Run) -> None:
    seen = np.zeros(4, np.float32)
    assert reverie.load(trained).act(seen) == reverie.load(trained.path).act(seen) == trained.agent().act(seen)
    assert reverie.evaluate(trained, 3)["returns"] == trained.agent().evaluate(3)["returns"]
    assert reverie.find(trained) == trained
    with pytest.raises(ConfigError, match="or what train\\(\\) returned, not int"):
        reverie.load(3)  # type: ignore[arg-type]


def test_run_can_be_resumed_with_overrides(trained: reverie.Run, tmp_path: Path) -> None:
    shutil.copytree(trained.path, tmp_path / trained.name)
    run = reverie.resume(tmp_path / trained.name, overrides={"algorithm.gamma": 0.5}, steps=7e2)
    assert run.status["env_steps"] >= 700
    assert "gamma: 0.5" in (run.path / "config.yaml").read_text()


SCRIPT = """
import gymnasium as gym
import numpy as np
import reverie

class MyEnv(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), float(action), self.steps >= self.length, False, {}

small = {"env.num_envs": 2, "env.max_episode_steps": 9, "log.report": False, "evaluate.final_episodes": 2,
         "phases.learn.hooks.collect.rows": 32, "algorithm.epochs": 1, "preflight.enabled": False}
named = reverie.train("__main__.MyEnv:ppo", overrides=small, steps=32)
given = reverie.train(MyEnv, overrides=small, steps=32)
made = reverie.train(lambda: MyEnv(5), overrides=small, steps=32)
for run in (named, given, made):
    agent = reverie.load(run)
    action, state = agent.predict(np.zeros((2, 3)))
    print(run.name, agent.about["env"]["vector"], action.shape, agent.evaluate(episodes=2)["lengths"])
"""


def test_envs_of_a_script_or_notebook_are_trained_on(tmp_path: Path) -> None:
    """Code from stdin, as in a notebook: there is no file that a worker could import."""
    code = [sys.executable, "-"]
    done = subprocess.run(code, input=SCRIPT, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "MyEnv-ppo-s0-1 sync (2,) [3, 3]",
        "MyEnv-ppo-s0-2 sync (2,) [3, 3]",
        "Python-env-ppo-s0-1 sync (2,) [5, 5]",
    ]
    with pytest.raises(ReverieError, match="the script or notebook that defined it"):
        reverie.load(tmp_path / "runs" / "MyEnv-ppo-s0-1", trust=True)
    with pytest.raises(ReverieError, match="as a Python object, which exists only in that program"):
        reverie.load(tmp_path / "runs" / "Python-env-ppo-s0-1")


def test_public_names_are_listed() -> None:
    assert {"train", "load", "Agent", "ReverieError", "__version__"} <= set(dir(reverie))
    assert all(getattr(reverie, name) is not None for name in dir(reverie))


def test_errors_are_raised_with_their_fix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gama"):
        reverie.train(SMALL[0], "algorithm.gama=1", runs_dir=tmp_path)
    with pytest.raises(RunError, match="no runs"):
        reverie.load(runs_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_config_error_during_build_leaves_no_run(tmp_path: Path) -> None:
    words = ["algorithm.network={kind: tests.contracts.test_networks.NoFeatures}", "env.vector=sync"]
    with pytest.raises(ConfigError, match="NoFeatures"):
        reverie.train("CartPole-v1:ppo", *words, runs_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_config_error_after_build_keeps_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("found late")

    monkeypatch.setattr("reverie.training.orchestrator.Orchestrator.run", refuse)
    with pytest.raises(ConfigError, match="found late"):
        reverie.train("CartPole-v1:ppo", *TINY, steps=64, runs_dir=tmp_path)
    assert reverie.find("@last", tmp_path).state == "failed"
