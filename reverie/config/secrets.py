"""Settings that give access to a service. They are hidden where a config is shown or sent."""

from __future__ import annotations

import re
from typing import Any

from reverie.config.tree import Tree, get

SECRET = "monitor.webhook"
HIDDEN = "(set, not shown)"


def hide(key: str, value: Any) -> Any:
    """A setting's value as it may be shown. The name of an environment variable is no secret."""
    is_open = value is None or (isinstance(value, str) and value.startswith("env:"))
    return value if key != SECRET or is_open else HIDDEN


def hide_in_tree(tree: Tree) -> Tree:
    """A config as it may leave the machine."""
    group, _, name = SECRET.partition(".")
    if get(tree, (group, name)) is None:
        return tree
    return {**tree, group: {**tree[group], name: hide(SECRET, tree[group][name])}}


def hide_in_word(word: str) -> str:
    """A word of a command line as it may be shown."""
    return re.sub(r"https?://[^\s}]*[^\s},]", HIDDEN, word) if SECRET.partition(".")[2] in word else word
