"""Mixtures: the weights of their parts, importance, states, and runs that check every row they are served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError
from reverie.core.reads import Transitions, Window
from reverie.core.rng import make_generator
from reverie.core.types import WriteBack
from reverie.data.columns import ObservedColumns
from reverie.data.mixture_sampler import MixtureSampler
from reverie.data.replay import ReplayBuffer
from reverie.data.sample_spans import Span, find_legal
from tests.sessions import assert_same_state, checking_config, finished, started
from tests.unit.data.streams import SPANS, STREAMS, assert_chances, legal_samples, make_columns, samples_of
from tests.unit.data.test_replay import assert_same, make_buffer, sample, through_files
from tests.unit.data.test_replay import make_row as make_buffer_row

STEP = Span(0, 1, 0)
PRIORITISED = {"kind": "prioritised", "alpha": 1, "epsilon": 1e-9, "beta_start": 1}


def mix(*parts: tuple[float, Any]) -> dict[str, Any]:
    return {"kind": "mixture", "parts": [{"weight": weight, "sampler": sampler} for weight, sampler in parts]}


ALL = mix((2, PRIORITISED), (1, "uniform"), (1, {"kind": "recency", "half_life": 16}), (1, "online"))


def make_mixture(columns: ObservedColumns, *parts: tuple[float, Any]) -> MixtureSampler:
    return MixtureSampler(MixtureSampler.Config.model_validate(mix(*parts)), columns)


def test_each_part_draws_by_its_weight() -> None:
    columns = make_columns()
    legal = columns.ids[find_legal(columns, columns.ids, STEP)]
    mixture = make_mixture(columns, (3, "uniform"), (1, PRIORITISED))
    mixture.write_priorities(legal, np.where(legal == legal[3], 1.0, 1e-9))
    chances = dict.fromkeys(legal.tolist(), 0.75 / len(legal))
    chances[int(legal[3])] += 0.25
    assert_chances(mixture.draw(20_000, STEP, make_generator(0)).anchors, chances)


def test_importance_is_1_where_there_are_no_priorities() -> None:
    columns = make_columns(("f..t",))
    mixture = make_mixture(columns, (1, "uniform"), (1, PRIORITISED))
    mixture.write_priorities(np.arange(3), np.array([1.0, 4.0, 4.0]))
    drawn = mixture.draw(4000, STEP, make_generator(0))
    assert drawn.importance is not None
    assert set(drawn.importance[drawn.anchors == 0]) == {1}
    quarter = drawn.importance[drawn.anchors > 0] < 0.9
    # Rows 1 and 2: 2/3 of the uniform half with importance 1, 8/9 of the other half with a fourth of it.
    assert quarter.mean() == pytest.approx((8 / 9) / (8 / 9 + 2 / 3), abs=0.03)
    np.testing.assert_allclose(drawn.importance[drawn.anchors > 0][quarter], 0.25, rtol=1e-5)


def test_without_priorities_there_is_no_importance() -> None:
    columns = make_columns()
    assert make_mixture(columns, (1, "uniform"), (1, "recency")).draw(8, STEP, make_generator(0)).importance is None


def test_importance_is_there_even_if_no_sample_is_drawn_by_priority() -> None:
    mixture = make_mixture(make_columns(), (1e12, "uniform"), (1, PRIORITISED))
    drawn = mixture.draw(4, STEP, make_generator(0))
    assert drawn.importance is not None
    assert drawn.importance.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_exactly_the_legal_samples_appear(span: Span) -> None:
    columns = make_columns(num_chunks=8)
    mixture = MixtureSampler(MixtureSampler.Config.model_validate(ALL), columns)
    found = samples_of(columns, mixture.draw(5000, span, make_generator(0)).anchors, span)
    assert set(found) == legal_samples(STREAMS, columns.oldest, span)


def test_mixtures_hold_mixtures() -> None:
    mixture = make_mixture(make_columns(), (1, "uniform"), (1, mix((1, PRIORITISED), (1, "online"))))
    assert mixture.uses_priorities
    assert mixture.draw(50, STEP, make_generator(0)).importance is not None


@pytest.mark.parametrize("through", ["memory", "files"])
@pytest.mark.parametrize("steps", [5, 36, 101])
def test_a_restored_buffer_draws_the_same(steps: int, through: str, tmp_path: Path) -> None:
    buffer, copy = make_buffer(steps, sampler=ALL), make_buffer(7, sampler=ALL)
    batch = sample(buffer, Transitions(4))
    buffer.write_back(WriteBack(batch["id"], {"priority": batch["id"] % 7}))
    state = buffer.state()
    copy.load_state(through_files(state, tmp_path) if through == "files" else state)
    for time in range(steps, steps + 50):
        for read in (Transitions(16, 2), Window(8, 3)):
            batch = sample(buffer, read, time)
            assert_same(sample(copy, read, time), batch)
            for one in (buffer, copy):
                one.write_back(WriteBack(batch["id"], {"priority": np.sin(batch["id"] + time)}))
        for one in (buffer, copy):
            one.add(make_buffer_row(time))
    assert_same_state(copy.state()["sampler"], buffer.state()["sampler"])


def test_a_sampler_is_chosen_by_config() -> None:
    words = ["buffers.main.sampler.kind=prioritised", "buffers.main.sampler.alpha=0.7"]
    config: Any = make_config("CartPole-v1:dqn", words).buffers["main"]
    assert (config.sampler.kind, config.sampler.alpha, config.sampler.beta_start) == ("prioritised", 0.7, 0.4)
    parts = "[{weight: 0.5, sampler: {kind: recency, half_life: 1e3}}, {weight: 1, sampler: uniform}]"
    config = make_config("CartPole-v1:dqn", [f"buffers.main.sampler={{kind: mixture, parts: {parts}}}"]).buffers["main"]
    assert [part.sampler.kind for part in config.sampler.parts] == ["recency", "uniform"]
    assert config.sampler.parts[0].sampler.half_life == 1000
    assert ReplayBuffer.Config().sampler.kind == "uniform"
    with pytest.raises(ConfigError, match="prioritised"):
        make_config("CartPole-v1:dqn", ["buffers.main.sampler.kind=prioritized"])
    with pytest.raises(ConfigError, match="parts"):
        make_config("CartPole-v1:dqn", ["buffers.main.sampler={kind: mixture, parts: []}"])


def checking_run(sampler: Any) -> Any:
    phase = {
        "hooks": [{"collect": {"rows": 12}}, {"update_windows": {"updates": 3}}, {"evaluate": {"episodes": 1}}],
        "duration_cycles": 60,
    }
    prefill = {"hooks": [{"collect": {"rows": 30}}], "duration_cycles": 1}
    return checking_config(prefill, phase, buffers={"main": {"kind": "replay", "capacity": 150, "sampler": sampler}})


@pytest.mark.parametrize("sampler", ["uniform", "prioritised", "recency", "online", ALL], ids=str)
def test_a_run_is_served_rows_as_they_were(sampler: Any) -> None:
    with finished(checking_run(sampler)) as run:
        assert run.algorithm.calls["update_windows"] == 180
        machine = [line for line in run.listener.records["machine"] if "replay/fill" in line]
        assert machine
        assert machine[-1]["replay/fill"] == 1
        assert 0 < machine[-1]["replay/age"] < 170
        # 180 batches of 4 windows of 6 rows, and 30 + 60 * 12 rows
        assert machine[-1]["replay/samples_per_insert"] == pytest.approx(180 * 24 / 750)
        assert not any(key.startswith("replay/") for line in run.metrics for key in line)


def test_a_loaded_session_goes_on_like_the_old_one() -> None:
    config = checking_run(ALL)
    with finished(config) as whole, started(config) as first, started(config) as second:
        first.stop_after(300)
        second.session.load_state(first.session.state())
        assert second.orchestrator.run()
        ours, theirs = (run.session.buffers["main"].state() for run in (second, whole))
        for part in ("sampler", "annotations", "usage"):
            assert_same_state(ours[part], theirs[part], part)
        assert first.metrics + second.metrics == whole.metrics
