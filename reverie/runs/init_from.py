"""Start a new run with weights of another one: ``reverie train ... --init-from RUN [--init-pattern GLOB]``.

Only arrays of the policy are copied, by name and shape. Optimiser, normaliser and counters start afresh. The other run
may have another algorithm or env. The arrays are also saved in the new run's folder: it can be resumed and verified
from its first step after the other run is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from reverie.core.contracts import Algorithm
from reverie.core.errors import RunError
from reverie.core.traits import algorithm_traits
from reverie.core.types import Array, State
from reverie.policy import read_bundle
from reverie.runs.policies import policy_folder
from reverie.store.trees import read_tree, write_tree

FILE = "initial"
LISTED = 12


@dataclass(frozen=True)
class InitialWeights:
    """Weights for a new run, and why others were left out."""

    source: str
    taken: dict[str, Array]
    left_out: dict[str, str] = field(default_factory=dict)

    def save(self, run: Path) -> None:
        write_tree(run / FILE, {"source": self.source, "weights": self.taken})

    def lines(self) -> list[str]:
        """The copied and the omitted weights as text."""
        lines = [f"Weights from {self.source}: {len(self.taken)} taken, {len(self.left_out)} left out."]
        lines += _shorten([f"  taken: {name} {array.shape}" for name, array in self.taken.items()])
        return lines + _shorten([f"  left out: {name}: {reason}" for name, reason in self.left_out.items()])


def choose_weights(algorithm: Algorithm, source: Path, pattern: str = "*") -> InitialWeights:
    """The arrays of a run's best policy whose names match and that fit a new algorithm. RunError if none does."""
    saved = dict(named_arrays(read_bundle(policy_folder(source)).get("algorithm", {})))
    theirs = _with_current_names(saved, algorithm.config.kind)
    own = dict(named_arrays(algorithm.policy_state()))
    reasons = {name: _reason(name, theirs, own, pattern) for name in {**theirs, **own}}
    taken = {name: theirs[name] for name, reason in reasons.items() if not reason}
    weights = InitialWeights(source.name, taken, {name: reason for name, reason in reasons.items() if reason})
    if not taken:
        lines = [f"No weight of '{source.name}' fits this run with the pattern '{pattern}'.", *weights.lines()[1:]]
        raise RunError("\n".join(lines), "Choose another --init-pattern, or a run with the same network.")
    return weights


def load_initial_weights(algorithm: Algorithm, run: Path) -> None:
    """Load the weights that ``--init-from`` saved for a run into its new algorithm, if there are any."""
    if not (run / f"{FILE}.json").exists():
        return
    saved = read_tree(run / FILE).get("weights")
    try:
        weights = _with_current_names(dict(saved or {}), algorithm.config.kind)
        algorithm.load_policy_state(_replaced(algorithm.policy_state(), weights))
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise RunError(f"{run / FILE} does not fit this run: {error}", "Start a new run with --init-from.") from error


def named_arrays(state: State, prefix: str = "") -> Iterator[tuple[str, Array]]:
    """The arrays of a state by their dotted names."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from named_arrays(value, f"{prefix}{key}.")
        elif isinstance(value, np.ndarray):
            yield f"{prefix}{key}", value


def _with_current_names(weights: dict[str, Array], kind: str) -> dict[str, Array]:
    """Weights of an earlier version by the names that the algorithm has for them today."""
    traits = algorithm_traits(kind)
    return {traits.current_name(name): array for name, array in weights.items()}


def _reason(name: str, theirs: dict[str, Array], own: dict[str, Array], pattern: str) -> str:
    """Why a weight is not taken; empty if it is."""
    if name not in theirs:
        return "only in the new run"
    if not fnmatchcase(name, pattern):
        return f"does not match '{pattern}'"
    if name not in own:
        return "the new run has none of that name"
    there, here = theirs[name], own[name]
    if there.shape != here.shape or there.dtype != here.dtype:
        return f"{there.dtype} {there.shape} there, {here.dtype} {here.shape} here"
    return ""


def _replaced(state: State, weights: dict[str, Array], prefix: str = "") -> State:
    """The state with some of its arrays replaced by name."""
    return {
        key: _replaced(value, weights, f"{prefix}{key}.")
        if isinstance(value, dict)
        else weights.get(f"{prefix}{key}", value)
        for key, value in state.items()
    }


def _shorten(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LISTED else [*lines[:LISTED], f"  ... and {len(lines) - LISTED} more"]
