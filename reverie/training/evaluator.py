"""Plays evaluation episodes with a fixed policy on separate envs and summarises the scores.

Episode i always starts from the seed (run seed, "evaluate", i). The policy draws from (run seed, "evaluate", env steps,
updates). So evaluation has no state to save: after a resume, an interrupted evaluation is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from reverie.config.schema import EvaluateConfig
from reverie.core.contracts import Vector, WorldModel
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.statistics import interquartile_mean
from reverie.core.types import Array, Clock, Mode, Row, State, is_last
from reverie.data.rows import stack_rows
from reverie.envs.config import EnvConfig
from reverie.envs.probe import probe_env
from reverie.envs.suites import find_suite
from reverie.foresight.measure import Measurement, measure
from reverie.log.progress import Task, progress
from reverie.policy import Policy
from reverie.training.interaction import Interaction, PolicyPlayer

BOOTSTRAP_DRAWS = 1000
LONGEST_EPISODE = 10_000
"""Time limit of evaluation episodes in envs that have no limit of their own."""
StopCheck = Callable[[], bool]


class EvaluationStopped(Exception):
    """The run was asked to stop in the middle of an evaluation."""


def never() -> bool:
    """A ``StopCheck`` for callers that never stop early."""
    return False


@dataclass(frozen=True)
class EpisodeScore:
    """One finished episode."""

    episode: int
    total: float
    length: int
    logs: dict[str, float] = field(default_factory=dict)


class Evaluator:
    """Reuses one vector of envs, which is set back to episode 0 before every evaluation."""

    def __init__(self, config: EvaluateConfig, seed: int, make_vector: Callable[[int], Vector]) -> None:
        self.config = config
        self.seed = seed
        self.make_vector = make_vector
        self.last_foresight: Measurement | None = None
        self._vectors: dict[int, tuple[Vector, State]] = {}

    def evaluate(
        self, policy: Policy, episodes: int, clock: Clock, should_stop: StopCheck = never
    ) -> list[EpisodeScore]:
        """Score the policy. Raises EvaluationStopped as soon as ``should_stop`` returns True."""
        rng = make_generator(self.seed, "evaluate", clock.env_steps, clock.updates)
        mode = Mode.COLLECT if self.config.sample else Mode.EVALUATE
        vector = self._fresh_vector(min(episodes, self.config.num_envs))
        with progress("evaluating", total=episodes) as task:
            interaction = Interaction(vector, PolicyPlayer.at(policy, mode, clock, rng))
            return play(interaction, episodes, _ticker(should_stop), task)

    def measure_foresight(self, policy: Policy, clock: Clock, should_stop: StopCheck = never) -> Measurement | None:
        """Compare the world model's open-loop predictions with new episodes. None without a world model."""
        settings = self.config.foresight
        if not settings.enabled or not isinstance(policy.algorithm, WorldModel):
            return None
        rng = make_generator(self.seed, "foresight", clock.env_steps, clock.updates)
        vector = self._fresh_vector(self.config.num_envs)
        with progress("measuring foresight", total=settings.rows) as task:
            # Actions are sampled, as in the rows that the model learns from. Greedy actions would visit fewer states.
            interaction = Interaction(vector, PolicyPlayer.at(policy, Mode.COLLECT, clock, rng))
            rows = play_rows(interaction, settings.rows, _ticker(should_stop), task)
            self.last_foresight = measure(policy, rows, settings.context, settings.steps, rng)
        return self.last_foresight

    def close(self) -> None:
        for vector, _ in self._vectors.values():
            vector.close()
        self._vectors = {}

    def _fresh_vector(self, num_envs: int) -> Vector:
        if num_envs not in self._vectors:
            vector = self.make_vector(num_envs)
            self._vectors[num_envs] = (vector, vector.state())
        vector, unused = self._vectors[num_envs]
        vector.load_state(unused)
        return vector


def check_time_limit(env: EnvConfig, specs: Specs) -> None:
    """Refuse envs whose episodes may never end: no time limit, and random play did not end an episode either."""
    if specs.max_episode_steps is None:
        probe_env(env).require_end()


def with_limit(env: EnvConfig) -> EnvConfig:
    """The env with a time limit. A policy that stands still might never end its episode."""
    return env.model_copy(update={"max_episode_steps": LONGEST_EPISODE})


def play(interaction: Interaction, episodes: int, tick: Callable[[], None], task: Task) -> list[EpisodeScore]:
    """Play ``episodes`` episodes, spread evenly over N envs: env i plays the episodes i, i + N, i + 2N ...

    ``tick`` is called before every step and may raise.
    """
    count = interaction.vector.num_envs
    quota = np.array([len(range(env, episodes, count)) for env in range(count)])
    finished, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    returns = np.zeros(count)
    scores: list[EpisodeScore] = []
    interaction.restart()
    while (finished < quota).any():
        tick()
        playing = finished < quota
        row = interaction.step(interaction.act()["action"], None if playing.all() else playing)
        returns = np.where(row["is_first"], 0.0, returns + row["reward"])
        lengths = np.where(row["is_first"], 0, lengths + 1)
        for env in np.flatnonzero(is_last(row) & playing):
            logs = {key: float(row[key][env]) for key in row if key.startswith("log/")}
            number = int(env + finished[env] * count)
            scores.append(EpisodeScore(number, float(returns[env]), int(lengths[env]), logs))
            finished[env] += 1
            task.advance()
    return sorted(scores, key=lambda score: score.episode)


def play_rows(interaction: Interaction, count: int, tick: Callable[[], None], task: Task) -> Row:
    """``count`` rows of each env (N, T), from the start of an episode, with ``previous_action`` and ``action``."""
    interaction.restart()
    rows: list[Row] = []
    for _ in range(count):
        tick()
        row = interaction.act()
        rows.append({key: row[key].copy() for key in (*interaction.now, "action")})
        interaction.step(row["action"])
        task.advance()
    return stack_rows(rows, axis=1)


def _ticker(should_stop: StopCheck) -> Callable[[], None]:
    """A function that raises EvaluationStopped once a stop is requested."""

    def tick() -> None:
        if should_stop():
            raise EvaluationStopped

    return tick


def summarise(scores: Sequence[EpisodeScore], seed: int, env_id: str = "") -> dict[str, float]:
    """Mean, standard deviation, interquartile mean, extremes and a bootstrap interval of the mean return.

    With the score of the env's suite, if it has one of its own.
    """
    returns = np.array([score.total for score in scores])
    low, high = bootstrap_interval(returns, seed)
    summary = {
        "episodes": float(len(returns)),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_iqm": interquartile_mean(returns),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "return_low": low,
        "return_high": high,
        "length_mean": float(np.mean([score.length for score in scores])),
    }
    for key in sorted({key for score in scores for key in score.logs}):
        summary[key] = float(np.mean([score.logs[key] for score in scores]))
    return summary | _suite_score(scores, env_id)


def _suite_score(scores: Sequence[EpisodeScore], env_id: str) -> dict[str, float]:
    suite = find_suite(env_id)
    if suite is None or suite.success_score is None:
        return {}
    rates = {key: float(np.mean([score.logs.get(key, 0) > 0 for score in scores])) for key in scores[0].logs}
    return suite.success_score.of_rates(rates)


def bootstrap_interval(values: Array, seed: int, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean."""
    rng = make_generator(seed, "bootstrap")
    draws = rng.choice(values, (BOOTSTRAP_DRAWS, len(values))).mean(1)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
