"""A world model without a decoder, for ``Reverie/Counting-v0``: its latent is the step of the episode."""

from __future__ import annotations

import numpy as np

from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.types import Array, Batch, Observed, Row
from reverie.envs.suites.reverie.counting import STEP, read_counting
from tests.toys import ToyPlanner


class ToyWorldModel(ToyPlanner):
    """Knows that steps count up and that the reward is the step, but counts too fast by ``drift`` per step."""

    class Config(ComponentConfig):
        """Its error."""

        kind: str = "tests.toy_world_model.ToyWorldModel"
        """This class."""
        drift: float = 0.5
        """What each imagined step adds to the true one."""

    traits = Traits(actions=("discrete",), observes=True)

    def initial(self, num_envs: int) -> Row:
        return {"step": np.full((num_envs, 1), -1, np.float32)}

    def observe(self, rows: Batch, rng: np.random.Generator) -> Observed:
        return Observed({"step": read_counting(dict(rows))[..., STEP, None].astype(np.float32)}, {"consistency": 0.25})

    def imagine(self, latents: Row, actions: Array, rng: np.random.Generator) -> Row:
        ahead = np.arange(1, actions.shape[1] + 1, dtype=np.float32)[:, None]
        return {"step": latents["step"][:, None] + ahead * (1 + self.config.drift)}

    def predict(self, latents: Row) -> Row:
        step = latents["step"][..., 0]
        return {"reward": step, "continuation": np.ones_like(step), "value": 2 * step}
