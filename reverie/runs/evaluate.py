"""Evaluates a saved policy."""

from __future__ import annotations

from typing import Any

from reverie.build import make_evaluator
from reverie.config.schema import EvaluateConfig
from reverie.core.counters import Counters
from reverie.core.errors import ConfigError
from reverie.envs.config import EnvConfig
from reverie.policy import Policy
from reverie.training.evaluator import summarise


def evaluate_policy(
    policy: Policy, about: dict[str, Any], episodes: int, seed: int | None = None, sample: bool | None = None
) -> dict[str, Any]:
    """Play episodes and summarise the scores. ``about`` comes with the loaded policy.

    ``seed`` and ``sample`` default to those of the run's evaluations.
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise ConfigError(f"{episodes!r} is not a number of episodes.", "Pass a whole number, at least 1.")
    settings = EvaluateConfig.model_validate(about["evaluate"])
    if sample is not None:
        settings = settings.model_copy(update={"sample": sample})
    seed = int(about["seed"]) if seed is None else seed
    env = EnvConfig.model_validate(about["env"])
    evaluator = make_evaluator(env, settings, seed)
    try:
        scores = evaluator.evaluate(policy, episodes, Counters.saved_in(about).clock())
    finally:
        evaluator.close()
    each = {"returns": [score.total for score in scores], "lengths": [score.length for score in scores]}
    return {"seed": seed, "sample": settings.sample, **summarise(scores, seed, env.id), "episodes": episodes, **each}
