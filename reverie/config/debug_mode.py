"""What debug mode changes in the values of a new run. A run that exists keeps its own, whoever looks at it."""

from __future__ import annotations

from reverie.config.compose import DECIDED, DEFAULT, Composed
from reverie.config.typed import TYPED
from reverie.config.validate import source_of

BY_DEBUGGER = f"{DECIDED}: a debugger is attached"
BY_DEBUG = f"{DECIDED}: debug"


def prepare_debug(composed: Composed, has_debugger: bool) -> None:
    """Turn debug mode on under a debugger, unless somebody has chosen; and debug with one env, unless one typed more.

    Nobody can step through several envs at once. Rows are counted over all envs, so every preset works with one.
    """
    if has_debugger and source_of(composed.sources, "debug") == DEFAULT:
        composed.apply([(("debug",), True)], BY_DEBUGGER)
    is_typed = source_of(composed.sources, "env.num_envs") in TYPED
    if composed.tree["debug"] and not is_typed and composed.tree["env"]["num_envs"] != 1:
        composed.apply([(("env", "num_envs"), 1)], BY_DEBUG)


def debug_notes(composed: Composed) -> list[str]:
    """What the user should know of it at the start of the run."""
    if composed.sources.get("debug") != BY_DEBUGGER:
        return []
    return ["A debugger is attached, so this is a debug run: slow, with other bits. --no-debug makes it a usual one."]
