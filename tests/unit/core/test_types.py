"""Errors, counters, rows, sealed arrays and blocks."""

from __future__ import annotations

import numpy as np

from reverie.core.counters import Counters
from reverie.core.errors import ConfigError, ReverieError, nearest
from reverie.core.types import Array, Block, Clock, Sealed, is_last, observation_keys


def test_nearest_lists_similar_words() -> None:
    assert nearest("gama", ["gamma", "epochs"]) == "Did you mean 'gamma'?"
    assert nearest("row", ["rows", "raw", "zebra"]) == "Did you mean 'rows' or 'raw'?"


def test_nearest_lists_all_words_when_none_is_similar() -> None:
    assert nearest("zzz", ["one", "two"]) == "Known: one, two."
    assert nearest("zzz", [f"word{i:02}" for i in range(13)]).endswith("word11 and 1 more.")
    assert nearest("zzz", []) == ""


def test_errors_include_the_fix() -> None:
    assert str(ConfigError("It is wrong.", "Do this.")) == "It is wrong.\nDo this."
    assert str(ReverieError("It is wrong.")) == "It is wrong."
    assert (ReverieError.exit_code, ConfigError.exit_code) == (1, 2)


def test_counters_are_restored_from_their_state() -> None:
    counters = Counters(env_steps=5, rows=7, updates=3, cycles=2, episodes=1, horizon_steps=50)
    restored = Counters()
    restored.load_state(counters.state())
    assert restored == counters
    assert counters.clock() == Clock(5, 3, 2, 50)


def test_observation_keys_and_last_rows() -> None:
    row = {"obs/a": 1, "obs": 2, "observed": 3, "log/obs": 4, "obs/b": 5}
    assert observation_keys(row) == ["obs/a", "obs", "obs/b"]
    ends = is_last({"terminated": np.array([True, False, False]), "truncated": np.array([False, True, False])})
    assert ends.tolist() == [True, True, False]


def digest(**arrays: Array) -> str:
    return Sealed("rows", dict(arrays)).digest


def test_the_digest_of_sealed_arrays_is_stable() -> None:
    assert digest(a=np.arange(3, dtype=np.int64)) == "0c6b257d81a19e59290f62edb9a17c60"
    assert digest(a=np.zeros(2), b=np.ones(3)) == digest(b=np.ones(3), a=np.zeros(2))
    wide = np.arange(12.0).reshape(3, 4)
    assert digest(a=wide.T) == digest(a=wide.T.copy())


def test_the_digest_changes_with_every_bit() -> None:
    base = np.arange(6, dtype=np.int32)
    flipped = base.copy()
    flipped[5] ^= 1 << 20
    others = [
        digest(a=base), digest(b=base), digest(a=flipped), digest(a=base.reshape(2, 3)),
        digest(a=base.view(np.float32)), digest(a=base, b=np.zeros(0)), digest(a=base[:0]),
    ]  # fmt: skip
    assert len(set(others)) == len(others)


def test_the_name_is_not_part_of_the_digest() -> None:
    assert Sealed("one", {"a": np.ones(2)}).digest == Sealed("two", {"a": np.ones(2)}).digest


def test_block_yields_its_moments_in_order_of_time() -> None:
    rows = {"is_first": np.array([[True, False, False], [True, False, True]]), "obs": np.arange(12).reshape(2, 3, 2)}
    block = Block(rows, arriving={}, policy_version=7)
    assert len(block) == 3
    moments = list(block.moments())
    assert [moment["is_first"].tolist() for moment in moments] == [[True, True], [False, False], [False, True]]
    assert moments[1]["obs"].tolist() == [[2, 3], [8, 9]]
