"""Configs whose parts are valid but do not fit together. Each problem names a fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reverie.api import make_config
from reverie.config.checks import check_config
from reverie.config.overrides import phase_config
from reverie.config.phases import Phase
from reverie.config.tree import Tree
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError
from tests.unit.config.toy import ToyAlgorithm

Make = Callable[..., Tree]
COLLECT: dict[str, Any] = {"collect": {"rows": 64}}


def phase(*hooks: Any, **values: Any) -> dict[str, Any]:
    """An online phase, by default of 100 steps."""
    if not any(key.startswith("duration") for key in values):
        values["duration_steps"] = 100
    return {"name": "p", **values, "hooks": list(hooks)}


def findings(tree: Tree) -> list[str]:
    try:
        check_config(load_config(tree))
    except ConfigError as error:
        lines = str(error).splitlines()
        return [line.strip() for line in lines[1:]] if len(lines) > 1 else lines
    return []


@pytest.mark.parametrize("words", [(), ("two",)])
def test_valid_configs_pass(toy_tree: Make, words: tuple[str, ...]) -> None:
    assert findings(toy_tree(*words)) == []


@pytest.mark.parametrize(
    "phases",
    [
        [phase(COLLECT), phase("update", type="offline", duration_updates=9)],
        [phase({"collect": {"episodes": 8}}, {"update": {"train_ratio": 32}}, "update_model")],
        [{"name": "loop", "repeat": 2, "phases": [phase(COLLECT), phase("update_model", duration_cycles=3)]}],
        [phase(COLLECT, duration_steps=100, until={"metric": "collect/return_mean", "at_least": 1})],
        [phase({"evaluate": {"episodes": 3}}, type="eval_only", duration_cycles=1)],
        [
            phase(
                COLLECT,
                {"collect": {"rows": 64, "every_steps": 64}},
                {"update": {"updates": 1, "every_updates": 5}},
                {"update_model": {"train_ratio": 4}},
            )
        ],
        [phase({"collect": {"rows": 64, "every_cycles": 3}}, {"update": {"updates": 1, "every_steps": 64}})],
        [phase(COLLECT, overrides={"algorithm.gamma": 0.5, "env.kwargs": {"a": 1}})],
        [phase(COLLECT, controller="random"), phase(COLLECT, controller="my_module.MyController")],
    ],
)
def test_valid_phases_pass(toy_tree: Make, phases: list[Any]) -> None:
    assert findings({**toy_tree(), "phases": phases}) == []


@pytest.mark.parametrize(
    ("broken", "key", "what", "fix"),
    [
        (phase(COLLECT, "update_modl"), "update_modl", "no hook 'update_modl'", "'update_model'"),
        (phase("collect"), "collect", "needs an amount", "rows: ... or episodes: ..."),
        (phase({"collect": {"rows": 64, "episodes": 4}}), "collect", "cannot both hold", "Keep one"),
        (phase({"collect": {"rows": 66}}), "collect.rows", "divided equally among 4 envs", "Write 64 or 68"),
        (phase({"collect": {"rows": 3}}), "collect.rows", "divided equally among 4 envs", "Write 4,"),
        (phase({"collect": {"episodes": 5}}), "collect.episodes", "5 cannot be divided", "Write 4 or 8"),
        (
            phase({"collect": {"rows": 64, "updates": 4}}),
            "collect.updates",
            "not counted in",
            "rows or episodes",
        ),
        (
            phase(COLLECT, {"update": {"updates": 1, "train_ratio": 2}}),
            "update",
            "updates and train_ratio cannot both hold",
            "Keep one",
        ),
        (phase(COLLECT, {"update": {"rows": 4}}), "update.rows", "not counted in rows", "It takes updates"),
        (phase(COLLECT, "evaluate"), "evaluate", "needs an amount", "episodes: ..."),
        (
            phase(COLLECT, {"evaluate": {"episodes": 1, "every_steps": 5, "every_cycles": 5}}),
            "evaluate.every_cycles",
            "every_steps and every_cycles",
            "Keep one",
        ),
        (
            phase({"evaluate": {"episodes": 1, "every_steps": 5}}, type="eval_only", duration_cycles=9),
            "evaluate.every_steps",
            "makes env steps",
            "every_updates",
        ),
        (
            phase(COLLECT, {"evaluate": {"episodes": 1, "every_updates": 5}}),
            "evaluate.every_updates",
            "makes updates",
            "every_steps",
        ),
        (
            phase({"collect": {"rows": 64, "every_steps": 64}}),
            "collect.every_steps",
            "waits for env steps that only come after it",
            "Remove every_steps, or use every_cycles",
        ),
        (
            phase({"collect": {"rows": 64, "every_updates": 10}}, {"update": {"updates_per_step": 1}}),
            "collect.every_updates",
            "waits for updates that only come after it",
            "Remove every_updates",
        ),
        (phase(COLLECT, type="offline"), "collect", "offline phase does not collect", "type: online"),
        (phase(COLLECT, type="eval_only"), "collect", "eval_only phase only evaluates", "type: online"),
        (phase({"evaluate": {"episodes": 1}}, type="eval_only"), "duration_steps", "never end", "duration_updates"),
        (phase("update", type="offline", duration_updates=9), "update", "can be data", "buffers.main.source"),
        (phase(COLLECT, duration_updates=5), "duration_updates", "never end", "Add an update hook"),
        (phase(COLLECT, duration_steps=None), "", "has no duration", "duration_cycles"),
        (phase(COLLECT, duration_steps=5, duration_cycles=5), "duration_cycles", "cannot both hold", "Keep one"),
        (phase(duration_cycles=1), "hooks", "does nothing", "collect: {rows: 64}"),
        (
            phase("update", COLLECT),
            "update",
            "before there can be data in buffer 'main'",
            "collect hook before",
        ),
        (phase(COLLECT, buffer="mian"), "buffer", "no buffer 'mian'", "'main'"),
        (phase(COLLECT, controller="randm"), "controller", "no controller 'randm'", "'random'"),
        (phase(COLLECT, keep=["algoritm"]), "keep", "'algoritm'", "'algorithm'"),
        (phase(COLLECT, repeat=3), "repeat", "nothing to repeat", "below 'phases:'"),
        (phase(COLLECT, overrides={"algorithm.gama": 1}), "overrides.algorithm.gama", "no key", "'gamma'"),
        (phase(COLLECT, overrides={"algorithm.gamma": 7}), "overrides", "must be at most 1", "overrides of phase 'p'"),
        (
            phase(COLLECT, overrides={"algorithm.part.units": [1]}),
            "overrides.algorithm.part.units",
            "built once",
            "env.*",
        ),
        (
            phase(COLLECT, overrides={"algorithm.kind": "other"}),
            "overrides.algorithm.kind",
            "built once",
            "algorithm.*",
        ),
        (phase(COLLECT, overrides={"seed": 1}), "overrides.seed", "cannot set 'seed'", "Allowed are env.*"),
        (phase(COLLECT, overrides={"env.num_envs": 8}), "overrides.env.num_envs", "number of envs", "whole run"),
        (
            phase(COLLECT, until={"metric": "return", "at_least": 1}),
            "until.metric",
            "no metric is called 'return'",
            "collect/",
        ),
        (
            phase(COLLECT, until={"metric": "evaluate/return_mean", "at_least": 1}),
            "until.metric",
            "no hook 'evaluate'",
            "Add the hook 'evaluate'",
        ),
    ],
)
def test_a_problem_names_its_key_and_its_fix(toy_tree: Make, broken: Any, key: str, what: str, fix: str) -> None:
    (line,) = findings({**toy_tree(), "phases": [broken]})
    assert line.startswith(f"phases.p.{key}" if key else "phases.p:")
    assert what in line
    assert fix in line


def test_overriding_the_env_of_a_phase_without_collect_is_refused(toy_tree: Make) -> None:
    evaluation = phase(
        {"evaluate": {"episodes": 1}}, type="eval_only", duration_cycles=1, overrides={"env.kwargs": {"a": 1}}
    )
    (line,) = findings({**toy_tree(), "phases": [phase(COLLECT), evaluation]})
    assert line.startswith("phases.p_2.overrides.env.kwargs: no hook of this phase steps the env")
    assert "for the whole run" in line


RANDOM = phase(COLLECT, name="prefill", controller="random")
LEARN = phase(COLLECT, "update", name="learn")
DROPPED = {**RANDOM, "keep": ["algorithm", "normaliser", "episodes"]}


@pytest.mark.parametrize(
    ("phases", "key", "fix"),
    [
        ([RANDOM, LEARN], "phases.prefill", "Remove the phase 'prefill', or drop its rows: phases.prefill.keep="),
        ([RANDOM, phase(COLLECT), LEARN, LEARN], "phases.prefill", "Remove the phase 'prefill'"),
        ([LEARN, {**LEARN, "controller": "random"}], "phases.learn_2", "Remove the controller."),
        ([{"name": "loop", "repeat": 2, "phases": [LEARN, RANDOM]}], "phases.prefill", "Remove the phase"),
    ],
)
def test_on_policy_algorithm_refuses_rows_of_a_controller(
    toy_tree: Make, monkeypatch: pytest.MonkeyPatch, phases: list[Any], key: str, fix: str
) -> None:
    assert findings({**toy_tree(), "phases": phases}) == []
    monkeypatch.setattr(ToyAlgorithm, "traits", replace(ToyAlgorithm.traits, on_policy=True))
    (line,) = findings({**toy_tree(), "phases": phases})
    assert line.startswith(f"{key}.controller: toy learns only from actions that it chose itself")
    assert "those of 'random'" in line
    assert fix in line


@pytest.mark.parametrize("phases", [[DROPPED, LEARN], [{**RANDOM, "buffer": "other"}, LEARN], [LEARN, RANDOM]])
def test_controller_rows_that_no_update_reads_pass(
    toy_tree: Make, monkeypatch: pytest.MonkeyPatch, phases: list[Any]
) -> None:
    monkeypatch.setattr(ToyAlgorithm, "traits", replace(ToyAlgorithm.traits, on_policy=True))
    buffers = {"main": {"kind": "toy_buffer"}, "other": {"kind": "toy_buffer"}}
    assert findings({**toy_tree(), "phases": phases, "buffers": buffers}) == []


@pytest.mark.parametrize("variant", ["ppo", "reinforce"])
def test_on_policy_algorithms_refuse_random_prefill(variant: str) -> None:
    prefill = "{name: prefill, controller: random, hooks: [{collect: {rows: 64}}], duration_steps: 100}"
    learn = "{name: learn, hooks: [{collect: {rows: 64}}, update], duration_steps: 100}"
    with pytest.raises(ConfigError, match=f"{variant} learns only from actions that it chose itself"):
        make_config(f"CartPole-v1:{variant}", [f"phases=[{prefill}, {learn}]"])


@pytest.mark.parametrize(
    ("amounts", "setting", "what", "fix"),
    [
        ({"train_ratio": 4}, "train_ratio", "makes env steps, so update would never run", "updates: 1 instead"),
        ({"updates": 5, "every_updates": 5}, "every_updates", "updates that only come after it", "every_cycles"),
    ],
)
def test_offline_update_cannot_depend_on_env_steps_or_its_own_updates(
    toy_tree: Make, amounts: Any, setting: str, what: str, fix: str
) -> None:
    offline = phase({"update": amounts}, type="offline", duration_updates=9)
    (line,) = findings({**toy_tree(), "phases": [phase(COLLECT), offline]})
    assert line.startswith(f"phases.p_2.update.{setting}")
    assert what in line
    assert fix in line


@pytest.mark.parametrize(
    ("name", "value"), [("hooks", [COLLECT]), ("duration_steps", 5), ("controller", "random"), ("type", "offline")]
)
def test_loop_refuses_settings_of_its_own(toy_tree: Make, name: str, value: Any) -> None:
    loop = {"name": "loop", "repeat": 2, "phases": [phase(COLLECT)], name: value}
    (line,) = findings({**toy_tree(), "phases": [loop]})
    assert line.startswith(f"phases.loop.{name}")
    assert f"Move {name} into them" in line


def test_inner_phases_are_checked_under_their_own_keys(toy_tree: Make) -> None:
    loop = {"name": "loop", "repeat": 2, "phases": [phase(COLLECT), phase("collect")]}
    (line,) = findings({**toy_tree(), "phases": [loop]})
    assert line.startswith("phases.p_2.collect:")


def test_data_in_another_buffer_do_not_count(toy_tree: Make) -> None:
    tree = toy_tree("buffers.side=toy_buffer")
    tree["phases"] = [phase(COLLECT, buffer="side"), phase("update", buffer="main", duration_updates=3)]
    (line,) = findings(tree)
    assert line.startswith("phases.p_2.update")
    tree["phases"][1]["buffer"] = "side"
    assert findings(tree) == []


def test_buffer_that_is_not_kept_becomes_empty(toy_tree: Make) -> None:
    phases = [phase(COLLECT, keep=["algorithm"]), phase("update", duration_updates=3)]
    (line,) = findings({**toy_tree(), "phases": phases})
    assert line.startswith("phases.p_2.update")


def test_early_stop_needs_a_goal_and_an_evaluation(toy_tree: Make) -> None:
    assert findings(toy_tree("early_stop=solved")) == []
    (line,) = findings(toy_tree("early_stop=solved", "env.spec.solved_at=null"))
    assert "env.spec.solved_at" in line
    (line,) = findings({**toy_tree("early_stop=solved"), "phases": [phase(COLLECT)]})
    assert "no phase evaluates" in line


def test_all_findings_are_listed_with_their_sources(toy_tree: Make) -> None:
    tree = toy_tree("phases.learn.collect.rows=66", "phases.learn.buffer=none")
    with pytest.raises(ConfigError, match="2 problems") as caught:
        check_config(load_config(tree), {"phases.learn.buffer": "command line"})
    assert "phases.learn.buffer (command line): there is no buffer 'none'" in str(caught.value)


def test_phase_config_changes_only_its_overrides(toy_tree: Make) -> None:
    config = load_config(toy_tree())
    overrides = {"algorithm.gamma": 0.5, "algorithm.learning_rate": 1e-5, "env.kwargs.speed": 3}
    changed = phase_config(config, Phase(name="p", overrides=overrides))
    assert changed.env.kwargs == {"speed": 3}
    assert changed.algorithm.gamma == 0.5  # type: ignore[attr-defined]
    assert changed.algorithm.learning_rate.start == 1e-5  # type: ignore[attr-defined]
    assert changed.model_copy(update={"env": config.env, "algorithm": config.algorithm}) == config
    assert config.env.kwargs == {}
    assert phase_config(config, Phase(name="p")) is config


@pytest.mark.parametrize("sampler", ["prioritised", "{kind: mixture, parts: [{weight: 1, sampler: prioritised}]}"])
def test_prioritised_sampler_without_priorities_is_refused(sampler: str) -> None:
    with pytest.raises(ConfigError, match="reports no priorities"):
        make_config("CartPole-v1:ppo", ["buffers.main.kind=replay", f"buffers.main.sampler={sampler}"])
    for spec in ("CartPole-v1:dqn", "Pendulum-v1:sac", "CartPole-v1:dreamer"):
        make_config(spec, [f"buffers.main.sampler={sampler}"])


@pytest.mark.parametrize(("spec", "key"), [("CartPole-v1:ppo", "shared_trunk"), ("CartPole-v1:dqn", "dueling")])
def test_phase_cannot_override_what_is_built_once(spec: str, key: str) -> None:
    with pytest.raises(ConfigError, match="built once"):
        make_config(spec, [f"phases.learn.overrides={{algorithm.{key}: true}}"])


def test_unsupported_precision_is_refused() -> None:
    words = ["env.vector=sync", "backend.device=cpu", "backend.precision=bfloat16"]
    with pytest.raises(ConfigError, match="ppo computes only in float32") as caught:
        make_config("CartPole-v1:ppo", words)
    assert "bfloat16 works with: dreamer" in str(caught.value)
    assert make_config("CartPole-v1:dreamer", words).backend.precision == "bfloat16"
