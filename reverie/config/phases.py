"""The schema of a training curriculum: phases of hooks, read from YAML.

```yaml
phases:
  - name: learn
    hooks:
      - collect: {rows: 256}
      - update: {}
      - evaluate: {episodes: 10, every_steps: 10_000}
    duration_steps: 100_000
```
A hook is one key, its name, with its amounts below. The orchestrator runs ``collect``, ``evaluate`` and ``validate``.
Every other hook is a method of the algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_serializer, model_validator

from reverie.core.config import Config


class Hook(Config):
    """One entry of a cycle. Which amounts make sense depends on the hook; an update without any runs once."""

    name: str
    """collect, evaluate, validate, or a hook that the algorithm offers (update, update_<word>)."""
    rows: int | None = Field(None, ge=1)
    """collect: rows per rollout, all envs together. Rows that start an episode count too."""
    episodes: int | None = Field(None, ge=1)
    """collect: finished episodes, the same number from each env; evaluate: how many to play."""
    batches: int | None = Field(None, ge=1)
    """validate: how many batches of held-out data to read."""
    updates: int | None = Field(None, ge=1)
    """update: how many updates to do each cycle."""
    train_ratio: float | None = Field(None, gt=0)
    """update: replayed rows per env step."""
    updates_per_step: float | None = Field(None, gt=0)
    """update: updates per env step; another way to say train_ratio."""
    epochs: int | None = Field(None, ge=1)
    """update: passes over the rows that the buffer holds when the hook starts, each cycle."""
    buffer: str | None = None
    """update: the buffer it reads, instead of the phase's."""
    into: tuple[str, ...] | None = Field(None, min_length=1)
    """collect: the buffers that get the rows, instead of the phase's."""
    every_steps: int | None = Field(None, ge=1)
    """Run only when this many env steps have passed since the last time."""
    every_updates: int | None = Field(None, ge=1)
    """Run only when this many updates have passed since the last time."""
    every_cycles: int | None = Field(None, ge=1)
    """Run only when this many cycles have passed since the last time."""

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if isinstance(data, dict) and "name" not in data and len(data) == 1:
            (name, amounts), *_ = data.items()
            if amounts is None or isinstance(amounts, dict):
                return {"name": name, **(amounts or {})}
        return data

    @model_serializer
    def _to_short_form(self) -> dict[str, Any]:
        amounts = {key: getattr(self, key) for key in type(self).model_fields if key != "name"}
        return {self.name: {key: value for key, value in amounts.items() if value is not None}}


class Until(Config):
    """Ends a phase early, at the end of a cycle."""

    metric: str = "evaluate/return_mean"
    """A recorded metric."""
    at_least: float | None = None
    """Stop once the metric reaches this."""
    at_most: float | None = None
    """Stop once the metric falls to this."""

    @model_validator(mode="after")
    def _one_bound(self) -> Until:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give exactly one of at_least and at_most")
        return self


class Phase(Config):
    """A part of the training with its own cycle of hooks, or a loop over inner phases."""

    name: str
    """Shown in the console and recorded with every metric."""
    type: Literal["online", "offline", "eval_only"] = "online"
    """online collects; offline only updates from stored data; eval_only only evaluates."""
    buffer: str = "main"
    """The buffer that its hooks fill and read, unless they name others."""
    controller: str | None = None
    """Overrides the algorithm's actions while collecting, e.g. random."""
    hooks: tuple[Hook, ...] = ()
    """What one cycle does, in order."""
    duration_steps: int | None = Field(None, ge=1)
    """Ends at the first cycle end at or past this many env steps of the phase."""
    duration_updates: int | None = Field(None, ge=1)
    """The same, counted in updates."""
    duration_cycles: int | None = Field(None, ge=1)
    """The same, counted in cycles."""
    until: Until | None = None
    """Ends the phase early when a metric reaches a bound."""
    keep: tuple[str, ...] = ("algorithm", "buffer", "normaliser", "episodes")
    """What the next phase continues with: algorithm, buffer, normaliser, episodes. The rest is reset."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings for this phase only, as dotted keys (algorithm.learning_rate: 1e-4). Env settings apply to collecting:
    evaluations always play the run's own env."""
    repeat: int = Field(1, ge=1)
    """How many times the inner phases run."""
    phases: tuple[Phase, ...] = ()
    """Inner phases, run in order."""

    def read_by(self, hook: Hook) -> str:
        """The buffer that an update hook reads."""
        return hook.buffer or self.buffer

    def filled_by(self, hook: Hook) -> tuple[str, ...]:
        """The buffers that a collect hook fills."""
        return hook.into or (self.buffer,)

    def buffers(self) -> tuple[str, ...]:
        """All buffers that its hooks use, its own first."""
        named = [name for hook in self.hooks for name in (*(hook.into or ()), hook.buffer) if name]
        return tuple(dict.fromkeys((self.buffer, *named)))


def flatten_phases(phases: tuple[Phase, ...]) -> Iterator[Phase]:
    """The phases in the order in which they run, loops unrolled."""
    for phase in phases:
        if phase.phases:
            for _ in range(phase.repeat):
                yield from flatten_phases(phase.phases)
        else:
            yield phase
