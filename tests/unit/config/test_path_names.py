"""Names of phases and hooks: every path has one, which maps back to the path."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config.path_names import PathNames, hook_keys, name_sources, phases_by_key
from reverie.config.phases import Phase
from reverie.config.tree import all_paths, split_path

TREE: dict[str, Any] = {
    "seed": 1,
    "phases": [
        {"name": "prefill", "hooks": [{"collect": {"rows": 4}}], "duration_steps": 5},
        {
            "name": "loop",
            "phases": [
                {"name": "learn", "hooks": ["update", {"update": {"updates": 2}}, {"name": "collect", "rows": 8}]},
                {"name": "learn_2", "hooks": [{"update_2": {}}, {"update": {}}, {"update": {}}]},
                {"name": "learn", "hooks": [{"keep": {"rows": 1}}], "keep": ["buffer"]},
                {"hooks": [{"collect": {"rows": 3}}]},
            ],
        },
    ],
}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("seed", "seed"),
        ("phases.0.duration_steps", "phases.prefill.duration_steps"),
        ("phases.0.hooks", "phases.prefill.hooks"),
        ("phases.0.hooks.0.collect.rows", "phases.prefill.collect.rows"),
        ("phases.1.phases", "phases.loop.phases"),
        ("phases.1.phases.0.hooks.0", "phases.learn.update"),
        ("phases.1.phases.0.hooks.1.update.updates", "phases.learn.update_2.updates"),
        ("phases.1.phases.0.hooks.2.rows", "phases.learn.collect.rows"),
        ("phases.1.phases.1.hooks.2.update", "phases.learn_2.update_3"),
        ("phases.1.phases.2.keep", "phases.learn_3.keep"),
        ("phases.1.phases.2.hooks.0.keep.rows", "phases.learn_3.hooks.keep.rows"),
        ("phases.1.phases.3.hooks.0.collect.rows", "phases.loop.phases.3.collect.rows"),
    ],
)
def test_path_is_shown_with_names(path: str, shown: str) -> None:
    assert PathNames(TREE).shown(split_path(path)) == shown


def test_every_shown_name_maps_back_to_its_path() -> None:
    names = PathNames(TREE)
    for path in all_paths(TREE):
        found = names.find(split_path(names.shown(path)))
        assert found in (path, names.below.get(path)), path  # a hook in its short form: the path to its amounts


def test_pattern_is_unchanged() -> None:
    names = PathNames(TREE)
    assert names.find(("phases", "*", "collect", "rows")) == ("phases", "*", "collect", "rows")
    assert names.find(("phases", "learn", "*", "rows")) == ("phases", "1", "phases", "0", "*", "rows")


def test_sources_are_shown_with_names() -> None:
    sources = {"seed": "default", "phases.0.hooks.0.collect.rows": "command line"}
    assert name_sources(sources, TREE) == {"seed": "default", "phases.prefill.collect.rows": "command line"}


def test_phases_and_hooks_of_a_config_have_the_same_keys() -> None:
    phases = tuple(Phase.model_validate(phase) for phase in ({"name": "a"}, {"name": "b"}, {"name": "a"}))
    assert [key for key, _ in phases_by_key(phases)] == ["phases.a", "phases.b", "phases.a_2"]
    phase = Phase.model_validate({"name": "a", "hooks": ["collect", "update", "update"]})
    assert hook_keys("phases.a", phase) == ["phases.a.collect", "phases.a.update", "phases.a.update_2"]
