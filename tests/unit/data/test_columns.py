"""Stored columns on rows whose value is their own id, so that a row at the wrong place shows."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from reverie.core.errors import RunError, TrainingError
from reverie.core.types import Row, Sealed
from reverie.data.annotations import AnnotationColumns
from reverie.data.columns import ObservedColumns

NUM_ENVS, CHUNK_STEPS, NUM_CHUNKS = 2, 3, 4
CAPACITY = NUM_ENVS * CHUNK_STEPS * NUM_CHUNKS


def make_row(step: int) -> Row:
    ids = step * NUM_ENVS + np.arange(NUM_ENVS)
    return {
        "obs": np.stack([ids, -ids], axis=1).astype(np.float32),
        "image": np.repeat(ids, 4).reshape(NUM_ENVS, 2, 2).astype(np.uint8),
        "is_first": ids % 5 == 0,
    }


def make_columns(steps: int) -> ObservedColumns:
    columns = ObservedColumns(NUM_ENVS, CHUNK_STEPS, NUM_CHUNKS)
    for step in range(steps):
        columns.append(make_row(step))
    return columns


def assert_holds_own_ids(columns: ObservedColumns) -> None:
    """Every row kept is the one that was added under its id."""
    rows = columns.gather(columns.ids)
    assert rows["obs"][:, 0].tolist() == columns.ids.tolist()
    assert rows["image"][:, 1, 1].tolist() == columns.ids.tolist()
    assert rows["is_first"].tolist() == (columns.ids % 5 == 0).tolist()


def contents(sealed: Sealed) -> dict[str, list[object]]:
    return {key: array.tolist() for key, array in sealed.arrays.items()}


def fresh_digest(sealed: Sealed) -> str:
    return Sealed(sealed.name, sealed.arrays).digest


def test_rows_come_back_by_id_as_they_were() -> None:
    columns = make_columns(5)
    rows = columns.gather(np.array([[9, 0], [4, 5]]), ["obs", "image"])
    assert rows["obs"].tolist() == [[[9, -9], [0, 0]], [[4, -4], [5, -5]]]
    assert rows["obs"].dtype == np.float32
    assert rows["image"].shape == (2, 2, 2, 2)
    assert rows["image"].dtype == np.uint8
    assert set(columns.gather(np.array([0]))) == {"obs", "image", "is_first"}


@pytest.mark.parametrize(("steps", "oldest"), [(1, 0), (11, 0), (12, 0), (13, 3), (15, 3), (16, 6), (24, 12), (61, 51)])
def test_the_oldest_chunk_goes_when_its_place_is_needed(steps: int, oldest: int) -> None:
    columns = make_columns(steps)
    assert (columns.oldest, columns.newest, columns.end) == (oldest, steps - 1, steps)
    assert len(columns) == (steps - oldest) * NUM_ENVS
    assert columns.ids.tolist() == list(range(oldest * NUM_ENVS, steps * NUM_ENVS))
    around = np.array([oldest * 2 - 1, oldest * 2, steps * 2 - 1, steps * 2])
    assert columns.holds(around).tolist() == [False, True, True, False]
    assert_holds_own_ids(columns)


def test_append_tells_which_places_were_freed() -> None:
    columns = make_columns(12)
    assert columns.append(make_row(12)) == slice(0, 6)
    assert columns.append(make_row(13)) is None
    assert [columns.append(make_row(step)) for step in (14, 15)] == [None, slice(6, 12)]


def test_only_full_chunks_are_sealed_and_each_once() -> None:
    columns = make_columns(8)
    first = columns.state()
    assert [sealed.name for sealed in first["chunks"]] == ["rows-00000000", "rows-00000001"]
    assert first["chunks"][1].arrays["obs"][:, 0].tolist() == [6, 7, 8, 9, 10, 11]
    assert first["tail"]["obs"][:, 0].tolist() == [12, 13, 14, 15]
    columns.append(make_row(8))
    second = columns.state()
    assert len(second["chunks"]) == 3
    assert second["tail"] == {}
    assert all(one is other for one, other in zip(first["chunks"], second["chunks"], strict=False))


def test_a_sealed_chunk_never_changes() -> None:
    columns = make_columns(8)
    kept = columns.state()["chunks"]
    before = [contents(sealed) for sealed in kept]
    digests = [sealed.digest for sealed in kept]
    for step in range(8, 40):
        columns.append(make_row(step))
        assert [contents(sealed) for sealed in kept] == before
        assert [fresh_digest(sealed) for sealed in kept] == digests
    assert_holds_own_ids(columns)


def test_sealed_arrays_cannot_be_written() -> None:
    columns = make_columns(4)
    (sealed,) = columns.state()["chunks"]
    for _ in range(2):  # as a view, and as a copy after it was dropped
        with pytest.raises(ValueError, match="read-only"):
            sealed.arrays["obs"][0] = 99
        for step in range(4, 14):
            columns.append(make_row(step))


def test_the_tail_in_a_state_is_a_copy() -> None:
    columns = make_columns(4)
    columns.state()["tail"]["obs"][:] = 99
    assert_holds_own_ids(columns)


@pytest.mark.parametrize("steps", [0, 1, 3, 8, 12, 13, 40, 42])
def test_state_round_trip(steps: int) -> None:
    columns, copy = make_columns(steps), make_columns(5)
    copy.load_state(columns.state())
    for step in range(steps, steps + 20):
        assert copy.append(make_row(step)) == columns.append(make_row(step))
        assert (copy.oldest, copy.end) == (columns.oldest, columns.end)
        assert_holds_own_ids(copy)
        ours, theirs = copy.state(), columns.state()
        assert [(c.name, c.digest) for c in ours["chunks"]] == [(c.name, c.digest) for c in theirs["chunks"]]
        assert [fresh_digest(sealed) for sealed in ours["chunks"]] == [sealed.digest for sealed in ours["chunks"]]


def test_a_loaded_buffer_does_not_share_memory_with_the_saved_one() -> None:
    columns, copy = make_columns(8), make_columns(0)
    saved = columns.state()
    copy.load_state(saved)
    for step in range(8, 30):
        copy.append(make_row(step))
    assert_holds_own_ids(columns)
    assert columns.state()["chunks"][0] is saved["chunks"][0]


def test_a_loaded_buffer_holds_on_to_no_chunk_that_it_read() -> None:
    read: list[weakref.ref[np.ndarray]] = []

    class FromDisk(Sealed):
        @property
        def arrays(self) -> Row:
            found = {key: array.copy() for key, array in super().arrays.items()}
            read.extend(weakref.ref(array) for array in found.values())
            return found

    saved, copy = make_columns(8).state(), make_columns(0)
    saved["chunks"] = [FromDisk(chunk.name, chunk.arrays) for chunk in saved["chunks"]]
    copy.load_state(saved)
    assert len(read) >= 2 * len(copy.keys)
    assert not any(array() is not None for array in read)


def test_clearing_forgets_rows_and_goes_on_counting() -> None:
    columns = make_columns(8)
    kept = columns.state()["chunks"][0]
    before = contents(kept)
    columns.clear()
    assert len(columns) == 0
    assert columns.keys == []
    assert columns.row_bytes == 0
    for step in range(9, 30):  # 9: the next chunk
        columns.append(make_row(step))
    assert columns.oldest == 18
    assert_holds_own_ids(columns)
    assert contents(kept) == before


def test_bytes_of_a_row() -> None:
    assert make_columns(1).row_bytes == 8 + 4 + 1


@pytest.mark.parametrize("other", [ObservedColumns(3, 3, 4), ObservedColumns(2, 4, 4), ObservedColumns(2, 3, 2)])
def test_a_state_of_another_size_is_refused(other: ObservedColumns) -> None:
    with pytest.raises(RunError, match="chunk_rows"):
        other.load_state(make_columns(10).state())


def test_rows_that_change_their_keys_are_refused() -> None:
    columns = make_columns(2)
    with pytest.raises(TrainingError, match="the columns latent,"):
        columns.append({**make_row(2), "latent": np.zeros(NUM_ENVS)})
    incomplete = make_row(2)
    del incomplete["image"]
    with pytest.raises(TrainingError, match="the columns image,"):
        columns.append(incomplete)


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2)), np.zeros((2, 1), np.float32), np.zeros((1, 2), np.float32), np.zeros(2, np.float32)]
)
def test_rows_that_would_be_cast_or_stretched_are_refused(value: np.ndarray) -> None:
    columns = make_columns(2)
    with pytest.raises(TrainingError, match="'obs' was float32"):
        columns.append({**make_row(2), "obs": value})
    assert columns.end == 2
    assert_holds_own_ids(columns)


def test_more_than_any_memory_is_explained() -> None:
    columns = ObservedColumns(1, 2**44, 4)
    with pytest.raises(TrainingError, match="capacity"):
        columns.append({"obs": np.zeros((1, 4), np.float32)})


def make_annotations(steps: int = 6, float_dtype: str = "float32") -> AnnotationColumns:
    return AnnotationColumns(make_columns(steps), float_dtype)


def test_annotations_are_0_until_written() -> None:
    annotations = make_annotations()
    assert annotations.gather(np.array([1, 2])) == {}
    annotations.write(np.array([3, 7]), {"priority": np.array([0.5, 1.5], np.float32)})
    assert annotations.gather(np.array([[2, 3], [7, 0]]))["priority"].tolist() == [[0, 0.5], [1.5, 0]]


def test_the_last_of_equal_ids_counts() -> None:
    annotations = make_annotations()
    annotations.write(np.array([4, 4, 5, 4]), {"priority": np.array([1.0, 2.0, 3.0, 4.0])})
    assert annotations.gather(np.array([4, 5]))["priority"].tolist() == [4, 3]


def test_ids_may_have_the_axes_of_a_batch() -> None:
    annotations = make_annotations()
    annotations.write(np.array([[0, 2], [4, -1]]), {"latent": np.arange(12.0).reshape(2, 2, 3)})
    assert annotations.gather(np.array([4, 2]))["latent"].tolist() == [[6, 7, 8], [3, 4, 5]]


def test_rows_not_stored_are_passed_over() -> None:
    annotations = make_annotations(14)  # steps 3 to 13: ids 6 to 27; id 5 had the place of id 29
    annotations.write(np.array([5, 6, 28, 29, -1, -20]), {"visits": np.arange(1, 7)})
    annotations.rows.append(make_row(14))
    found = annotations.gather(annotations.rows.ids)["visits"]
    assert found.tolist() == [2] + [0] * 23


def test_annotations_go_with_their_rows() -> None:
    annotations = make_annotations(12)
    rows = annotations.rows
    annotations.write(rows.ids, {"visits": rows.ids + 100})
    dropped = rows.append(make_row(12))
    assert dropped is not None
    annotations.reset(dropped)
    assert annotations.gather(rows.ids)["visits"].tolist() == [*range(106, 124), 0, 0]


def test_half_precision_is_only_for_storage() -> None:
    annotations = make_annotations(float_dtype="float16")
    values = {"latent": np.array([0.1, 1e9, -1e9]), "code": np.array([1, 2, 70_000])}
    annotations.write(np.arange(3), values)
    found = annotations.gather(np.arange(3))
    assert found["latent"].dtype == np.float32
    assert found["latent"].tolist() == [float(np.float16(0.1)), 65504, -65504]
    assert found["code"].tolist() == [1, 2, 70_000]
    assert annotations.row_bytes == 2 + 8
    assert annotations.bytes_of(values, "float16") == 2 + 8


def test_single_precision_is_kept() -> None:
    annotations = make_annotations()
    annotations.write(np.arange(2), {"latent": np.array([0.1, 1e9], np.float32)})
    assert annotations.gather(np.arange(2))["latent"].tolist() == [float(np.float32(0.1)), 1e9]


@pytest.mark.parametrize("name", ["obs", "id"])
def test_names_of_what_was_observed_are_taken(name: str) -> None:
    with pytest.raises(TrainingError, match="another name"):
        make_annotations().write(np.arange(2), {name: np.zeros(2)})


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 1)), np.zeros(2)])
def test_values_that_do_not_fit_are_refused(values: np.ndarray) -> None:
    annotations = make_annotations()
    annotations.write(np.arange(2), {"code": np.ones(2, np.int64)})
    with pytest.raises(TrainingError, match="'code'"):
        annotations.write(np.arange(2), {"code": values})
    assert annotations.gather(np.arange(2))["code"].tolist() == [1, 1]


@pytest.mark.parametrize("steps", [7, 20])
def test_annotations_round_trip(steps: int) -> None:
    annotations = make_annotations(steps, "float16")
    ids = annotations.rows.ids
    annotations.write(ids[::2], {"latent": np.linspace(0, 1, 3 * len(ids[::2])).reshape(-1, 3), "code": ids[::2]})
    copy = make_annotations(0, "float16")
    saved = annotations.state()
    copy.rows.load_state(annotations.rows.state())
    copy.load_state(saved)
    kept = np.concatenate([chunk.arrays["code"] for chunk in saved["chunks"]])
    annotations.write(ids, {"code": ids * 0})
    later = make_annotations(0, "float16")
    later.rows.load_state(annotations.rows.state())
    later.load_state(saved)
    assert later.gather(ids)["code"].tolist() == kept.tolist(), "a saved state is touched by what comes after"
    assert len(kept) == len(ids)
    assert copy.gather(ids)["code"].tolist() == [i if place % 2 == 0 else 0 for place, i in enumerate(ids)]
    np.testing.assert_array_equal(copy.gather(ids)["latent"], annotations.gather(ids)["latent"])
    assert copy.keys == ["latent", "code"]
    assert {chunk.arrays["latent"].dtype for chunk in copy.state()["chunks"]} == {np.dtype(np.float16)}


def test_a_state_of_annotations_outlives_rows_that_are_dropped() -> None:
    annotations = make_annotations(12)
    rows = annotations.rows
    annotations.write(rows.ids, {"visits": rows.ids + 100})
    oldest = annotations.state()["chunks"][0]
    before = contents(oldest)
    dropped = rows.append(make_row(12))
    assert dropped is not None
    annotations.reset(dropped)
    assert contents(oldest) == before


def test_saving_annotations_takes_no_memory() -> None:
    annotations = make_annotations(8)
    annotations.write(annotations.rows.ids, {"visits": annotations.rows.ids})
    saved = annotations.state()
    assert len(saved["chunks"]) == 3
    for chunk in saved["chunks"]:
        assert np.shares_memory(chunk.arrays["visits"], annotations._columns["visits"])
        assert not chunk.arrays["visits"].flags.writeable


def test_annotations_that_were_saved_as_whole_columns_load() -> None:
    rows = make_columns(14)
    saved = {"visits": rows.ids + 100, "chunks": np.ones((len(rows), 2), np.float32)}
    copy = AnnotationColumns(rows, "float32")
    copy.load_state(saved)
    found = copy.gather(rows.ids)
    assert list(found) == ["visits", "chunks"]
    assert found["visits"].tolist() == saved["visits"].tolist()
