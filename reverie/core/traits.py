"""Reads and checks the traits that algorithms and buffers declare, before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from reverie.core import registry
from reverie.core.contracts import BufferTraits, Recurrent, Traits
from reverie.core.errors import ConfigError
from reverie.core.types import ACTION_KINDS

if TYPE_CHECKING:
    from reverie.core.specs import ActionSpec

ALGORITHM_METHODS = ("initial_carry", "act", "state", "load_state", "policy_state", "load_policy_state")
WORLD_MODEL_METHODS = ("initial", "observe", "imagine", "predict")
_FORMER = {
    "algorithm": {
        "hooks": "hooks", "is_on_policy": "on_policy", "uses_memory": "recurrent", "uses_microbatches": "microbatches",
        "uses_priorities": "priorities", "uses_bfloat16": "bfloat16", "observes": "observes",
    },
    "buffer": {"serves": "serves", "serves_again": "replays"},
}  # fmt: skip
"""Class attributes of earlier versions, and the traits that replaced them."""


def algorithm_traits(kind: str) -> Traits:
    """The traits of an algorithm; a ConfigError with the line to write if its class declares none."""
    return cast(Traits, _declared("algorithm", kind, Traits))


class MirroredInNumpy:
    """An algorithm of which a numpy engine computes some methods, ``class PPO(MirroredInNumpy, in_numpy=("loss",))``.

    A subclass that overrides one of them is computed by torch, because the engine would never call it.
    """

    traits: Traits
    _mirrored: dict[str, Any]

    def __init_subclass__(cls, in_numpy: Sequence[str] = (), **named: Any) -> None:
        super().__init_subclass__(**named)
        if in_numpy:
            cls._mirrored = {name: getattr(cls, name) for name in in_numpy}
        if any(getattr(cls, name) is not method for name, method in cls._mirrored.items()):
            cls.traits = replace(cls.traits, numpy_engine=False)


def buffer_traits(kind: str) -> BufferTraits:
    """The traits of a buffer; a ConfigError with the line to write if its class declares none."""
    return cast(BufferTraits, _declared("buffer", kind, BufferTraits))


def algorithms_with(trait: str) -> list[str]:
    """The registered algorithms that have a trait."""
    return [kind for kind in registry.kinds("algorithm") if getattr(algorithm_traits(kind), trait)]


def is_recurrent(network: str) -> bool:
    """Whether networks of this kind have a hidden state. Refuses those that only say so as in earlier versions."""
    found = registry.load("network", network)
    if isinstance(found, type) and issubclass(found, Recurrent):
        return True
    if getattr(found, "has_memory", False):
        raise ConfigError(
            f"The network '{network}' declares has_memory, which no longer makes a network recurrent.",
            "Inherit from reverie.nets.recurrent.RecurrentNetwork and rename initial_memory to initial_hidden, and "
            "remember to final_hidden: see docs/networks.md.",
        )
    return False


def check_algorithm(kind: str) -> None:
    """Refuse a class that cannot act, learn or be saved. What its hooks read is known once it is built."""
    found = registry.load("algorithm", kind)
    missing = [name for name in ALGORITHM_METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise ConfigError(
            f"The algorithm '{kind}' has no {' and no '.join(missing)}.",
            f"Add the methods {', '.join(ALGORITHM_METHODS)}, or derive it from one of ours, such as "
            "reverie.algos.ppo.PPO.",
        )
    traits = algorithm_traits(kind)
    if isinstance(traits.hooks, str) or not all(isinstance(hook, str) for hook in traits.hooks):
        raise ConfigError(f"The hooks of the algorithm '{kind}' must be names.", "Write Traits(hooks=('update',)).")
    if unknown := [hook for hook in traits.hooks if not callable(getattr(found, hook, None))]:
        raise ConfigError(
            f"The algorithm '{kind}' has no method for its hook {' and '.join(unknown)}.",
            f"Add def {unknown[0]}(self, batch, clock, rng), which learns and returns an Update.",
        )
    if traits.prepares and not callable(getattr(found, "prepare", None)):
        raise ConfigError(
            f"The algorithm '{kind}' declares prepares, but has no method prepare.", "Add def prepare(self, buffers)."
        )
    _check_world_model(found, kind)
    if strange := set(traits.actions) - set(ACTION_KINDS):
        raise ConfigError(
            f"The traits of the algorithm '{kind}' name unknown kinds of actions: {', '.join(sorted(strange))}.",
            f"The kinds are {', '.join(ACTION_KINDS)}.",
        )


def _check_world_model(found: Any, kind: str) -> None:
    """Refuse a class that imagines but is no complete world model: nothing would show it."""
    missing = _missing_world_model_methods(found)
    if missing and "imagine" not in missing:
        raise ConfigError(
            f"The algorithm '{kind}' has imagine but no {' and no '.join(missing)}, so it is no world model.",
            f"Add def {missing[0]}(self, ...) as in WorldModel of reverie.core.contracts, or rename imagine.",
        )


def algorithms_with_a_world_model() -> list[str]:
    """The registered algorithms that learn one."""
    kinds = registry.kinds("algorithm")
    return [kind for kind in kinds if not _missing_world_model_methods(registry.load("algorithm", kind))]


def _missing_world_model_methods(found: Any) -> list[str]:
    return [name for name in WORLD_MODEL_METHODS if not callable(getattr(found, name, None))]


def check_actions(kind: str, action: ActionSpec) -> None:
    """Refuse an env whose actions the algorithm cannot choose."""
    traits = algorithm_traits(kind)
    if _can_choose(traits, action):
        return
    able = [other for other in registry.kinds("algorithm") if _can_choose(algorithm_traits(other), action)]
    if action.kind not in traits.actions:
        what = f"{kind} needs {' or '.join(traits.actions)} actions; this env has {action.kind} ones."
    else:
        what = f"{kind} needs bounded actions; this env's bounds are infinite."
    wrap = "" if action.is_scaled or action.classes else "Wrap the env with gymnasium.wrappers.RescaleAction, or try "
    raise ConfigError(what, f"{wrap or 'Try '}{' or '.join(able)}.")


def _can_choose(traits: Traits, action: ActionSpec) -> bool:
    numbers = [part for part in action.parts or (action,) if not part.classes]
    is_bounded = all(part.is_scaled for part in numbers)
    return action.kind in traits.actions and (traits.unbounded_actions or is_bounded)


def _declared(group: str, kind: str, wanted: type[Any]) -> Any:
    """The traits on the class of a kind; refused if the class, or one between it and the traits, has none of its own
    but attributes of earlier versions."""
    found = registry.load(group, kind)
    former: dict[str, Any] = {}
    parent = ""
    for base in found.__mro__ if isinstance(found, type) else ():
        if isinstance(vars(base).get("traits"), wanted):
            if not former:
                return vars(base)["traits"]
            parent = base.__name__
            break
        former = {old: vars(base)[old] for old in _FORMER[group] if old in vars(base)} | former
    name = wanted.__name__
    what = f"still declares {' and '.join(former)}" if former else f"declares no traits of type {name}"
    raise ConfigError(f"The {group} '{kind}' {what}.", f"{_how_to_declare(group, former, name, parent)}")


def _how_to_declare(group: str, former: dict[str, Any], name: str, parent: str) -> str:
    """The line to write into the class; ``parent`` is the base class whose traits it changes."""
    values = ", ".join(f"{_FORMER[group][old]}={_source_of(value)}" for old, value in former.items())
    values = values or ("hooks=('update',)" if group == "algorithm" else "serves=(Rollout,)")
    instead = f" instead of {' and '.join(former)}" if former else ""
    if parent:
        line = f"traits = dataclasses.replace({parent}.traits, {values})"
        return f"Write {line} into the class{instead}."
    return f"Write traits = {name}({values}) into the class{instead}; {name} is in reverie.core.contracts."


def _source_of(value: Any) -> str:
    """A value of an earlier attribute as it is typed."""
    if isinstance(value, tuple) and value and isinstance(value[0], type):
        return "(" + "".join(f"{read.__name__}, " for read in value).strip() + ")"
    return repr(value)
