"""Prioritised sampling by hand, against lists of all legal samples, through files and with DQN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich.style  # noqa: F401 - draws from the global generator when it is first imported

from reverie.api import make_config
from reverie.build import build, build_evaluator
from reverie.core.errors import TrainingError
from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.types import Array, WriteBack
from reverie.data import prioritised_sampler
from reverie.data.columns import ObservedColumns
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.prioritised_sampler import LegalTree, PrioritisedSampler
from reverie.data.sample_spans import Span
from reverie.data.sum_tree import SumTree
from reverie.training.orchestrator import Orchestrator
from tests.resume.pieces import assert_equal_runs, train, train_in_pieces
from tests.unit.data.streams import SPANS, STREAMS, assert_chances, legal_samples, make_columns, make_row, samples_of
from tests.unit.data.test_replay import assert_same, make_buffer, sample, through_files
from tests.unit.data.test_replay import make_row as make_buffer_row

ALL_SPANS = {
    **SPANS,
    "window": Span(0, 3, is_within_episode=False),
    "frames": Span(0, 1, 0, history=3),
    "window of frames": Span(0, 2, is_within_episode=False, history=2),
}
STEP = Span(0, 1, 0)
DQN = (
    "CartPole-v1:dqn", "env.vector=sync", "phases.prefill.duration_steps=64", "buffers.main.min_rows=32",
    "buffers.main.capacity=128", "buffers.main.sampler={kind: prioritised, beta_rows: 300}", "algorithm.batch_size=16",
    "phases.learn.evaluate={episodes: 2, every_steps: 200}", "evaluate.final_episodes=2",
    "checkpoint.every_steps=50", "phases.learn.collect.rows=16", "phases.learn.update.updates=12",
)  # fmt: skip


def make_sampler(columns: ObservedColumns, **settings: Any) -> PrioritisedSampler:
    return PrioritisedSampler(PrioritisedSampler.Config(**settings), columns)


def draw_many(sampler: PrioritisedSampler, span: Span = STEP, count: int = 20_000) -> Array:
    return sampler.draw(count, span, make_generator("draws")).anchors


def legal_ids(sums: SumTree, columns: ObservedColumns) -> Array:
    return columns.ids_at(np.flatnonzero(sums.levels[0]))


def test_chances_are_priorities_to_the_power_of_alpha() -> None:
    columns = make_columns(("f....t", "f.tf.."))
    # Anchors: env 0 steps 0 to 4, env 1 steps 0, 1, 3, 4; ids are 2 * step + env.
    legal = [0, 2, 4, 6, 8, 1, 3, 7, 9]
    sampler = make_sampler(columns, alpha=0.5, epsilon=0.01)
    priorities = np.array([0, 1, 4, -9, 2, 3, 0.5, 7, 0.1])
    sampler.write_priorities(np.array(legal), priorities)
    assert_chances(draw_many(sampler), dict(zip(legal, np.sqrt(np.abs(priorities) + 0.01).tolist(), strict=True)))


def test_without_alpha_all_are_alike() -> None:
    columns = make_columns()
    sampler = make_sampler(columns, alpha=0)
    sampler.write_priorities(columns.ids, make_generator("priorities").random(len(columns)) * 100)
    anchors = draw_many(sampler)
    assert set(samples_of(columns, anchors, STEP)) == legal_samples(STREAMS, 0, STEP)
    assert_chances(anchors, dict.fromkeys(np.unique(anchors).tolist(), 1.0))


def test_importance_by_hand() -> None:
    columns = make_columns(("f..t",))  # 4 rows
    sampler = make_sampler(columns, alpha=1, epsilon=1e-9, beta_start=0.3, beta_end=0.7, beta_rows=8)
    sampler.write_priorities(np.arange(3), np.array([1.0, 2.0, 8.0]))
    assert sampler.beta == pytest.approx(0.5)  # half way
    drawn = sampler.draw(100, STEP, make_generator(0))
    assert drawn.importance is not None
    assert drawn.importance.dtype == np.float32
    # (N P) ** -beta over the largest of them, which is that of row 0: 1, (1 / 2) ** 0.5, (1 / 8) ** 0.5
    np.testing.assert_allclose(drawn.importance, np.array([1, 0.70710678, 0.35355339])[drawn.anchors], rtol=1e-6)
    assert set(drawn.anchors.tolist()) == {0, 1, 2}


def test_the_largest_importance_is_that_of_the_batch() -> None:
    columns = make_columns(("f..t",))
    sampler = make_sampler(columns, alpha=1, beta_start=1, beta_end=1)
    sampler.write_priorities(np.arange(3), np.array([1e-5, 2.0, 8.0]))
    drawn = sampler.draw(20, STEP, make_generator(0))
    assert drawn.importance is not None
    assert set(drawn.anchors.tolist()) == {1, 2}
    np.testing.assert_allclose(drawn.importance, np.where(drawn.anchors == 1, 1, 0.25), rtol=1e-5)


def test_beta_grows_with_the_rows_added_and_then_stays() -> None:
    columns = make_columns(("f", "f"))
    sampler = make_sampler(columns, beta_start=0.4, beta_end=1, beta_rows=6)
    betas = [sampler.beta]
    for _ in range(3):
        columns.append(make_row(".."))
        betas.append(sampler.beta)
    assert betas == pytest.approx([0.6, 0.8, 1.0, 1.0])
    assert make_sampler(columns, beta_start=0.4, beta_end=0.9).beta == pytest.approx(0.9)  # nothing to wait for


def test_new_rows_have_the_largest_priority_so_far() -> None:
    columns = make_columns(("f..",))
    sampler = make_sampler(columns, alpha=1, epsilon=1e-9)
    assert_chances(draw_many(sampler), {0: 1, 1: 1})  # nothing is known of anything
    sampler.write_priorities(np.array([0, 1]), np.array([5.0, 0.5]))
    sampler.write_priorities(np.array([0]), np.array([2.0]))
    for _ in range(2):
        columns.append(make_row("."))
    # Row 2 came when 1 was the largest, and could be drawn only now; the largest stays though row 0 lost it.
    assert_chances(draw_many(sampler), {0: 2, 1: 0.5, 2: 1, 3: 5})


@pytest.mark.parametrize("num_chunks", [20, 4], ids=["all", "wrapped"])
@pytest.mark.parametrize("span", ALL_SPANS.values(), ids=ALL_SPANS)
def test_the_tree_holds_exactly_the_legal_samples_at_every_moment(span: Span, num_chunks: int) -> None:
    rng = make_generator("writes")
    columns = make_columns(("", ""), num_chunks=num_chunks)
    weights, tree = np.zeros(columns.capacity_rows, np.float32), LegalTree(columns, span)
    for time, letters in enumerate(zip(*STREAMS, strict=True), 1):
        columns.append(make_row(letters))
        weights[columns.slots(np.arange(2 * time - 2, 2 * time))] = 1
        written = rng.integers(columns.oldest * 2, time * 2, 3)
        weights[columns.slots(written)] = rng.random(3) + 0.1
        tree.changed.append(written)
        if rng.random() < 0.4:
            continue  # rows and writes of several moments come together
        sums = tree.refresh(weights)
        fresh = LegalTree(columns, span).refresh(weights)
        assert [level.tobytes() for level in sums.levels] == [level.tobytes() for level in fresh.levels]
        streams = tuple(stream[:time] for stream in STREAMS)
        found = samples_of(columns, legal_ids(sums, columns), span)
        assert set(found) == legal_samples(streams, columns.oldest, span)
    assert (columns.oldest > 0) is (num_chunks == 4)
    assert found


def test_a_tree_that_slept_while_all_rows_changed_wakes_up_right() -> None:
    columns = make_columns(num_chunks=4)
    sampler = make_sampler(columns)
    sampler.draw(1, STEP, make_generator(0))
    for letters in zip(*STREAMS, strict=True):
        columns.append(make_row(letters))
    assert columns.oldest > len(STREAMS[0])
    both = tuple(stream * 2 for stream in STREAMS)
    assert set(samples_of(columns, draw_many(sampler), STEP)) == legal_samples(both, columns.oldest, STEP)


def test_each_kind_of_sample_has_its_own_legal_rows() -> None:
    columns = make_columns()
    sampler = make_sampler(columns)
    for span in [*ALL_SPANS.values(), *ALL_SPANS.values()]:
        sampler.write_priorities(columns.ids[::7], np.full(len(columns.ids[::7]), 0.5))
        assert set(samples_of(columns, draw_many(sampler, span), span)) == legal_samples(STREAMS, 0, span)


def test_a_tree_that_is_not_used_is_let_go_and_comes_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, draws = make_columns(), []
    for most_writes in (1, 1000):
        monkeypatch.setattr(prioritised_sampler, "_MAX_PENDING_WRITES", most_writes)
        sampler = make_sampler(columns)
        sampler.draw(4, STEP, make_generator(0))
        for number in range(5):
            sampler.write_priorities(np.arange(8), np.arange(8) + number)
        draws.append(draw_many(sampler))
    np.testing.assert_array_equal(*draws)


def test_writes_to_rows_that_are_gone_are_passed_over() -> None:
    columns = make_columns(num_chunks=4)
    sampler, other = make_sampler(columns), make_sampler(columns)
    kept = columns.ids[4:8]
    gone = np.array([-1, 0, columns.ids[0] - 1, columns.ids[-1] + 1])
    ids = np.concatenate([gone, kept])
    sampler.write_priorities(ids, np.concatenate([np.full(4, 1e6), np.arange(4.0)]))
    other.write_priorities(kept, np.arange(4.0))
    assert sampler.state()["largest"] == other.state()["largest"]
    np.testing.assert_array_equal(draw_many(sampler), draw_many(other))


@pytest.mark.parametrize("priorities", [[np.nan, 1], [np.inf, 1]])
def test_priorities_out_of_bounds_are_refused(priorities: list[float]) -> None:
    with pytest.raises(TrainingError, match="NaN or infinite"):
        make_sampler(make_columns()).write_priorities(np.arange(2), np.array(priorities))


def test_each_id_needs_a_priority() -> None:
    with pytest.raises(TrainingError, match="one priority per id"):
        make_sampler(make_columns()).write_priorities(np.arange(3), np.ones(2))


def test_extreme_priorities_lose_no_row() -> None:
    sampler = make_sampler(make_columns(("f..t",)), alpha=1, epsilon=1e-300)
    sampler.write_priorities(np.arange(3), np.array([0.0, 1e300, 0.0]))
    assert set(draw_many(sampler, count=100).tolist()) == {1}
    sampler.write_priorities(np.array([1]), np.array([0.0]))
    assert set(draw_many(sampler, count=100).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("streams", [("f",), ("xxxx",), ("tttt",), ("",)])
def test_without_a_legal_sample_there_is_an_error(streams: tuple[str, ...]) -> None:
    with pytest.raises(TrainingError, match=r"A sample needs|but no sample of"):
        make_sampler(make_columns(streams)).draw(2, STEP, make_generator(0))


def test_a_buffer_serves_importance_and_takes_priorities() -> None:
    buffer = make_buffer(30, sampler={"kind": "prioritised", "alpha": 1, "beta_start": 1})
    for read, steps in [(Transitions(50, 3), 4), (Window(50, 6), 6)]:
        batch = sample(buffer, read)
        np.testing.assert_array_equal(batch["importance"], np.ones((50, steps), np.float32))
        assert "priority" not in batch
    ids = batch["id"][:, 0]
    buffer.write_back(WriteBack(ids, {"priority": ids + 1.0, "latent": ids.astype(np.float32)}))
    batch = sample(buffer, Transitions(50))
    assert "priority" not in batch
    assert "latent" in batch
    assert batch["importance"].dtype == np.float32
    assert (batch["importance"][:, 0] == batch["importance"][:, 1]).all()
    assert batch["importance"].min() < 0.5 < batch["importance"].max() == 1


def test_priorities_may_belong_to_other_rows_than_what_is_written_with_them() -> None:
    buffer = make_buffer(30, sampler={"kind": "prioritised", "alpha": 1})
    ids = buffer.rows.ids
    columns = {"priority": ids[2:] + 1.0, "latent": ids[:-2].astype(np.float32)}
    buffer.write_back(WriteBack(ids[:-2], columns, priority_ids=ids[2:]))
    np.testing.assert_allclose(buffer.state()["sampler"]["weights"], [1, 1, *(ids[2:] + 1.0)], rtol=1e-5)
    np.testing.assert_array_equal(buffer.annotations.gather(ids)["latent"], [*ids[:-2], 0, 0])


def test_memory_counts_the_tree() -> None:
    plain, weighted = make_buffer(36), make_buffer(36, sampler={"kind": "prioritised"})
    assert weighted.memory_bytes - plain.memory_bytes == 72 * 20  # a weight of 4 bytes, 16 in the tree
    bytes_of = [forecast_buffer(buffer.config, ExpectedRows(buffer.specs, 2)).memory for buffer in (weighted, plain)]
    assert bytes_of[0] - bytes_of[1] == 72 * 20


def test_clearing_forgets_priorities() -> None:
    buffer = make_buffer(20, sampler={"kind": "prioritised"})
    sample(buffer, Transitions(4))
    buffer.write_back(WriteBack(buffer.rows.ids, {"priority": np.full(len(buffer), 100.0)}))
    buffer.clear()
    with pytest.raises(TrainingError):
        sample(buffer, Transitions(4))
    for time in range(5):
        buffer.add(make_buffer_row(time))
    assert set(sample(buffer, Transitions(200))["id"][:, 0].tolist()) == {40, 42, 41, 43, 45, 47, 46}
    assert buffer.sampler.state()["largest"] == 1


@pytest.mark.parametrize("through", ["memory", "files"])
@pytest.mark.parametrize("steps", [3, 10, 36, 37, 101])
def test_a_restored_buffer_draws_the_same(steps: int, through: str, tmp_path: Path) -> None:
    settings = {"sampler": {"kind": "prioritised", "beta_rows": 150}}
    buffer, copy = make_buffer(steps, **settings), make_buffer(7, **settings)
    reads = (Transitions(16, 2), Window(8, 3))
    buffer.write_back(WriteBack(buffer.rows.ids[::3], {"priority": np.sqrt(buffer.rows.ids[::3])}))
    sample(buffer, reads[0])
    for time in range(steps, steps + 2):  # rows that have no weight yet when the state is taken
        buffer.add(make_buffer_row(time))
    state = buffer.state()
    copy.load_state(through_files(state, tmp_path) if through == "files" else state)
    for time in range(steps + 2, steps + 60):
        for read in reads:
            batch = sample(buffer, read, time)
            assert_same(sample(copy, read, time), batch)
            written = WriteBack(batch["id"], {"priority": np.sin(batch["id"] + time) * 3})
            buffer.write_back(written)
            copy.write_back(written)
        buffer.add(make_buffer_row(time))
        copy.add(make_buffer_row(time))


def test_saving_changes_nothing() -> None:
    settings = {"sampler": {"kind": "prioritised"}}
    saved, other = make_buffer(5, **settings), make_buffer(5, **settings)
    for time in range(5, 60):
        for buffer in (saved, other):
            buffer.add(make_buffer_row(time))
        saved.state()
        saved.can_sample(Transitions(8, 2))
        if time % 3 == 0:
            batch = sample(saved, Transitions(8), time)
            assert_same(sample(other, Transitions(8), time), batch)
            for buffer in (saved, other):
                buffer.write_back(WriteBack(batch["id"], {"priority": batch["id"] % 5}))


def test_dqn_learns_from_priorities_and_changes_them() -> None:
    config = make_config(DQN[0], [*DQN[1:], "phases.learn.duration_steps=450"], seed=1)
    session, evaluator = build(config), build_evaluator(config)
    Orchestrator(session, evaluator).run()
    assert session.counters.updates >= 300
    state = session.buffers["main"].state()
    weights = state["sampler"]["weights"]
    assert len(weights) == len(state["rows"]["tail"]["valid"]) + sum(
        len(chunk.arrays["valid"]) for chunk in state["rows"]["chunks"]
    )
    assert len(np.unique(weights)) > len(weights) / 2
    session.close()
    evaluator.close()


def test_a_dqn_run_with_priorities_goes_on_exactly(tmp_path: Path) -> None:
    whole = train(DQN, tmp_path / "whole", steps=300)
    pieces = train_in_pieces(DQN, tmp_path / "pieces", [4, 9, 6, 11], steps=300)
    assert_equal_runs(pieces, whole)
