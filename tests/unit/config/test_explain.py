"""Meanings, types and defaults come from the schema itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
from pydantic import Field

from reverie.config.compose import compose
from reverie.config.explain import ABSENT, REQUIRED, Difference, all_keys, diff, explain, explain_tree
from reverie.config.fields import fill_defaults
from reverie.config.tree import Tree
from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.errors import ConfigError

Make = Callable[..., Tree]


@pytest.fixture(autouse=True)
def _importable_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explaining imports every kind, so each must exist."""
    monkeypatch.delitem(registry._TABLE["toy_part"], "missing")


def test_a_key_has_meaning_type_and_default() -> None:
    (entry,) = explain("env.num_envs")
    assert entry.meaning == "Number of copies that run in parallel."
    assert (entry.type, entry.default, entry.kinds) == ("whole number, at least 1", 1, ())


@pytest.mark.parametrize(
    ("key", "type_text", "default"),
    [
        ("early_stop", "off | solved", "off"),
        ("env.id", "text", REQUIRED),
        ("env.max_episode_steps", "whole number or null, at least 1", None),
        ("env.log_keys", "list (text)", []),
        ("env.kwargs", "mapping of names to anything", {}),
        ("normaliser.reward", "true or false", False),
        ("phases.learn.evaluate.episodes", "whole number or null, at least 1", None),
        ("buffers.main.kind", " | ".join(registry.kinds("buffer")) + " | toy_buffer", REQUIRED),
    ],
)
def test_types_are_written_in_words(key: str, type_text: str, default: object) -> None:
    (entry,) = explain(key)
    assert (entry.type, entry.default) == (type_text, default)


def test_keys_are_listed_per_kind() -> None:
    by_kind = {entry.kinds: entry.default for entry in explain("algorithm.part.units")}
    assert by_kind == {("narrow",): [8], ("wide",): [64, 64]}
    (kind,) = explain("algorithm.part.kind")
    assert (kind.type, kind.default) == ("narrow | wide", "narrow")


def test_a_bare_name_and_a_pattern_find_keys_everywhere() -> None:
    assert {"phases.*.duration_steps"} == {entry.key for entry in explain("duration_steps")}
    clips = {entry.key for entry in explain("normaliser.*_clip")}
    assert clips == {"normaliser.observation_clip", "normaliser.reward_clip"}
    assert len(explain()) == len(all_keys())


def test_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"no key 'env\.num_env'") as caught:
        explain("env.num_env")
    assert "'num_envs'" in caught.value.fix


def test_every_key_of_the_common_schema_is_explained() -> None:
    unexplained = [entry.key for entry in all_keys() if not entry.meaning and not entry.kinds]
    assert unexplained == []


def test_tree_is_explained_with_its_kinds_and_values(toy_tree: Make) -> None:
    explained = {entry.key: (entry, value) for entry, value in explain_tree(toy_tree("algorithm.part.kind=wide"))}
    entry, value = explained["algorithm.part.units"]
    assert (entry.kinds, value) == (("wide",), [64, 64])
    entry, value = explained["phases.learn.collect.rows"]
    assert (entry.meaning, value) == (
        "collect: rows per rollout, all envs together. Rows that start an episode count too.",
        128,
    )
    assert explained["algorithm.gamma"][0].default == 0.99


def test_section_of_a_component_is_explained() -> None:
    tree = fill_defaults(compose("CartPole-v1:dqn", ["algorithm.sequence.burn_in=4"]).tree)
    explained = {entry.key: (entry.kinds, value) for entry, value in explain_tree(tree)}
    assert explained["algorithm.sequence.burn_in"] == (("dqn", "sac"), 4)


def test_diff_lists_what_differs(toy_tree: Make) -> None:
    left = toy_tree("algorithm.learning_rate={start: 1, end: 0, from: 0, to: 5}")
    right = toy_tree("seed=3", "algorithm.part.kind=wide")
    assert diff(left, right) == [
        Difference("seed", 0, 3),
        Difference("algorithm.learning_rate", {"start": 1, "end": 0, "from": 0, "to": 5}, 3e-4),
        Difference("algorithm.part.kind", "narrow", "wide"),
        Difference("algorithm.part.units", [16], [64, 64]),
        Difference("algorithm.part.bias", ABSENT, True),
    ]
    assert diff(left, left) == []


# ---------------------------------------------------------------- classes of your own


class OwnNetwork:
    class Config(ComponentConfig):
        kind: str = f"{__name__}.OwnNetwork"
        width: int = Field(32, ge=1)
        """Units of each tower."""
        optimizer: Annotated[ComponentConfig, Component("optimizer")] = ComponentConfig(kind="adam")
        """A component."""


class Bare:
    pass


def test_own_class_is_explained_by_its_dotted_path() -> None:
    entries = {entry.key: entry for entry in explain(f"{__name__}.OwnNetwork")}
    width = entries["width"]
    assert (width.meaning, width.type, width.default) == ("Units of each tower.", "whole number, at least 1", 32)
    assert width.kinds == (f"{__name__}.OwnNetwork",)
    assert "optimizer.weight_decay" in entries


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}.Bare", "has no config class"), (f"{__name__}.OwnNetwrk", "'OwnNetwork'"),
        ("no_such_module.Network", "There is no key"), ("env.Network", "There is no key"),
    ],
)  # fmt: skip
def test_class_that_cannot_be_explained_gives_the_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        explain(name)


def test_a_kind_is_explained_by_its_settings() -> None:
    keys = {entry.key for entry in explain("ppo")}
    assert {"algorithm.gae_lambda", "algorithm.clip"} <= keys
    assert "algorithm.double" not in keys
    assert {"algorithm.network.units"} <= {entry.key for entry in explain("mlp")}
