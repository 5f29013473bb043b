"""Named random streams. Every draw of a run comes from one of them, so runs are reproducible and resume exactly.

A stream depends only on the run's seed and its own name. A new stream never changes the numbers of the others.
"""

from __future__ import annotations

import hashlib

import numpy as np

from reverie.core.types import State


def derive_seed(*parts: int | str) -> int:
    """A 31-bit seed from any mix of numbers and words; the same on every machine and in every process."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF


def make_generator(*parts: int | str) -> np.random.Generator:
    """A fresh generator for one purpose."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


class Streams:
    """All the generators of a run, made on first use."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            self._generators[name] = make_generator(self.seed, name)
        return self._generators[name]

    def state(self) -> State:
        return {name: _plain(rng.bit_generator.state) for name, rng in self._generators.items()}

    def load_state(self, state: State) -> None:
        self._generators.clear()
        for name, value in state.items():
            inner = {key: int(number) for key, number in value["state"].items()}
            self[name].bit_generator.state = {**value, "state": inner}


def _plain(state: object) -> State:
    """PCG64 state with its 128-bit numbers as text: JSON readers may round big integers."""
    assert isinstance(state, dict)
    return {**state, "state": {key: str(number) for key, number in state["state"].items()}}
