"""The loop under a magnifying glass: ``debug: true``. A run of its own kind, whose bits may differ from a normal one's.

Everything goes to ``<run>/debug``: ``trace.json`` (a profile of the first updates), ``layers.jsonl`` (sizes of weights
and gradients at each line of metrics). An alert tells whether repeated updates on the first batch reduce its loss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reverie import diagnostics
from reverie.build import copy_algorithm
from reverie.core.rng import make_generator
from reverie.core.types import Batch, Update
from reverie.log.sinks import read_jsonl
from reverie.training.evaluator import Evaluator, StopCheck
from reverie.training.orchestrator import CyclePart, Orchestrator
from reverie.training.session import Session

TRACED_UPDATES = 3
"""A hook that does many updates in one call is traced for that call."""
OVERFIT_UPDATES, OVERFIT_CALLS = 50, 5
ENOUGH = 0.99
"""A loss that falls below this share of its first value is being learnt."""


class LayerLog:
    """Writes ``layers.jsonl``: a line whenever there is one of metrics."""

    def __init__(self, folder: Path, session: Session) -> None:
        self.path = folder / "layers.jsonl"
        self.lines = session.recorder.lines
        kept = [line for line in read_jsonl(self.path) if line["env_steps"] <= session.counters.env_steps]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def end_cycle(self, session: Session) -> None:
        if session.recorder.lines == self.lines:
            return
        self.lines = session.recorder.lines
        counters = session.counters
        line = {"env_steps": counters.env_steps, "updates": counters.updates}
        layers = diagnostics.layer_statistics(session.algorithm)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "layers": layers}) + "\n")

    def end_evaluation(self, session: Session, summary: dict[str, float]) -> None:
        """Evaluations change no weights."""


class DebugOrchestrator(Orchestrator):
    """Stops at the operation that spoils a gradient, and looks at the first updates more closely."""

    def __init__(
        self, session: Session, evaluator: Evaluator, parts: Sequence[CyclePart], should_stop: StopCheck, run: Path
    ) -> None:
        self.folder = run / "debug"
        self.folder.mkdir(exist_ok=True)
        super().__init__(session, evaluator, [*parts, LayerLog(self.folder, session)], should_stop)
        self._profile: diagnostics.Profile | None = None

    def run(self) -> bool:
        with diagnostics.anomaly_detection():
            try:
                return super().run()
            finally:
                self._save_profile()

    def learn(self, hook: str, batch: Batch) -> Update:
        session = self.session
        if session.counters.updates == 0 and self._profile is None:
            self._tell_overfit(hook, batch)
            self._profile = diagnostics.Profile()
        update = super().learn(hook, batch)
        if session.counters.updates + update.count >= TRACED_UPDATES:
            self._save_profile()
        return update

    def _tell_overfit(self, hook: str, batch: Batch) -> None:
        level, message = check_overfit(self.session, hook, batch)
        self.session.recorder.alert(level, "overfit", message)

    def _save_profile(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.save(self.folder / "trace.json")


def check_overfit(session: Session, hook: str, batch: Batch) -> tuple[str, str]:
    """Whether a throw-away copy of the algorithm gets better on one batch: a level and what came of it."""
    losses = repeat_update(session, hook, batch)
    names = [name for name in losses[0] if name == "loss" or name.endswith("_loss") or name.startswith("loss_")]
    if not names:
        return "info", f"'{hook}' reports no loss, so nobody knows whether repeated updates on one batch reduce it."
    shares = {name: losses[-1][name] / losses[0][name] for name in names if losses[0][name] > 0}
    best = min(shares, key=lambda name: shares[name], default=names[0])
    numbers = f"{best} went from {losses[0][best]:.4g} to {losses[-1][best]:.4g} in {len(losses)} calls of '{hook}'"
    if shares.get(best, 1.0) < ENOUGH:
        return "info", f"Repeated updates on the first batch reduce its loss: {numbers}."
    return "warning", (
        f"Repeated updates on the first batch do not reduce its loss: {numbers}. Look at debug/layers.jsonl for layers "
        "without gradients, and try another algorithm.learning_rate. (Where targets follow the algorithm's own values, "
        "as in short rollouts, a loss may also rise before it falls.)"
    )


def repeat_update(session: Session, hook: str, batch: Batch) -> list[dict[str, float]]:
    """The metrics of a copy that is updated on the same batch, with the same noise, again and again."""
    algorithm, counters = copy_algorithm(session), session.counters
    done = 0
    calls: list[dict[str, float]] = []
    while done < OVERFIT_UPDATES or len(calls) < OVERFIT_CALLS:
        clock = replace(counters.clock(), updates=counters.updates + done)
        update: Update = getattr(algorithm, hook)(batch, clock, make_generator(session.config.seed, "overfit"))
        calls.append({name: float(value) for name, value in update.metrics.items()})
        done += max(1, update.count)
    return calls
