"""Layers, sources, patterns, kinds and references."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reverie.config.compose import compose, split_spec
from reverie.config.path_names import named_leaves
from reverie.config.tree import get, leaves
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.errors import ConfigError


def test_each_value_has_its_layer_as_source() -> None:
    composed = compose("Toy-v0:toy", ["tiny", "seed=7"])
    expected = {
        "seed": "command line",
        "env.id": "command line",
        "env.num_envs": "./presets/env/Toy-v0.yaml",
        "env.spec.solved_at": "./presets/env/Toy-v0.yaml",
        "algorithm.gamma": "./presets/env/Toy-v0.yaml (toy)",
        "phases.learn.collect.rows": "./presets/env/Toy-v0.yaml (toy)",
        "phases.learn.duration_steps": "./presets/algo/toy.yaml",
        "algorithm.part.units": "preset tiny",
        "algorithm.epochs": "default",
        "backend.threads": "default",
    }
    assert {key: composed.sources[key] for key in expected} == expected


def test_later_layers_win() -> None:
    words = ["tiny", "algorithm.part.units=[3, 3]", "algorithm.gamma=0.7"]
    tree = compose("Toy-v0:toy", words).tree
    assert tree["algorithm"]["part"]["units"] == [3, 3]
    assert tree["algorithm"]["head"]["units"] == [2]
    assert tree["algorithm"]["gamma"] == 0.7


def test_every_leaf_has_exactly_one_source() -> None:
    composed = compose("Toy-v0:slow", ["two", "algorithm.learning_rate={start: 1e-3, end: 0, from: 0, to: 10}"])
    assert list(composed.sources) == [key for key, _ in named_leaves(composed.tree)]
    assert len(set(composed.sources)) == len(list(leaves(composed.tree)))
    assert composed.sources["algorithm.learning_rate.start"] == "command line"
    assert "algorithm.learning_rate" not in composed.sources


def test_defaults_set_by_the_owner_apply_until_the_kind_changes() -> None:
    part = compose("Toy-v0:toy", []).tree["algorithm"]["part"]
    assert part == {"kind": "narrow", "units": [16]}
    part = compose("Toy-v0:toy", ["algorithm.part.kind=wide"]).tree["algorithm"]["part"]
    assert part == {"kind": "wide", "units": [64, 64], "bias": True}


def test_a_variant_may_build_on_another_algorithm_file() -> None:
    composed = compose("Toy-v0:slow", [])
    assert composed.tree["algorithm"]["kind"] == "toy"
    assert composed.tree["algorithm"]["learning_rate"] == "lin_1e-3"
    assert "base" not in composed.tree


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("CartPole-v1:ppo", ("CartPole-v1", "ppo")),
        ("my_module.MyEnv:ppo", ("my_module.MyEnv", "ppo")),
        ("ALE/Pong-v5:ppo", ("ALE/Pong-v5", "ppo")),
        ("my_package:MyEnv-v0:ppo", ("my_package:MyEnv-v0", "ppo")),
    ],
)
def test_a_spec_splits_at_its_last_colon(spec: str, parts: tuple[str, str]) -> None:
    assert split_spec(spec) == parts


@pytest.mark.parametrize("spec", ["Toy-v0", "Toy-v0:"])
def test_a_spec_without_a_variant_lists_the_variants(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(spec, [])
    assert "Toy-v0:plain or Toy-v0:slow or Toy-v0:toy" in caught.value.fix


def test_unknown_variant_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="has no variant 'tooy'") as caught:
        compose("Toy-v0:tooy", [])
    assert "'toy'" in caught.value.fix
    assert "slow" in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("phases.learn.duration_steps", ("phases", "1", "duration_steps")),
        ("phases.learn.collect.rows", ("phases", "1", "hooks", "0", "collect", "rows")),
        ("phases.learn.update.updates", ("phases", "1", "hooks", "1", "update", "updates")),
        ("phases.learn.hooks.collect.rows", ("phases", "1", "hooks", "0", "collect", "rows")),
        ("phases.prefill.*.rows", ("phases", "0", "hooks", "0", "collect", "rows")),
        ("phases.prefill.**.rows", ("phases", "0", "hooks", "0", "collect", "rows")),
        ("phases.pre*.collect.rows", ("phases", "0", "hooks", "0", "collect", "rows")),
        ("phases.prefill.hooks.*.*.rows", ("phases", "0", "hooks", "0", "collect", "rows")),
    ],
)
def test_phases_and_hooks_are_addressed_by_name(key: str, value: tuple[str, ...]) -> None:
    composed = compose("Toy-v0:toy", ["two", f"{key}=77"])
    assert get(composed.tree, value) == 77
    shown = ".".join(part for part in value if part != "hooks" and not part.isdigit())
    name = ("prefill", "learn")[int(value[1])]
    assert composed.sources[shown.replace("phases", f"phases.{name}", 1)] == "command line"
    changed = [path for path, leaf in leaves(composed.tree) if leaf == 77]
    assert changed == [value]
    assert not any("have names" in note for note in composed.notes)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("phases.1.duration_steps", "phases.learn.duration_steps"),
        ("phases.1.hooks.0.collect.rows", "phases.learn.collect.rows"),
        ("phases.learn.hooks.1.update.updates", "phases.learn.update.updates"),
    ],
)
def test_indices_still_work_and_print_the_name(key: str, name: str) -> None:
    by_number, by_name = (compose("Toy-v0:toy", ["two", f"{typed}=77"]) for typed in (key, name))
    assert by_number.tree == by_name.tree
    assert by_number.sources == by_name.sources
    assert f"{key} (command line): phases and hooks have names. Write {name}." in by_number.notes


def test_equal_hooks_and_phases_in_loops_are_numbered() -> None:
    hooks = "hooks: [{collect: {rows: 64}}, update, {update_model: {}}, {update: {updates: 2}}], duration_steps: 100"
    loop = f"phases=[{{name: loop, repeat: 2, phases: [{{name: learn, {hooks}}}, {{name: learn, {hooks}}}]}}]"
    words = ["phases.learn.update_2.updates=7", "phases.learn_2.update.updates=8", "phases.loop.repeat=3"]
    composed = compose("Toy-v0:toy", [loop, *words])
    first, second = composed.tree["phases"][0]["phases"]
    assert first["hooks"][1:] == ["update", {"update_model": {}}, {"update": {"updates": 7}}]
    assert second["hooks"][1] == {"update": {"updates": 8}}
    assert composed.tree["phases"][0]["repeat"] == 3
    assert composed.sources["phases.learn.update_2.updates"] == "command line"
    inner = compose("Toy-v0:toy", [loop, "phases.loop.phases.learn.update_2.updates=7"])
    assert inner.tree["phases"][0]["phases"][0] == first


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"There is no phase 'lern'.*Phases: prefill, learn") as caught:
        compose("Toy-v0:toy", ["two", "phases.lern.duration_steps=1"])
    assert "'learn'" in caught.value.fix
    with pytest.raises(ConfigError, match=r"phases\.learn\.colect.*there is no such key. Did you mean 'collect'"):
        load_config(compose("Toy-v0:toy", ["phases.learn.colect.rows=1"]).tree)
    with pytest.raises(ConfigError, match="'resize' is not an entry"):  # only phases and hooks have names
        compose("Toy-v0:toy", ["env.wrappers=[resize]", "env.wrappers.resize.height=3"])


def test_replaced_list_notes_the_lost_changes() -> None:
    (note,) = compose("Toy-v0:toy", ["two"]).notes
    assert note.startswith("phases: preset two replaces the whole list, so the changes of ")
    assert "env/Toy-v0.yaml (toy) are lost." in note
    assert compose("Toy-v0:plain", ["two"]).notes == []


def test_variants_are_listed_once_if_none_is_close() -> None:
    with pytest.raises(ConfigError, match="has no variant 'zzz'") as caught:
        compose("Toy-v0:zzz", [])
    assert str(caught.value).count("slow") == 1


def test_an_unknown_variant_of_an_unknown_env_is_an_unknown_env() -> None:
    with pytest.raises(ConfigError, match="no environment called 'Bandit/Bernouli-v0'") as caught:
        compose("Bandit/Bernouli-v0:ucb", [])
    assert "'Bandit/Bernoulli-v0'" in caught.value.fix
    with pytest.raises(ConfigError, match="'CartPole-v0' has no variant 'ucb'"):
        compose("CartPole-v0:ucb", [])


def test_an_env_without_a_file_gets_the_algorithms_defaults_and_a_note() -> None:
    composed = compose("my_module.MyEnv:toy", [])
    assert composed.tree["env"]["id"] == "my_module.MyEnv"
    assert composed.tree["algorithm"]["gamma"] == 0.99
    assert composed.tree["phases"][0]["hooks"][0] == {"collect": {"rows": 64}}
    assert any("my_module.MyEnv" in note for note in composed.notes)


def test_a_registered_algorithm_needs_no_file() -> None:
    assert compose("Toy-v0:other", []).tree["algorithm"] == {"kind": "other", "gamma": 0.5}


def test_pattern_matches_every_depth_and_the_defaults_of_chosen_kinds() -> None:
    composed = compose("Toy-v0:toy", ["**.units=[5]", "algorithm.part.kind=wide"])
    assert composed.tree["algorithm"]["part"]["units"] == [5]
    assert composed.tree["algorithm"]["head"]["units"] == [5]
    assert composed.sources["algorithm.part.units"] == "command line"


def test_single_star_matches_one_level() -> None:
    tree = compose("Toy-v0:toy", ["algorithm.*.units=[5]"]).tree
    assert tree["algorithm"]["part"]["units"] == tree["algorithm"]["head"]["units"] == [5]
    with pytest.raises(ConfigError, match="matches no key") as caught:
        compose("Toy-v0:toy", ["*.units=[5]"])
    assert "**.units finds it" in caught.value.fix
    tree = compose("Toy-v0:toy", ["two", "phases.*.duration_steps=77"]).tree
    assert [phase["duration_steps"] for phase in tree["phases"]] == [77, 77]


def test_star_may_match_part_of_a_name() -> None:
    tree = compose("Toy-v0:toy", ["normaliser.*_clip=3"]).tree
    assert (tree["normaliser"]["observation_clip"], tree["normaliser"]["reward_clip"]) == (3, 3)
    assert tree["normaliser"]["reward"] is False


def test_a_pattern_that_matches_nothing_names_a_near_key_and_its_source() -> None:
    with pytest.raises(ConfigError) as caught:
        compose("Toy-v0:toy", ["**.unitz=5"])
    assert "'**.unitz' (command line)" in caught.value.message
    assert "'units'" in caught.value.fix


def test_kinds_that_are_not_chosen_are_not_imported() -> None:
    assert "missing" in registry.kinds("toy_part")  # importing this one would fail
    load_config(compose("Toy-v0:toy", ["**.units=[5]", "algorithm.part.kind=wide"]).tree)


def test_a_new_kind_drops_the_old_keys_with_a_note() -> None:
    composed = compose("Toy-v0:toy", ["tiny", "algorithm.part.kind=wide", "algorithm.part.bias=false"])
    assert composed.tree["algorithm"]["part"] == {"kind": "wide", "units": [64, 64], "bias": False}
    assert composed.sources["algorithm.part.units"] == "default"
    assert any("algorithm.part: narrow became wide" in note and "units" in note for note in composed.notes)


def test_keys_given_with_a_new_kind_apply_in_any_order() -> None:
    composed = compose("Toy-v0:toy", ["algorithm.part.units=[7]", "algorithm.part.kind=wide"])
    assert composed.tree["algorithm"]["part"]["units"] == [7]


def test_kind_in_env_kwargs_drops_no_keys(toy: Path) -> None:
    (toy / "mine.yaml").write_text("env.kwargs: {kind: ice, size: 3}\n")
    composed = compose("Toy-v0:toy", ["mine.yaml", "env.kwargs.kind=lava"])
    assert composed.tree["env"]["kwargs"] == {"kind": "lava", "size": 3}
    assert composed.notes == []


def test_same_kind_keeps_the_keys() -> None:
    composed = compose("Toy-v0:toy", ["tiny", "algorithm.part.kind=narrow"])
    assert composed.tree["algorithm"]["part"]["units"] == [2]
    assert composed.notes == []


def test_a_bare_kind_is_a_change_of_kind() -> None:
    composed = compose("Toy-v0:toy", ["tiny", "algorithm=other"])
    assert composed.tree["algorithm"] == {"kind": "other", "gamma": 0.5}
    assert composed.sources["algorithm.kind"] == "command line"
    assert any("toy became other" in note and "gamma" in note for note in composed.notes)


def test_a_bare_kind_can_be_extended(toy: Path) -> None:
    (toy / "mine.yaml").write_text("algorithm.part: wide\n")
    composed = compose("Toy-v0:toy", ["mine.yaml", "algorithm.part.bias=false"])
    assert composed.tree["algorithm"]["part"] == {"kind": "wide", "units": [64, 64], "bias": False}
    assert composed.sources["algorithm.part.kind"] == "mine.yaml"
    assert composed.sources["algorithm.part.bias"] == "command line"


def test_short_forms_keep_their_source(toy: Path) -> None:
    (toy / "mine.yaml").write_text("algorithm.part: wide\nalgorithm.extra: ${algorithm.part}\n")
    sources = compose("Toy-v0:toy", ["mine.yaml"]).sources
    assert (sources["algorithm.part.kind"], sources["algorithm.part.units"]) == ("mine.yaml", "default")
    assert sources["algorithm.extra.units"] == "mine.yaml"


def test_a_hook_given_by_name_can_be_extended() -> None:
    tree = compose("Toy-v0:toy", ["two", "phases.learn.update.updates=3"]).tree
    assert tree["phases"][1]["hooks"][1] == {"update": {"updates": 3}}


def test_references_start_at_the_root_and_see_defaults() -> None:
    composed = compose("Toy-v0:toy", ["linked", "log.every_steps=${phases.learn.duration_steps}"])
    assert composed.tree["normaliser"]["reward_discount"] == 0.9
    assert composed.tree["log"]["every_steps"] == 20_000
    assert composed.sources["normaliser.reward_discount"] == "preset linked"
    assert compose("Toy-v0:other", ["linked"]).tree["normaliser"]["reward_discount"] == 0.5


@pytest.mark.parametrize("text", ["${algorithm.gama}", "${normaliser.reward_discount}", "${unclosed"])
def test_unresolved_reference_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="reference") as caught:
        compose("Toy-v0:toy", [f"normaliser.reward_discount={text}"])
    assert "\n" not in caught.value.message


def test_values_of_all_forms_are_parsed() -> None:
    words = [
        "env.kwargs={a: 1, b: x/y:z}",
        "env.max_episode_steps=null",
        "phases.learn.duration_steps=1e6",
        "early_stop=off",
    ]
    config = load_config(compose("Toy-v0:toy", words).tree)
    assert config.env.kwargs == {"a": 1, "b": "x/y:z"}
    assert config.env.max_episode_steps is None
    assert (config.phases[0].duration_steps, type(config.phases[0].duration_steps)) == (1_000_000, int)
    assert config.early_stop == "off"


def test_keys_of_phase_overrides_stay_dotted(toy: Path) -> None:
    (toy / "mine.yaml").write_text("phases.learn.overrides: {algorithm.gamma: 0.5}\n")
    composed = compose("Toy-v0:toy", ["mine.yaml", "phases.learn.overrides.env.max_episode_steps=9"])
    overrides = composed.tree["phases"][0]["overrides"]
    assert overrides == {"algorithm.gamma": 0.5, "env.max_episode_steps": 9}
    assert composed.sources["phases.learn.overrides.algorithm.gamma"] == "mine.yaml"


def test_dotted_keys_inside_lists_are_nested(toy: Path) -> None:
    (toy / "mine.yaml").write_text("phases:\n  - {name: a, until.metric: collect/x, until.at_least: 3}\n")
    until = compose("Toy-v0:toy", ["mine.yaml"]).tree["phases"][0]["until"]
    assert until == {"metric": "collect/x", "at_least": 3, "at_most": None}


def test_a_list_is_replaced_and_its_old_sources_are_forgotten() -> None:
    composed = compose("Toy-v0:toy", ["two"])
    assert [phase["name"] for phase in composed.tree["phases"]] == ["prefill", "learn"]
    assert composed.sources["phases.prefill.collect.rows"] == "preset two"
    assert not any(key.startswith("phases.prefill.update") for key in composed.sources)


def test_a_list_entry_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"There is no phase '3' in 'phases\.3\.name'. Phases: learn") as caught:
        compose("Toy-v0:toy", ["phases.3.name=x"])
    assert "phases.learn" in caught.value.fix
    with pytest.raises(ConfigError, match=r"'env\.wrappers\.3\.height' does not exist") as caught:
        compose("Toy-v0:toy", ["env.wrappers=[{kind: resize, height: 8, width: 8}]", "env.wrappers.3.height=3"])
    assert "1 entry," in caught.value.fix


def test_list_without_a_value_is_empty() -> None:
    with pytest.raises(ConfigError, match=r"'phases\.0\.name' does not exist") as caught:
        compose("Toy-v0:other", ["phases.0.name=x"])
    assert "empty" in caught.value.fix


@pytest.mark.parametrize("word", ["=3", " =3"])
def test_an_override_needs_a_key(word: str) -> None:
    with pytest.raises(ConfigError, match="names no key"):
        compose("Toy-v0:toy", [word])


def test_composing_imports_neither_torch_nor_gymnasium() -> None:
    code = "import sys, reverie.config.compose, reverie.config.validate, reverie.cli.config; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "reverie.config.compose" in modules
    assert not {"torch", "gymnasium", "omegaconf"} & set(modules)
