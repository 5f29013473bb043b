"""What an environment is and how many copies of it run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from reverie.core.config import Component, ComponentConfig, Config

VectorKind = Literal["auto", "sync", "process", "native"]


class EnvDescription(Config):
    """What the numbers mean, for people: shown by ``reverie envs list`` and in reports."""

    summary: str = ""
    """What the task is, in a sentence."""
    observation: str = ""
    """What the observation holds."""
    actions: str = ""
    """What the actions do."""
    reward: str = ""
    """What is rewarded."""
    solved_at: float | None = None
    """Mean evaluation return from which the task counts as solved."""


class EnvConfig(Config):
    """The environment of a run."""

    id: str
    """A Gymnasium id, or the dotted path of an env class of your own."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments for the env's constructor."""
    num_envs: int = Field(1, ge=1)
    """How many copies run side by side."""
    vector: VectorKind = "auto"
    """How the copies run: in this process, in worker processes, or as the env's own vector class. ``auto``
    times one env and chooses sync or process, which give the same bits; native gives others: ask for it."""
    workers: int = Field(0, ge=0)
    """Worker processes for vector: process; 0 means one per core, at most one per env."""
    max_crashes: int = Field(20, ge=0)
    """How often worker processes may crash and be started again before the run stops. The same exception of an
    env twice in a row stops it in any case."""
    wrappers: tuple[Annotated[ComponentConfig, Component("wrapper")], ...] = ()
    """Wrappers around each env, innermost first."""
    max_episode_steps: int | None = Field(None, ge=1)
    """Cut episodes after this many steps; empty keeps the env's own limit."""
    replay_steps: int = Field(100_000, ge=1)
    """Longest episode, in steps, that checkpoints keep: restoring an env repeats its actions. A resume inside a longer
    one cuts it and begins a new episode, unless the simulator's own state can be saved."""
    log_keys: tuple[str, ...] = ()
    """Entries of the env's info to record as log/<key> (success, regret)."""
    spec: EnvDescription = EnvDescription()
    """What observation, actions and reward mean."""
