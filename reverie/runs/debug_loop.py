"""The training loop with diagnostics: ``debug: true``. Results may differ in bits from those of a normal run.

It writes to ``<run>/debug``: ``trace.json`` (a profile of the first updates) and ``layers.jsonl`` (sizes of weights and
gradients at each line of metrics). An alert reports whether repeated updates on the first batch reduce its loss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
"""A hook that makes more updates in one call is traced for that whole call."""
OVERFIT_UPDATES, OVERFIT_CALLS = 50, 5
REDUCED = 0.99
"""The loss counts as reduced if it falls below this fraction of its first value."""


class LayerLog:
    """Writes ``layers.jsonl``: one line per line of metrics."""

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
        """Does nothing: an evaluation changes no weights."""


class DebugOrchestrator(Orchestrator):
    """Stops at the operation that makes a gradient NaN, and profiles the first updates."""

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
            self._report_overfit(hook, batch)
            self._profile = diagnostics.Profile()
        update = super().learn(hook, batch)
        if session.counters.updates + update.count >= TRACED_UPDATES:
            self._save_profile()
        return update

    def _report_overfit(self, hook: str, batch: Batch) -> None:
        level, message = check_overfit(self.session, hook, batch)
        self.session.recorder.alert(level, "overfit", message)

    def _save_profile(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.save(self.folder / "trace.json")


def check_overfit(session: Session, hook: str, batch: Batch) -> tuple[str, str]:
    """Check whether a copy of the algorithm can reduce its loss on one batch. Returns an alert's level and text."""
    losses = repeat_update(session, hook, batch)
    names = [name for name in losses[0] if name == "loss" or name.endswith("_loss") or name.startswith("loss_")]
    if not names:
        return "info", f"'{hook}' reports no loss, so it is unknown whether repeated updates on one batch reduce it."
    ratios = {name: losses[-1][name] / losses[0][name] for name in names if losses[0][name] > 0}
    best = min(ratios, key=lambda name: ratios[name], default=names[0])
    numbers = f"{best} went from {losses[0][best]:.4g} to {losses[-1][best]:.4g} in {len(losses)} calls of '{hook}'"
    if ratios.get(best, 1.0) < REDUCED:
        return "info", f"Repeated updates on the first batch reduce its loss: {numbers}."
    return "warning", (
        f"Repeated updates on the first batch do not reduce its loss: {numbers}. Check debug/layers.jsonl for layers "
        "without gradients, and try another algorithm.learning_rate. (A loss may also rise before it falls where "
        "targets depend on the algorithm's own values, as in short rollouts.)"
    )


def repeat_update(session: Session, hook: str, batch: Batch) -> list[dict[str, float]]:
    """The metrics of a copy that is repeatedly updated on the same batch with the same noise."""
    algorithm, counters = copy_algorithm(session), session.counters
    done = 0
    calls: list[dict[str, float]] = []
    while done < OVERFIT_UPDATES or len(calls) < OVERFIT_CALLS:
        clock = counters.clock()._replace(updates=counters.updates + done)
        update: Update = getattr(algorithm, hook)(batch, clock, make_generator(session.config.seed, "overfit"))
        calls.append({name: float(value) for name, value in update.metrics.items()})
        done += max(1, update.count)
    return calls
