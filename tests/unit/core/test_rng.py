"""Named random streams."""

from __future__ import annotations

import json

import numpy as np

from reverie.core.rng import Streams, derive_seed, make_generator


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0, "collect", 0) == 1264517967
    assert derive_seed(7, "evaluate", 3) == 8949585
    assert make_generator(1, "act").integers(1000, size=4).tolist() == [746, 753, 81, 884]


def test_seeds_have_31_bits_and_differ_for_different_names() -> None:
    seeds = {derive_seed(seed, word, number) for seed in range(20) for word in "ab" for number in range(20)}
    assert len(seeds) == 20 * 2 * 20
    assert max(seeds) < 2**31
    assert max(seeds) > 2**30
    assert derive_seed(1, 23) != derive_seed(12, 3)


def test_streams_do_not_depend_on_each_other() -> None:
    alone = Streams(3)["act"].random(5)
    streams = Streams(3)
    streams["sample"].random(1000)
    assert streams["act"].random(5).tolist() == alone.tolist()
    assert Streams(3)["sample"].random(5).tolist() != alone.tolist()
    assert Streams(4)["act"].random(5).tolist() != alone.tolist()


def test_stream_continues_from_its_last_draw() -> None:
    streams = Streams(3)
    first = streams["act"].random(3)
    assert streams["act"].random(3).tolist() != first.tolist()


def test_state_survives_json_and_continues() -> None:
    streams = Streams(3)
    streams["act"].random(7)
    streams["act"].integers(5, dtype=np.int32)  # leaves half of a 64-bit draw, which is part of the state
    streams["update"].standard_normal(2)
    text = json.dumps(streams.state())
    expected = [streams["act"].integers(100, size=4).tolist(), streams["update"].random(4).tolist()]

    restored = Streams(3)
    restored["of another run"].random(2)
    restored.load_state(json.loads(text))
    assert [restored["act"].integers(100, size=4).tolist(), restored["update"].random(4).tolist()] == expected
    assert restored["of another run"].random() == Streams(3)["of another run"].random()


def test_large_integers_in_the_state_are_strings() -> None:
    streams = Streams(0)
    streams["act"].random()
    numbers = streams.state()["act"]["state"]
    assert all(isinstance(number, str) for number in numbers.values())
    assert any(int(number) > 2**64 for number in numbers.values())
