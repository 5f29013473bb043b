"""Spaces and random rows for the tests of algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row

VECTOR = {"obs": ObservationSpec((3,), "float32", "vector")}
BYTES = {"obs": ObservationSpec((6,), "uint8", "vector")}
INDEX = {"obs": ObservationSpec((), "int64", "discrete", (5,))}
IMAGE = {"obs": ObservationSpec((40, 40, 3), "uint8", "image")}
MIXED = {"obs/0": ObservationSpec((12, 12, 1), "uint8", "image"), "obs/1": VECTOR["obs"], "obs/2": INDEX["obs"]}
OBSERVATIONS = {"vector": VECTOR, "bytes": BYTES, "index": INDEX, "image": IMAGE, "mixed": MIXED}

DISCRETE = ActionSpec("discrete", (), "int64", (3,))
BOX = ActionSpec("continuous", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
UNBOUNDED = ActionSpec("continuous", (2,), "float32", low=(-np.inf,) * 2, high=(np.inf,) * 2)
MULTI_DISCRETE = ActionSpec("multi_discrete", (2,), "int64", (3, 4))
MIXED_ACTION = ActionSpec(
    "mixed", (6,), "float32", parts=(DISCRETE, BOX, ActionSpec("multi_discrete", (3,), "int64", (2, 4, 3)))
)
MULTI_BINARY = ActionSpec("multi_binary", (3,), "int64", (2, 2, 2))


def random_rows(specs: Specs, count: int, length: int, seed: int = 0) -> Row:
    """Rows (count, length) in which no episode starts or ends."""
    rng = make_generator(seed, "rows")
    shape = (count, length)
    rows: Row = {}
    for key, spec in specs.observations.items():
        if spec.dtype == "float32":
            rows[key] = rng.standard_normal((*shape, *spec.shape), dtype=np.float32)
        else:
            top = np.array(spec.classes).reshape(spec.shape) if spec.kind == "discrete" else 256
            rows[key] = rng.integers(0, top, (*shape, *spec.shape)).astype(spec.dtype)
    rows["action"] = specs.action.sample(rng, count * length).reshape(*shape, *specs.action.shape)
    rows["reward"] = rng.standard_normal(shape, dtype=np.float32)
    return rows | {name: np.zeros(shape, bool) for name in ("is_first", "terminated", "truncated")}


def column_of(rows: Row, column: int = 0) -> Row:
    """One moment of all envs, as ``act`` sees it."""
    return {key: value[:, column] for key, value in rows.items()}


def with_other(rows: Row, where: Any, seed: int = 99) -> Row:
    """The rows with all that agents see and do, but no flag, replaced at some places."""
    rng = make_generator(seed, "other rows")
    changed = {key: value.copy() for key, value in rows.items()}
    for values in changed.values():
        if values.dtype != bool:
            values[where] = rng.permutation(values[where].ravel()).reshape(values[where].shape)
            if values.dtype == np.float32:
                values[where] += 1
    return changed
