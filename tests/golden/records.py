"""Numbers and hashes recorded once, and the comparison with what is found now.

Numbers are compared with a tolerance, because a faster kernel may change the order of a sum. It is ten times what a
change in the last bit of every weight does to them. Hashes cover every bit, but only on machines of a recorded kind; on
others a line on stderr says that only numbers were compared.
To record: REVERIE_WRITE_GOLDEN=1 python -m pytest tests/golden. If a change is meant to change results, delete the
hashes of the other kinds of machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reverie.machine import processor

TOLERANCE = 1e-3
FOLDER = Path(__file__).parent


def machine() -> str:
    """What decides which kernels run: the libraries and the processor."""
    facts = processor.facts()
    kind = " ".join(facts.get(key, "?") for key in ("vendor_id", "cpu family", "model", "stepping"))
    flags = hashlib.sha256(facts.get("flags", "").encode()).hexdigest()[:8]
    return f"torch {torch.__version__}, numpy {np.__version__}, {kind}, {flags}"


def hash_tree(tree: Mapping[str, Any]) -> str:
    """A hash of all values in a nested state. The names of the values and their order do not matter."""
    return hashlib.sha256(b"".join(sorted(_hashes(tree)))).hexdigest()


def _hashes(tree: Any) -> Iterator[bytes]:
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _hashes(value)
    else:
        yield hashlib.sha256(np.ascontiguousarray(tree).tobytes()).digest()


def check(name: str, case: str, found: Mapping[str, float], digest: str) -> None:
    """Compare with ``<name>.json`` and ``<name>_hashes.json``, or write them if the environment asks for it."""
    paths = FOLDER / f"{name}.json", FOLDER / f"{name}_hashes.json"
    numbers, hashes = (json.loads(path.read_text()) if path.exists() else {} for path in paths)
    if os.environ.get("REVERIE_WRITE_GOLDEN"):
        numbers[case] = dict(found)
        hashes.setdefault(machine(), {})[case] = digest
        for path, content in zip(paths, (numbers, hashes), strict=True):
            path.write_text(json.dumps(content, indent=2) + "\n")
    assert found == pytest.approx(numbers[case], rel=TOLERANCE, abs=1e-6)
    known = hashes.get(machine(), {}).get(case)
    if known is None:
        print(f"\nNo hash of '{case}' is recorded for {machine()}: only numbers were compared.", file=sys.stderr)
    else:
        assert digest == known
