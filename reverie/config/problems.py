"""Report all problems of a new config at once.

Invalid values hide misfits between fields, because checks across fields need a valid config. So invalid values are
replaced by defaults, and the rest is checked without them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from reverie.config.checks import find_misfits, find_shared_names
from reverie.config.fields import fill_defaults
from reverie.config.path_names import PathNames
from reverie.config.tree import Tree, get, split_path
from reverie.config.validate import Problem, ProblemsError, load_config, source_of
from reverie.core.errors import ConfigError

NEUTRAL_HOOK = {"evaluate": {"episodes": 1}}
"""Replaces an unreadable hook, so the hooks after it keep their indices."""


def check_written(tree: Tree, sources: Mapping[str, str]) -> None:
    """Report all problems in a new run's values. Checks that need the machine come later."""
    try:
        config = load_config(tree, sources)
    except ProblemsError as error:
        raise ProblemsError([*error.problems, *_hidden_problems(tree, error.problems, sources)]) from error
    shared = [Problem(key, "", source_of(sources, key), what, fix) for key, what, fix in find_shared_names(config)]
    if shared:
        misfits = [Problem(key, "", source_of(sources, key), what, fix) for key, what, fix in find_misfits(config)]
        raise ProblemsError([*shared, *misfits])


def _hidden_problems(tree: Tree, known: list[Problem], sources: Mapping[str, str]) -> list[Problem]:
    """Further misfits, without those that follow from known problems."""
    try:
        repaired = _without(tree, known)
        config = load_config(repaired)
        findings = [*find_shared_names(config), *find_misfits(config)]
    except ConfigError:
        return []
    there, here = PathNames(repaired), PathNames(tree)  # a replaced hook may shift the numbers of equal ones
    findings = [(here.shown(there.find(split_path(key))), what, fix) for key, what, fix in findings]
    return [
        Problem(key, "", source_of(sources, key), what, fix)
        for key, what, fix in findings
        if not any(_is_within(key, problem.key) or _is_within(problem.key, key) for problem in known)
    ]


def _without(tree: Tree, problems: list[Problem]) -> Tree:
    """The tree with defaults in place of invalid values."""
    tree = copy.deepcopy(fill_defaults(tree))
    names = PathNames(tree)
    for path, problem in [(names.find(split_path(problem.key)), problem) for problem in problems]:
        parent = get(tree, path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            del parent[path[-1]]
        elif isinstance(parent, dict) and path[-1] == "name":  # is missing
            parent["name"] = problem.key
        elif isinstance(parent, list) and "hooks" in path[-2:-1]:
            parent[int(path[-1])] = NEUTRAL_HOOK
    return tree


def _is_within(key: str, other: str) -> bool:
    return f"{key}.".startswith(f"{other}.")
