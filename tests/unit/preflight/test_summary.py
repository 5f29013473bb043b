"""The look before the first step: it changes nothing, tells what is coming, and finds the traps."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie import api
from reverie.api import make_config
from reverie.build import build
from reverie.config.compose import compose
from reverie.config.presets import env_names, variant_names
from reverie.config.resolve import resolve_numbers
from reverie.config.schema import RunConfig
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError
from reverie.core.specs import Specs
from reverie.data.memory_forecast import Forecast
from reverie.envs.make import make_specs
from reverie.machine import memory as machine
from reverie.preflight.forecast import Duration, buffer_bytes, disk_bytes, duration
from reverie.preflight.probe import HookCost, Measured, measure
from reverie.preflight.summary import MOST_LINES, examine_config, examine_session, report_lines, to_json
from reverie.preflight.warnings import (
    UPDATE_AMOUNTS,
    Facts,
    check_memory,
    find_traps,
    no_time_limit,
    preset_rate,
    unusual_updates,
    update_rate,
)
from reverie.runs.verify import first_difference

PPO = ("CartPole-v1:ppo", "env.num_envs=2", "env.vector=sync", "phases.learn.collect.rows=16", "algorithm.epochs=1")
DQN = ("CartPole-v1:dqn", "algorithm.network.units=[8]")


def config_of(words: Sequence[str], steps: int | None = None) -> RunConfig:
    return make_config(words[0], words[1:], seed=1, steps=steps)


def facts_of(config: RunConfig, **known: Any) -> Facts:
    specs = known.pop("specs", None) or make_specs(config.env)
    return Facts(config, specs, **{"memory": 10, "free_memory": 10**9, **known})


# ---------------------------------------------------------------- the probe


@pytest.mark.parametrize("words", [PPO, DQN, ("CartPole-v1:reinforce",), ("Taxi-v4:qlearning",)])
def test_a_probe_leaves_the_session_and_all_generators_as_they_were(words: Sequence[str], tmp_path: Path) -> None:
    session = build(config_of(words))
    before, streams = session.state(), random.getstate()
    facts = examine_session(session, tmp_path, build)
    assert not facts.measured.problem
    assert facts.measured.row_seconds > 0
    assert facts.measured.hooks["update"].seconds > 0
    assert list(first_difference(before, session.state())) == []
    assert random.getstate() == streams
    assert list(tmp_path.iterdir()) == []
    session.close()


def test_a_probe_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    def broken(config: RunConfig) -> Any:
        raise RuntimeError("no such simulator\nand more")

    session = build(config_of(PPO))
    facts = examine_session(session, tmp_path, broken)
    session.close()
    assert any("unknown: RuntimeError: no such simulator" in line for line in report_lines(facts))


def test_the_copy_has_a_seed_and_a_buffer_of_its_own() -> None:
    made: list[RunConfig] = []

    def note(config: RunConfig) -> Any:
        made.append(config)
        return build(config)

    config = config_of((*DQN, "env.num_envs=20", "env.vector=process", "phases.learn.collect.rows=20"))
    measure(config, note)
    (copy,) = made
    assert copy.seed != config.seed
    assert copy.env.vector == "sync"
    assert copy.env.num_envs == 8
    assert copy.buffers["main"].min_rows == 1 < config.buffers["main"].min_rows  # type: ignore[attr-defined]


def test_without_a_probe_nothing_is_built(tmp_path: Path) -> None:
    session = build(config_of(PPO))
    facts = examine_session(session, tmp_path, None)
    session.close()
    lines = report_lines(facts)
    assert [line.split()[0] for line in lines] == ["device", "memory", "disk"]
    assert f"{facts.parameters:,} parameters" in lines[0]


def test_a_run_prints_it_once_unless_quiet_or_turned_off(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = api.train(*PPO, steps=40, runs_dir=runs_dir, quiet=False)
    told = capsys.readouterr().err
    assert told.count("  memory  ") == 1
    assert told.index("  memory  ") < told.index("Finished")
    api.resume(str(run.path), steps=80, quiet=False)
    assert "  memory  " not in capsys.readouterr().err
    api.train(*PPO, "preflight.enabled=false", steps=40, runs_dir=runs_dir, quiet=False)
    assert "  memory  " not in capsys.readouterr().err
    api.train(*PPO, "preflight.probe=false", steps=40, runs_dir=runs_dir, quiet=False)
    table = capsys.readouterr().err
    assert "  memory  " in table
    assert "  speed  " not in table
    api.train(*PPO, steps=40, runs_dir=runs_dir, quiet=True)
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- forecasts


def test_a_probe_waits_until_there_are_rows_enough_for_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dreamer collects few rows per cycle and reads long sequences of them. However slow the machine is."""
    monkeypatch.setattr("reverie.preflight.probe.READY_SECONDS", 60.0)
    monkeypatch.setattr("reverie.preflight.probe.QUICK_SECONDS", 60.0)
    short = ("algorithm.batch_size=2", "algorithm.batch_length=40")
    config = config_of(("CartPole-v1:dreamer", "debug", *short), steps=2000)
    measured = measure(config, build)
    assert (list(measured.hooks), measured.problem) == (["update"], "")


FILL_A_BUFFER = """
import sys
from reverie.api import make_config
from reverie.build import build
from reverie.machine.usage import resident_memory
session = build(make_config(sys.argv[1], sys.argv[2:]))
buffer, collector = session.buffers["main"], session.collector
collector.restart()
row = collector.act()
before = resident_memory()
for _ in range(buffer.rows.capacity_rows):
    buffer.add(row)
print(resident_memory() - before)
"""


def test_the_forecast_of_memory_is_what_a_full_buffer_takes() -> None:
    words = ("Reverie/Motion-v0:dqn", "env.num_envs=1", "buffers.main.capacity=10000", "buffers.main.chunk_rows=500")
    config = config_of(words)
    expected = buffer_bytes(config, make_specs(config.env), Measured()).memory
    assert expected > 30e6, "too small to be measured"
    # In a process of its own: the buffer would take up what other tests have given back.
    command = [sys.executable, "-c", FILL_A_BUFFER, *words]
    taken = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert abs(taken - expected) < 0.1 * expected


def test_extras_and_annotations_count() -> None:
    config = config_of((*DQN, "buffers.main.capacity=1000"))
    specs = make_specs(config.env)
    plain = buffer_bytes(config, specs, Measured()).memory
    more = Measured(extras={"latent": np.zeros((1, 32), np.float32)})
    assert buffer_bytes(config, specs, more).memory - plain >= 1000 * 128


def test_rollouts_that_no_phase_reads_are_counted_whole() -> None:
    gather = "{name: gather, hooks: [{collect: {rows: 16}}], duration_steps: 1600}"
    learn = "{name: learn, hooks: [{collect: {rows: 16}}, update], duration_steps: 160}"

    def memory(*phases: str) -> int:
        config = config_of((*PPO[:3], f"phases=[{', '.join(phases)}]"))
        return buffer_bytes(config, make_specs(config.env), Measured()).memory

    assert memory(gather) == 100 * memory(learn)
    assert memory(gather, learn) == 101 * memory(learn)
    assert memory(gather.replace("duration_steps: 1600", "duration_cycles: 7"), learn) == 8 * memory(learn)
    assert memory(gather.replace("}}]", "}}], keep: [algorithm]"), learn) == 100 * memory(learn)


def test_disk_counts_what_is_kept_at_the_same_time() -> None:
    config = config_of((*PPO, "checkpoint.keep_last=4", "checkpoint.keep_every_steps=10_000"), steps=100_000)
    weights = {"a": {"b": np.zeros(1000, np.float32)}, "steps": 3}
    memory = buffer_bytes(config, make_specs(config.env), Measured())
    more = disk_bytes(config, weights, weights, memory) - disk_bytes(config, {}, weights, memory)
    assert more == 4000 * (4 + 1 + 10)


def test_disk_counts_annotations_once_for_each_checkpoint_and_rows_once() -> None:
    config = config_of((*DQN, "buffers.main.capacity=1000", "checkpoint.keep_last=4"))
    specs = make_specs(config.env)
    latents = Measured(annotations={"latent": np.zeros((1, 32), np.float32)})
    plain, noted = (
        disk_bytes(config, {}, {}, buffer_bytes(config, specs, measured)) for measured in (Measured(), latents)
    )
    assert noted - plain == 5 * 128 * 1125  # 1,000 rows and the chunk that is being filled


@pytest.mark.parametrize(
    ("steps", "words", "times"),
    [(900, (), 1), (1500, (), 1.5), (50_000, (), 5), (50_000, ("checkpoint.keep_every_steps=9000",), 50)],
    ids=["nothing dropped", "some", "between checkpoints", "all"],
)
def test_disk_counts_rows_that_only_checkpoints_still_hold(steps: int, words: tuple[str, ...], times: float) -> None:
    settings = ("buffers.main.capacity=1000", "checkpoint.every_steps=2000", "checkpoint.keep_last=2", *words)
    config = config_of((*DQN, *settings), steps=steps)
    rows = Forecast(1_000_000)
    assert disk_bytes(config, {}, {}, rows) - disk_bytes(config, {}, {}, Forecast(0)) == 1_000_000 * times


def test_time_follows_from_what_was_measured() -> None:
    config = config_of((*DQN, "evaluate.final_episodes=10"))
    specs = make_specs(config.env)
    measured = Measured(row_seconds=1e-3, hooks={"update": HookCost(2e-3, 1, None, 64)})
    found = duration(config, specs, measured)
    assert found is not None
    # 50,000 steps of a millisecond; 49,000 * 128 / 256 updates of two; 9 * 10 and 10 episodes of at most 500 steps
    assert found.training == pytest.approx(50 + 49, rel=0.01)
    assert found.evaluation == pytest.approx((98 + 10) * 0.5, rel=0.02)
    assert found.steps_per_second == pytest.approx(50_000 / 99, rel=0.01)
    assert duration(config, specs, Measured(row_seconds=1e-3)) is None, "updates were not measured"


def test_a_rollout_is_read_once() -> None:
    config = config_of(PPO, steps=1600)
    measured = Measured(row_seconds=1e-3, hooks={"update": HookCost(0.5, 4, rows=32)})
    found = duration(config, make_specs(config.env), measured)
    assert found is not None
    assert found.training == pytest.approx(1.6 + 1600 / 32 * 0.5)


# ---------------------------------------------------------------- traps


def test_a_sound_run_has_no_traps() -> None:
    assert find_traps(facts_of(config_of(PPO), parameters=5000)) == []


def test_buffers_that_do_not_fit_are_refused_before_there_is_a_folder(runs_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"need .* of memory, but only .* are free") as caught:
        api.train(*DQN, "buffers.main.capacity=1e13", runs_dir=runs_dir)
    assert "capacity" in caught.value.fix
    assert list(runs_dir.iterdir()) == []


def test_memory_is_compared_with_what_is_free() -> None:
    config = config_of(DQN)
    check_memory(facts_of(config, memory=100, free_memory=100))
    check_memory(facts_of(config, memory=100, free_memory=None))
    with pytest.raises(ConfigError) as caught:
        check_memory(facts_of(config, memory=101, free_memory=100))
    assert "buffers.main.storage=disk" in caught.value.fix


def test_a_buffer_on_disk_is_not_told_to_go_there() -> None:
    facts = facts_of(config_of([*DQN, "buffers.main.storage=disk"]), memory=101, free_memory=100)
    with pytest.raises(ConfigError) as caught:
        check_memory(facts)
    assert caught.value.fix.startswith("Set a smaller buffers.main.capacity, or free memory.")


def without_limit(config: RunConfig) -> Specs:
    return replace(make_specs(config.env), max_episode_steps=None)


def test_each_trap_names_its_fix() -> None:
    config = config_of(PPO)
    on_gpu = config.model_copy(update={"backend": config.backend.model_copy(update={"device": "cuda"})})
    noisy, quiet = ([*DQN, "algorithm.noisy=true", *words] for words in ([], ["algorithm.epsilon=0"]))
    cases = {
        "algorithm.epsilon=0": [facts_of(config_of(noisy)), facts_of(config_of(quiet))],
        "buffers.main.capacity": [facts_of(config, memory=90, free_memory=100), facts_of(config, memory=70)],
        "checkpoint.keep_last=1": [facts_of(config, disk=2, free_disk=1), facts_of(config, disk=1, free_disk=2)],
        "env.max_episode_steps": [facts_of(config, specs=without_limit(config)), facts_of(config)],
        "normaliser.observation=rolling": [
            facts_of(config, measured=Measured(largest_observation=150.0)),
            facts_of(config, measured=Measured(largest_observation=50.0)),
        ],
        "backend.device=cpu": [facts_of(on_gpu, parameters=5000), facts_of(on_gpu, parameters=500_000)],
        "every_steps": [
            facts_of(config, duration=Duration(100, 101, 1)), facts_of(config, duration=Duration(100, 99, 1)),
        ],
    }  # fmt: skip
    for fix, (trapped, free) in cases.items():
        (told,) = find_traps(trapped)
        assert fix in told
        assert find_traps(free) == []


def test_episodes_too_long_to_be_restored_are_told() -> None:
    long = replace(make_specs(config_of(PPO).env), max_episode_steps=500)
    assert no_time_limit(facts_of(config_of([*PPO, "env.replay_steps=500"]), specs=long)) is None
    told = str(no_time_limit(facts_of(config_of([*PPO, "env.replay_steps=499"]), specs=long)))
    assert "after step 499 of an episode starts a new one: set env.replay_steps=500" in told


def test_updates_far_from_the_preset() -> None:
    """DQN's preset for CartPole has one update per two steps."""
    near, few = "phases.learn.update.updates=64", "phases.learn.update.updates=6"
    assert unusual_updates(facts_of(config_of((*DQN, near)))) is None
    assert "set phases.learn.update.updates=128" in str(unusual_updates(facts_of(config_of((*DQN, few)))))
    assert "5 updates" in str(unusual_updates(facts_of(config_of((*DQN, "phases.learn.update.updates=1281")))))
    assert unusual_updates(facts_of(config_of(PPO))) is None, "a rollout is read once, whatever its size"


def test_train_ratio_is_compared_in_updates() -> None:
    config = config_of((*DQN, "phases.learn.hooks=[{collect: {rows: 4}}, {update: {train_ratio: 32}}]"))
    measured = Measured(hooks={"update": HookCost(1.0, 1, None, 64)})
    assert update_rate(config, measured) == 0.5
    assert preset_rate(config, measured) == 0.5


@pytest.mark.parametrize("spec", [f"{env}:{variant}" for env in env_names() for variant in variant_names(env)])
def test_no_preset_walks_into_a_trap_of_updates(spec: str) -> None:
    config = load_config(resolve_numbers(compose(spec, ()).tree))
    measured = Measured(hooks={"update": HookCost(1.0, 1, None, 1024)})
    own, usual = update_rate(config, measured), preset_rate(config, measured)
    assert own is None or usual is None or 0.1 < own / usual < 10


@pytest.mark.parametrize("spec", ["CartPole-v1:dreamer", "CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_what_is_to_be_typed_leads_out_of_the_trap(spec: str) -> None:
    hook = config_of([spec]).phases[1].hooks[1]
    name = next(name for name in UPDATE_AMOUNTS if getattr(hook, name) is not None)
    measured = Measured(hooks={"update": HookCost(1.0, 1, None, 1024)})

    def told(*words: str) -> str | None:
        return unusual_updates(facts_of(config_of([spec, *words]), measured=measured))

    assert told() is None
    far = told(f"phases.learn.update.{name}={20 * getattr(hook, name)}")
    assert far is not None
    assert told(far.rpartition("set ")[2]) is None


def test_videos_need_an_env_that_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(PPO)

    def facts(enabled: Any) -> Facts:
        return facts_of(config.model_copy(update={"video": config.video.model_copy(update={"enabled": enabled})}))

    assert find_traps(facts(True)) == []
    monkeypatch.setattr("reverie.preflight.warnings.make_env", lambda *_: (_ for _ in ()).throw(OSError("no display")))
    (told,) = find_traps(facts(True))
    assert "no display" in told
    assert "MUJOCO_GL=egl" in told
    assert find_traps(facts("auto")) == [], "auto leaves videos out by itself"


def test_large_observations_are_seen_by_the_probe() -> None:
    words = ("Reverie/Counting-v0:ppo", "env.num_envs=2", "env.vector=sync", "phases.learn.collect.rows=400",
             "env.kwargs.length=1000")  # fmt: skip
    assert measure(config_of(words), build).largest_observation >= 100
    assert measure(config_of((*words, "normaliser.observation=rolling")), build).largest_observation == 0


def test_the_table_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    traps = tuple(lambda facts, number=number: f"trap {number}" for number in range(30))
    monkeypatch.setattr("reverie.preflight.warnings.TRAPS", traps)
    facts = facts_of(config_of(PPO), disk=1, free_disk=2, duration=Duration(7300.0, 90.0, 1000), parameters=7)
    lines = report_lines(facts)
    assert len(lines) == MOST_LINES
    assert lines[4].split(maxsplit=1)[1] == "about 2 h 1 min of training, and at most 90 s of evaluations"


def test_traps_fit_into_a_terminal() -> None:
    config = config_of(PPO)
    facts = facts_of(config, memory=90, free_memory=100, disk=2, free_disk=1, specs=without_limit(config))
    lines = report_lines(facts)
    assert all(len(line) <= 80 for line in lines)
    assert "checkpoint.keep_last=1, or choose another --runs-dir" in " ".join(line.strip() for line in lines)


def test_dry_runs_tell_what_is_cheap_to_know() -> None:
    config = config_of((*DQN, "buffers.main.capacity=1e13"))
    told = to_json(examine_config(config, make_specs(config.env)))
    assert told["buffer_bytes"] > 1e13
    assert any("more than the free memory" in trap for trap in told["traps"])


def test_sizes_for_people() -> None:
    assert [machine.size_text(n) for n in (0, 999, 1500, 2.5e8, 48e9, 3e12)] == [
        "0 B", "999 B", "1.5 kB", "250 MB", "48.0 GB", "3.0 TB",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [2, 1])
def test_a_container_limit_counts_as_the_machine(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (limit, used), there = CONTAINER_FILES[version], tmp_path / str(version)
    there.mkdir()
    monkeypatch.setattr(machine, "_GROUPS", (tmp_path / "2", tmp_path / "1"))
    (there / limit).write_text("1000\n"), (there / used).write_text("700\n")
    assert (machine.total_memory(), machine.free_memory()) == (1000, 300)
    (there / limit).write_text("max\n")
    assert (machine.total_memory() or 0) > 1000


CONTAINER_FILES = {
    2: ("memory.max", "memory.current"), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "stat", "free"),
    [
        (2, "anon 300\nfile 350\nactive_file 100\ninactive_file 200\nslab_reclaimable 50\nshmem 50\n", 650),
        (1, "inactive_file 1\ntotal_rss 300\ntotal_active_file 100\ntotal_inactive_file 200\n", 600),
        (2, "active_file 9000\n", 1000),
        (2, "not what it should be\n", 300),
    ],
)
def test_files_that_the_system_keeps_in_memory_are_free(
    version: int, stat: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = CONTAINER_FILES[version]
    monkeypatch.setattr(machine, "_GROUPS", (tmp_path / "2", tmp_path / "1"))
    (tmp_path / str(version)).mkdir()
    for name, text in ((limit, "1000\n"), (used, "700\n"), ("memory.stat", stat)):
        (tmp_path / str(version) / name).write_text(text)
    assert machine.free_memory() == free
