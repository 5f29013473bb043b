"""Values that are resolved when a run is created: budgets, horizons, schedules, machine settings."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest

from reverie.api import make_config
from reverie.config.compose import compose
from reverie.config.decide import decide_auto
from reverie.config.resolve import budget_of, resolve_numbers, round_up, set_budget
from reverie.config.tree import Tree, get
from reverie.config.validate import load_config
from reverie.core.counters import Budget
from reverie.core.errors import ConfigError
from reverie.core.specs import ActionSpec, Specs
from reverie.envs.config import EnvConfig
from reverie.envs.probe import EnvFacts

Make = Callable[..., Tree]
LOOP = [
    {"name": "prefill", "hooks": [{"collect": {"rows": 64}}], "duration_steps": 100},
    {
        "name": "loop",
        "repeat": 3,
        "phases": [
            {"name": "a", "hooks": [{"collect": {"rows": 64}}], "duration_steps": 200},
            {"name": "b", "hooks": ["update"], "duration_updates": 5},
        ],
    },
    {"name": "end", "type": "eval_only", "hooks": [{"evaluate": {"episodes": 4}}], "duration_cycles": 1},
]


def loop_tree(toy_tree: Make) -> Tree:
    return {**toy_tree(), "phases": copy.deepcopy(LOOP)}


def summary(tree: Tree) -> list[tuple[str, int | None]]:
    return [(phase["name"], phase.get("duration_steps")) for phase in tree["phases"]]


def test_the_horizon_is_the_unrolled_budget(toy_tree: Make) -> None:
    assert resolve_numbers(loop_tree(toy_tree))["horizon_steps"] == 100 + 3 * 200
    assert resolve_numbers(toy_tree("horizon_steps=5"))["horizon_steps"] == 5


@pytest.mark.parametrize(
    ("words", "every"),
    [
        (("phases.learn.duration_steps=20000",), (1000, 0, 0)),
        (("phases.learn.duration_steps=null", "phases.learn.duration_cycles=1000"), (0, 0, 50)),
        (
            ("phases.learn.duration_steps=null", "phases.learn.duration_cycles=1000", "checkpoint.every_steps=7"),
            (7, 0, 0),
        ),
        (
            ("phases.learn.duration_steps=null", "phases.learn.duration_cycles=9", "checkpoint.every_cycles=3"),
            (0, 0, 3),
        ),
        (("phases.learn.duration_steps=null", "phases.learn.duration_updates=400"), (0, 20, 0)),
    ],
)
def test_checkpoints_are_spread_over_the_budget(toy_tree: Make, words: tuple[str, ...], every: tuple[int, ...]) -> None:
    saved = resolve_numbers(toy_tree(*words))["checkpoint"]
    assert (saved["every_steps"], saved["every_updates"], saved["every_cycles"]) == every


def test_resume_keeps_the_checkpoint_interval(toy_tree: Make) -> None:
    once = resolve_numbers(loop_tree(toy_tree))
    assert once["checkpoint"]["every_cycles"] == 1
    assert resolve_numbers(once) == once


def test_offline_runs_count_updates_and_others_env_steps(toy_tree: Make) -> None:
    def budget(tree: Tree) -> Budget:
        return budget_of(load_config(tree).phases)

    assert budget(loop_tree(toy_tree)) == Budget("env_steps", 700)
    assert budget(toy_tree(OFFLINE)) == Budget("updates", 9)
    both = toy_tree(OFFLINE)
    both["phases"] += toy_tree()["phases"]
    assert budget(both) == Budget("env_steps", 20_000), "it takes steps, too"
    assert budget(toy_tree("phases=[{name: p, type: eval_only, hooks: [evaluate], duration_cycles: 1}]")) == Budget()


def test_linear_schedules_anywhere_end_at_the_horizon(toy_tree: Make) -> None:
    tree = toy_tree(
        "algorithm.learning_rate=lin_1e-3", "phases.learn.overrides={algorithm.gamma: lin_0.5}", "env.kwargs={a: lin_1}"
    )
    resolved = resolve_numbers(tree)
    assert resolved["algorithm"]["learning_rate"] == {"start": 1e-3, "end": 0.0, "from": 0, "to": 20_000}
    assert resolved["phases"][0]["overrides"]["algorithm.gamma"]["to"] == 20_000
    assert resolved["env"]["kwargs"] == {"a": "lin_1"}
    assert tree["algorithm"]["learning_rate"] == "lin_1e-3", "the tree that was given must stay as it is"


def test_longer_budget_later_keeps_schedules(toy_tree: Make) -> None:
    resolved = resolve_numbers(toy_tree("algorithm.learning_rate=lin_1e-3"))
    longer = resolve_numbers(set_budget(resolved, 500_000))
    assert longer["algorithm"]["learning_rate"]["to"] == 20_000


OFFLINE = "phases=[{name: p, type: offline, hooks: [update], duration_updates: 9}]"


@pytest.mark.parametrize("words", [(), ("horizon_steps=50",)])
def test_schedules_of_an_offline_run_fall_over_its_updates(toy_tree: Make, words: tuple[str, ...]) -> None:
    resolved = resolve_numbers(toy_tree("algorithm.learning_rate=lin_1e-3", OFFLINE, *words))
    line = {"start": 1e-3, "end": 0.0, "from": 0, "to": 9, "unit": "updates"}
    assert resolved["algorithm"]["learning_rate"] == line


def test_a_schedule_over_an_unknown_number_of_updates_is_an_error(toy_tree: Make) -> None:
    cycles = OFFLINE.replace("duration_updates", "duration_cycles")
    with pytest.raises(ConfigError, match="no phase says how many") as caught:
        resolve_numbers(toy_tree("algorithm.learning_rate=lin_1e-3", cycles))
    advice = caught.value.fix.partition("write a constant: ")[2]
    assert resolve_numbers(toy_tree(advice, cycles))["algorithm"]["learning_rate"] == 1e-3


def test_evaluation_run_accepts_any_schedule(toy_tree: Make) -> None:
    words = "phases=[{name: p, type: eval_only, hooks: [{evaluate: {episodes: 1}}], duration_cycles: 1}]"
    rate = resolve_numbers(toy_tree("algorithm.learning_rate=lin_1e-3", words))["algorithm"]["learning_rate"]
    assert (rate["start"], rate["from"]) == (1e-3, 0)


def test_a_schedule_without_a_horizon_is_an_error(toy_tree: Make) -> None:
    tree = toy_tree(
        "algorithm.learning_rate=lin_1e-3", "phases.learn.duration_steps=null", "phases.learn.duration_updates=5"
    )
    with pytest.raises(ConfigError, match=r"algorithm\.learning_rate") as caught:
        resolve_numbers(tree)
    assert "horizon_steps" in caught.value.fix


@pytest.mark.parametrize(
    ("steps", "every"), [(20_000, 100), (100_000, 500), (1_000_000, 5_000), (130_000, 1_000), (10, 1)]
)
def test_metrics_are_written_about_two_hundred_times(toy_tree: Make, steps: int, every: int) -> None:
    assert resolve_numbers(toy_tree(f"phases.learn.duration_steps={steps}"))["log"]["every_steps"] == every


def test_given_log_interval_is_kept(toy_tree: Make) -> None:
    assert resolve_numbers(toy_tree("log.every_steps=7"))["log"]["every_steps"] == 7


@pytest.mark.parametrize(("number", "rounded"), [(1, 1), (2, 2), (3, 5), (6, 10), (10, 10), (11, 20), (501, 1000)])
def test_round_up(number: int, rounded: int) -> None:
    assert round_up(number) == rounded


def test_only_auto_values_query_the_machine(toy_tree: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    facts = EnvFacts(
        EnvConfig(id="Toy-v0"), Specs({}, ActionSpec("discrete", (), "int64", (2,))), True, True, "process"
    )
    config = decide_auto(resolve_numbers(toy_tree()), facts)
    assert (config.backend.device, config.env.vector) == ("cpu", "process")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert decide_auto(resolve_numbers(toy_tree()), facts).backend.device == "cuda"
    config = decide_auto(resolve_numbers(toy_tree("backend.device=cpu", "env.vector=sync")), facts)
    assert (config.backend.device, config.env.vector) == ("cpu", "sync")


@pytest.mark.parametrize(
    ("words", "frames"),
    [
        ("env.wrappers=[{kind: frame_stack, frames: 3}]", 3),
        ("env.wrappers=[frame_stack, {kind: action_repeat, repeats: 2}, {kind: time_limit, steps: 9}]", 4),
        ("env.wrappers=[frame_stack, {kind: mask_observation, keep: [0]}]", 1),
        ("env.wrappers=[frame_stack] normaliser.observation=rolling", 1),
        ("env.wrappers=[frame_stack] buffers.main.stacked_frames=1", 1),
        ("env.num_envs=1", 1),
    ],
)
def test_frame_stack_is_read_from_the_wrapper(words: str, frames: int) -> None:
    given = re.split(r" (?=\S+=)", words)
    composed = compose("CartPole-v1:dqn", given)
    assert resolve_numbers(composed.tree, composed.sources)["buffers"]["main"]["stacked_frames"] == frames


PARTS = "{kind: mixture, parts: [{weight: 1, sampler: prioritised}, {weight: 1, sampler: uniform}]}"
STORED = ("offline", "buffers.main.source=somewhere")


@pytest.mark.parametrize(
    ("words", "path", "rows"),
    [
        (["buffers.main.sampler=prioritised"], "sampler", 50_000),
        ([f"buffers.main.sampler={PARTS}"], "sampler.parts.0.sampler", 50_000),
        (["buffers.main.sampler=prioritised", "horizon_steps=7000"], "sampler", 7_000),
        (["buffers.main.sampler={kind: prioritised, beta_rows: 1_000_000}"], "sampler", 1_000_000),
        ([*STORED, "buffers.main.sampler=prioritised"], "sampler", 1),
    ],
)
def test_importance_annealing_ends_with_the_run(words: list[str], path: str, rows: int) -> None:
    composed = compose("CartPole-v1:dqn", words)
    resolved = resolve_numbers(composed.tree, composed.sources)
    assert get(resolved, ("buffers", "main", *path.split("."), "beta_rows")) == rows
    if resolved["horizon_steps"]:
        longer = resolve_numbers(set_budget(resolved, 500_000))
        assert longer["buffers"] == resolved["buffers"], "what is settled stays when the run goes on"


def test_resolving_twice_changes_nothing(toy_tree: Make) -> None:
    once = resolve_numbers(toy_tree("algorithm.learning_rate=lin_1e-3"))
    assert resolve_numbers(once) == once


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (6_000, [("prefill", 1_000), ("learn", 5_000)]),
        (50_000, [("prefill", 1_000), ("learn", 49_000)]),
        (1_500, [("prefill", 1_000), ("learn", 500)]),
        (1_000, [("prefill", 1_000)]),
        (300, [("prefill", 300)]),
    ],
)
def test_last_phase_gets_the_rest_of_the_budget(toy_tree: Make, steps: int, expected: list[tuple[str, int]]) -> None:
    assert summary(set_budget(toy_tree("two"), steps)) == expected


def test_a_budget_keeps_loops_that_fit(toy_tree: Make) -> None:
    assert summary(set_budget(loop_tree(toy_tree), 700)) == [("prefill", 100), ("loop", None), ("end", None)]


def test_budget_that_ends_in_a_loop_unrolls_it(toy_tree: Make) -> None:
    tree = set_budget(loop_tree(toy_tree), 450)
    assert summary(tree) == [("prefill", 100), ("a", 200), ("b", None), ("a", 150), ("end", None)]
    tree = set_budget(loop_tree(toy_tree), 1_000)
    assert summary(tree)[-3:] == [("a", 500), ("b", None), ("end", None)]


def test_a_budget_of_steps_needs_a_phase_counted_in_steps(toy_tree: Make) -> None:
    tree = toy_tree("phases.learn.duration_steps=null", "phases.learn.duration_updates=5")
    with pytest.raises(ConfigError, match="updates or cycles") as caught:
        set_budget(tree, 100)
    assert "duration_updates" in caught.value.fix


def test_a_budget_must_be_positive(toy_tree: Make) -> None:
    with pytest.raises(ConfigError, match="0 env steps"):
        set_budget(toy_tree(), 0)


@pytest.mark.parametrize(
    ("kind", "device", "capability", "precision"),
    [
        ("dreamer", "cpu", (9, 0), "float32"),
        ("dreamer", "cuda", (8, 0), "bfloat16"),
        ("dreamer", "cuda", (7, 5), "float32"),
        ("ppo", "cuda", (9, 0), "float32"),
    ],
)
def test_bfloat16_is_chosen_if_hardware_and_algorithm_support_it(
    kind: str, device: str, capability: tuple[int, int], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from reverie import backend

    monkeypatch.setattr(backend, "check_device", torch.device)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda chosen: capability)
    words = [f"backend.device={device}", "env.vector=sync"]
    assert make_config(f"CartPole-v1:{kind}", words).backend.precision == precision
    if kind == "dreamer":
        given = make_config(f"CartPole-v1:{kind}", [*words, "backend.precision=float32"])
        assert given.backend.precision == "float32"
