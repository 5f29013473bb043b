"""Commands printed for users who want to continue a run. They must work exactly as printed."""

from __future__ import annotations

from collections.abc import Mapping

from reverie.config.files import config_to_tree
from reverie.config.path_names import PathNames, phases_by_key
from reverie.config.resolve import step_budget
from reverie.config.schema import RunConfig
from reverie.config.tree import Tree, get, leaves
from reverie.log.loggers import sends_elsewhere
from reverie.log.webhook import is_own
from reverie.runs.trust import foreign_names, is_made_here
from reverie.store.run_folder import RunFolder


def resume_command(folder: RunFolder, config: RunConfig) -> str:
    """``reverie resume <run>``, with ``--trust`` if the run needs it to load, or to send metrics."""
    asks_for_trust = names_foreign_code(config) or _would_send(config)
    return f"reverie resume {folder.words}" + (" --trust" if asks_for_trust and not is_made_here(folder.path) else "")


def _would_send(config: RunConfig) -> bool:
    """Whether the config alone names a server that gets metrics or alerts."""
    webhook = config.monitor.webhook
    return any(map(sends_elsewhere, config.log.all_loggers())) or (webhook is not None and not is_own(webhook))


def names_foreign_code(config: RunConfig) -> bool:
    """Whether a config names a class or an env outside Reverie."""
    return bool(foreign_names(config_to_tree(config)))


def twice_the_budget(config: RunConfig, done_steps: int) -> str:
    """What to add to the resume command for twice the budget, in the run's unit, with learning rates over all of it."""
    if done_steps and step_budget(config.phases):
        spent = _spent_rates(config, 2 * done_steps)
        return f"--steps {2 * done_steps}" + (f" {_extended(spent, 2 * done_steps)}" if spent else "")
    key, last = next((key, phase) for key, phase in phases_by_key(config.phases) if phase is config.phases[-1])
    counted = (name for name in ("duration_updates", "duration_cycles", "repeat") if getattr(last, name))
    name = next(counted)
    return f"{key}.{name}={2 * getattr(last, name)}"


def spent_schedules(config: RunConfig) -> list[str]:
    """Warn if learning rates reach 0 before the run ends: their schedules keep the horizon of the first budget."""
    budget = step_budget(config.phases)
    spent = _spent_rates(config, budget)
    rates = [key for key in spent if key.endswith("learning_rate")]
    if not rates:
        return []
    return [
        f"Warning: {', '.join(rates)} will be 0 after env step {spent[rates[0]]['to']:,}, where the schedule ends, "
        f"and nothing is learnt after that. To extend it, add: {_extended(spent, budget)}"
    ]


def _spent_rates(config: RunConfig, budget: int) -> dict[str, Tree]:
    """Schedules that are 0 before the budget ends, by key; empty unless a learning rate is among them."""
    tree = config_to_tree(config)
    names = PathNames(tree)
    ends = [path[:-1] for path, value in leaves(tree) if path[0] != "env" and path[-1] == "end" and value == 0]
    spent = {names.shown(path): line for path in ends if 0 < (line := get(tree, path)).get("to", 0) < budget}
    return spent if any(key.endswith("learning_rate") for key in spent) else {}


def _extended(spent: Mapping[str, Tree], budget: int) -> str:
    """Settings that stretch schedules over the budget."""
    return " ".join([f"horizon_steps={budget}", *(f"{key}=lin_{line['start']:g}" for key, line in spent.items())])
