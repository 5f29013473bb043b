"""BSuite: episodes, measures, and the results file that its own analysis reads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie import api
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_vector
from reverie.log.bsuite import is_written

pytestmark = [
    pytest.mark.needs("bsuite"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
SETTINGS = ["catch/0", "catch_noise/3", "bandit/2", "cartpole/1", "cartpole_swingup/0", "deep_sea/0", "memory_len/5",
            "umbrella_distract/2", "discounting_chain/1", "mountain_car_scale/1", "deep_sea_stochastic/0"]  # fmt: skip


def play(env: Any, seed: int) -> list[Any]:
    rng = make_generator("actions")
    found: list[Any] = [env.reset(seed=seed)]
    for _ in range(40):
        found.append(env.step(rng.integers(env.action_space.n)))
        if found[-1][2] or found[-1][3]:
            break
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_episode_follows_from_its_seed_alone(setting: str) -> None:
    config = EnvConfig(id=f"bsuite/{setting}")
    with closing(make_env(config)) as fresh, closing(make_env(config)) as used:
        play(used, 9)
        for one, other in zip(play(fresh, 3), play(used, 3), strict=True):
            assert fresh.observation_space.contains(one[0])
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1:] == other[1:]


def test_the_setting_decides_the_task_not_the_seed() -> None:
    def best_arm(setting: str, seed: int) -> int:
        with closing(make_env(EnvConfig(id=f"bsuite/bandit/{setting}"))) as env:
            rewards = [env.reset(seed=seed) and env.step(arm)[1] for arm in range(11)]
        return int(np.argmax(rewards))

    assert best_arm("0", 1) == best_arm("0", 2)
    assert len({best_arm(str(setting), 1) for setting in range(6)}) > 1


def test_measures_are_those_of_the_episode() -> None:
    with closing(make_env(EnvConfig(id="bsuite/catch/0"))) as env:
        for seed in range(6):
            _, info = env.reset(seed=seed)
            assert info == {"total_regret": 0}
            for _ in range(9):
                _, reward, terminated, truncated, info = env.step(0)
            assert terminated
            assert not truncated
            assert info["total_regret"] == 1 - reward


def test_workers_know_the_second_name() -> None:
    config = EnvConfig(id="bsuite/catch/0", vector="process", workers=2)
    with closing(make_vector(config, seed=1, num_envs=2)) as vector:
        assert vector.reset()["obs"].shape == (2, 10, 5)


def test_an_unknown_experiment_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no experiment 'cach/0'") as caught:
        make_env(EnvConfig(id="bsuite/cach/0"))
    assert "catch/0" in caught.value.fix


def test_written_episodes_are_those_of_bsuite() -> None:
    from bsuite.utils.wrappers import _logarithmic_logging

    episodes = range(1, 20_001)
    assert [e for e in episodes if is_written(e)] == [e for e in episodes if _logarithmic_logging(e)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of a run of 240 episodes, which stopped in the middle and was resumed."""
    folder, runs = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("runs")
    small = ("algorithm.epochs=1", "evaluate.final_episodes=1", "phases.learn.evaluate={episodes: 1, every_steps: 1e6}",
             f"log.loggers=[{{kind: bsuite, folder: {folder}}}]", "phases.learn.collect.rows=64")  # fmt: skip
    half = api.train("bsuite/catch/0:ppo", *small, seed=1, steps=1080, runs_dir=runs)
    api.resume(half.path, steps=2160, runs_dir=runs)
    return folder


def test_bsuites_analysis_reads_the_file(results: Path) -> None:
    from bsuite.experiments.catch import analysis
    from bsuite.logging import csv_load

    assert [path.name for path in results.iterdir()] == ["bsuite_id_-_catch-0.csv"]
    table, sweep_variables = csv_load.load_bsuite(str(results))
    assert set(table.bsuite_id) == {"catch/0"}
    assert table.episode.tolist()[:3] == [1, 2, 3]
    assert table.episode.max() >= 200
    assert (table.steps == 9 * table.episode).all()
    assert (table.total_regret == table.episode - table.total_return).all()
    assert 0 <= analysis.score(table) <= 1
    assert sweep_variables is not None
