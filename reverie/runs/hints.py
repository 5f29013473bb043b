"""The command that goes on with a run, as it is printed for the user: it must work when it is typed as it stands."""

from __future__ import annotations

from reverie.config.files import config_to_tree
from reverie.config.schema import RunConfig
from reverie.config.tree import join_path, leaves
from reverie.envs.make import is_dotted
from reverie.log.loggers import sends_elsewhere
from reverie.log.webhook import is_own

NAMES_CODE = ("kind", "controller")


def resume_command(run_name: str, config: RunConfig) -> str:
    """``reverie resume <run>``, with ``--trust`` if the run would be refused without, or would keep to itself."""
    needs_trust = names_foreign_code(config) or _would_send(config)
    return f"reverie resume {run_name}" + (" --trust" if needs_trust else "")


def _would_send(config: RunConfig) -> bool:
    """Whether metrics or alerts go to a server that only the config names."""
    webhook = config.monitor.webhook
    return any(map(sends_elsewhere, config.log.all_loggers())) or (webhook is not None and not is_own(webhook))


def names_foreign_code(config: RunConfig) -> bool:
    """Whether a config names a class or an env outside of Reverie, in a component, a controller or a phase."""
    for path, value in leaves(config_to_tree(config)):
        key = join_path(path)
        if not isinstance(value, str) or key.startswith("env.kwargs."):
            continue
        if key.endswith("env.id") and (":" in value or is_dotted(value)):
            return True
        if key.rpartition(".")[2] in NAMES_CODE and "." in value:
            return True
    return False
