"""``reverie foresee``: measures the foresight of a policy's world model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.build import make_evaluator
from reverie.config.schema import EvaluateConfig, ForesightConfig
from reverie.core.contracts import WorldModel
from reverie.core.counters import Counters
from reverie.core.errors import RunError
from reverie.core.traits import algorithms_with_a_world_model
from reverie.envs.config import EnvConfig
from reverie.runs.foresight_files import to_json, write_look
from reverie.runs.policies import load_any_policy
from reverie.store.run_folder import FORESIGHT, FORESIGHT_NUMBERS


@dataclass(frozen=True)
class Wanted:
    """The policy and the settings of the measurement. None: as in the run's evaluations."""

    policy: str = "final"
    seed: int | None = None
    steps: int | None = None
    dreams: int | None = None
    envs: int | None = None
    out: Path | None = None


def foresee_run(run: Path, wanted: Wanted) -> dict[str, Any]:
    """Compare a world model's dreams with new episodes. Writes the files and returns the numbers."""
    policy, about = load_any_policy(run, wanted.policy)
    if not isinstance(policy.algorithm, WorldModel):
        kind = policy.algorithm.config.kind
        others = ", ".join(algorithms_with_a_world_model())
        raise RunError(f"The run '{run.name}' has no world model: {kind} learns without one.", f"With one: {others}.")
    evaluate = EvaluateConfig.model_validate(about["evaluate"])
    given = {"steps": wanted.steps, "dreams": wanted.dreams, "enabled": True}
    settings = {**evaluate.foresight.model_dump(), **{k: v for k, v in given.items() if v is not None}}
    evaluate = evaluate.model_copy(
        update={
            "foresight": ForesightConfig.model_validate(settings),
            "num_envs": wanted.envs or evaluate.num_envs,
        }
    )
    seed = int(about["seed"]) if wanted.seed is None else wanted.seed
    evaluator = make_evaluator(EnvConfig.model_validate(about["env"]), evaluate, seed)
    try:
        look = evaluator.measure_foresight(policy, Counters.saved_in(about).clock())
    finally:
        evaluator.close()
    assert look is not None
    folder = wanted.out or run / FORESIGHT / f"{wanted.policy}-{about['env_steps']}"
    source = {"run": run.name, "policy": wanted.policy, "env_steps": about["env_steps"], "seed": seed}
    write_look(look, folder, source)
    return {**source, "folder": str(folder), "numbers": FORESIGHT_NUMBERS, **to_json(look)}
