"""Config of the environment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config

UNCHANGED = (1.0, 1.0)
Range = tuple[float, float]
VectorKind = Literal["auto", "sync", "process", "native", "envpool", "jax"]
DecidedVector = Literal["sync", "process", "native", "envpool", "jax"]
BATCHED = ("native", "envpool", "jax")
"""Vectors that step many envs at once."""
UNSEEDED = ("native", "envpool")
"""Vectors whose episodes have no seeds of their own, so evaluations use sync instead."""


class EnvDescription(Config):
    """Description of the task, for ``reverie envs list`` and reports."""

    summary: str = ""
    """The task in one sentence."""
    observation: str = ""
    """Content of the observation."""
    actions: str = ""
    """Meaning of the actions."""
    reward: str = ""
    """What is rewarded."""
    solved_at: float | None = None
    """Mean evaluation return at which the task counts as solved."""
    random: float | None = None
    """Mean return of random play: 0 in normalised scores."""
    reference: float | None = None
    """Return that counts as 1 in normalised scores, such as that of a person."""


class VaryRange(Config):
    """Ranges of the factor that multiplies a property. [1, 1] leaves it unchanged."""

    train: Range = UNCHANGED
    """Lowest and highest factor in training."""
    evaluate: Range = UNCHANGED
    """Lowest and highest factor in evaluations, and wherever else a trained policy acts."""


class VaryConfig(Config):
    """What differs between episodes."""

    colour: VaryRange = VaryRange()
    """Red, green and blue of all surfaces, with a factor each."""
    mass: VaryRange = VaryRange()
    """Masses and moments of inertia."""
    friction: VaryRange = VaryRange()
    """Sliding friction."""

    def ranges(self) -> dict[str, Range]:
        """The ranges of training that change something."""
        ranges = {name: getattr(self, name).train for name in type(self).model_fields}
        return {name: found for name, found in ranges.items() if found != UNCHANGED}

    def of_evaluation(self) -> VaryConfig:
        """The same with the ranges of evaluations in the place of those of training."""
        ranges = {name: getattr(self, name).evaluate for name in type(self).model_fields}
        return VaryConfig(**{name: VaryRange(train=found, evaluate=found) for name, found in ranges.items()})


class EnvConfig(Config):
    """The environment of a run."""

    id: str
    """A Gymnasium id, or the dotted path of your own env class."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the env's constructor."""
    obs: str = ""
    """Form of the observation, of those that the env's suite offers, such as ram for Atari. pixels: the rendered frame,
    for any env. Empty: the env's own observation."""
    num_envs: int = Field(1, ge=1)
    """Number of copies that run in parallel."""
    vector: VectorKind = "auto"
    """How the copies run. sync: in this process. process: in worker processes. native: the env's own vector class;
    envpool: EnvPool's threads. Episodes of both differ. jax: one compiled program steps all copies of an env that is
    written in JAX. auto: jax where it is possible; otherwise times one env and chooses sync or process, whose rows are
    identical."""
    workers: int = Field(0, ge=0)
    """Number of worker processes for vector: process, of threads for envpool. 0: one per core, at most one per env."""
    max_crashes: int = Field(20, ge=0)
    """How often worker processes may crash and be restarted before the run stops. If an env raises the same exception
    twice in a row, the run stops at once."""
    wrappers: tuple[Annotated[ComponentConfig, Component("wrapper")], ...] = ()
    """Wrappers around each env, innermost first."""
    vary: VaryConfig = VaryConfig()
    """Colours, masses and frictions that differ between episodes, for studies of robustness."""
    max_episode_steps: int | None = Field(None, ge=1)
    """Truncate episodes after this many steps. Empty: the env's own limit."""
    replay_steps: int = Field(100_000, ge=1)
    """Longest episode, in steps, that a checkpoint can restore: a resume replays its actions. A resume inside a longer
    episode truncates it and starts a new one, unless the simulator's state can be saved."""
    log_keys: tuple[str, ...] = ()
    """Entries of the env's info that are logged as log/<key>, such as success or regret."""
    spec: EnvDescription = EnvDescription()
    """Description of the task, for people."""

    def for_evaluation(self) -> EnvConfig:
        """The env in which trained policies act: its variations have the ranges of evaluations."""
        return self.model_copy(update={"vary": self.vary.of_evaluation()})
