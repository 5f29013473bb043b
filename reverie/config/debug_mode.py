"""What debug mode changes in a new run. An existing run keeps its setting, also under a debugger."""

from __future__ import annotations

from reverie.config.compose import DECIDED, DEFAULT, Composed
from reverie.config.typed import TYPED
from reverie.config.validate import source_of

BY_DEBUGGER = f"{DECIDED}: a debugger is attached"
BY_DEBUG = f"{DECIDED}: debug"


def prepare_debug(composed: Composed, has_debugger: bool) -> None:
    """Turn debug mode on under a debugger, unless it is set. Debug with one env, unless the user typed a number.

    Stepping through several envs at once is impossible. Rows are counted over all envs, so every preset works with one.
    """
    if has_debugger and source_of(composed.sources, "debug") == DEFAULT:
        composed.apply([(("debug",), True)], BY_DEBUGGER)
    is_typed = source_of(composed.sources, "env.num_envs") in TYPED
    if composed.tree["debug"] and not is_typed and composed.tree["env"]["num_envs"] != 1:
        composed.apply([(("env", "num_envs"), 1)], BY_DEBUG)


def debug_notes(composed: Composed) -> list[str]:
    """Notes for the user at the start of a debug run."""
    if composed.sources.get("debug") != BY_DEBUGGER:
        return []
    return ["A debugger is attached, so this is a debug run: slow, with other bits. --no-debug makes it a usual one."]
