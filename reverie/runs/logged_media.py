"""Media for sinks that can draw (TensorBoard, W&B, your own).

Histograms of weights at each evaluation, and a figure with the curve of all evaluations at the end. Inactive without
such a sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from reverie.config.resolve import budget_of
from reverie.config.schema import RunConfig
from reverie.core.types import Array, State
from reverie.foresight.figures import draw_curve
from reverie.log.sinks import read_jsonl
from reverie.store.run_folder import RunFolder
from reverie.training.session import Session

MOST_HISTOGRAMS = 40
MOST_VALUES = 10_000
"""Larger arrays are thinned out, which does not change how their histograms look."""
CURVE = ("evaluate/return_mean", "evaluate/return_low", "evaluate/return_high")


def has_viewers(config: RunConfig) -> bool:
    """Whether the run has a sink that may show media."""
    return any(logger.kind != "csv" for logger in config.log.all_loggers())


class LoggedMedia:
    """Sends histograms and figures to the recorder."""

    def __init__(self, config: RunConfig, folder: RunFolder, say: Callable[[str], None]) -> None:
        self.say = say
        self.is_on = has_viewers(config)
        self.title = f"{config.env.id} · {config.algorithm.kind} · seed {config.seed}"
        self.goal = config.env.spec.solved_at
        self.budget = budget_of(config.phases)
        self.curve: list[list[float]] = []
        if self.is_on:
            with suppress(OSError, ValueError, KeyError):
                lines = read_jsonl(folder.path / "metrics.jsonl")
                keys = (self.budget.counter, *CURVE)
                self.curve = [[line[key] for key in keys] for line in lines if CURVE[0] in line]

    def end_cycle(self, session: Session) -> None:
        """Nothing to do: only evaluations matter here."""

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        if not self.is_on:
            return
        words = [key.partition("/")[2] for key in CURVE]
        self.curve.append([session.counters.progress(self.budget), *(summary[word] for word in words)])
        for name, values in _arrays(session.algorithm.policy_state()):
            session.recorder.show("histogram", f"weights/{name}", values=values)

    def finish(self, session: Session) -> None:
        """Send the curve of all evaluations. Called at the end of the run."""
        if not self.is_on or not self.curve:
            return
        try:
            image = draw_curve(np.array(self.curve), self.title, self.budget.unit, self.goal)
            session.recorder.show("figure", "evaluate/curve", image=image)
        except Exception as error:  # the run must not fail because of a figure
            self.say(f"The curve of evaluations could not be drawn: {type(error).__name__}: {error}")


def _arrays(state: State) -> Iterator[tuple[str, Array]]:
    """The first float arrays of a state, with their names, thinned out."""
    found: list[tuple[str, Any]] = [(key.replace(".", "/"), value) for key, value in _leaves(state)]
    floats = [(name, value) for name, value in found if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    for name, value in floats[:MOST_HISTOGRAMS]:
        yield name, value.ravel()[:: -(-value.size // MOST_VALUES) or 1]


def _leaves(state: State, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
