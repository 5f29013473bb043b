"""Accept settings under the names of Stable-Baselines3. They are stored under our keys, with a note.

A name without meaning for the chosen algorithm is refused with the reason. Ignoring it would leave the user waiting for
an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo

from reverie.config.fields import component_config
from reverie.config.path_names import PathNames, hook_name
from reverie.config.sb3_names import NAMES, Ours, Without, meaning
from reverie.config.tree import Path, Tree, get, join_path, split_path
from reverie.core.errors import ConfigError

PAGE = "docs/from_sb3.md"
JOINT = ("epsilon", "both_nets")
"""Conversions that make one setting of several names."""
Apply = Callable[[list[tuple[Path, Any]]], None]
Settings = dict[str, Any]
"""Our keys and values. The first translates the name, the others follow from it."""


def split_names(pairs: Iterable[tuple[Path, Any]], kind: Any) -> tuple[list[tuple[Path, Any]], Settings]:
    """Separate settings under our keys from those under names of Stable-Baselines3."""
    own, foreign = [], {}
    for path, value in pairs:
        name = _name_of(path, kind)
        if path[0] == "policy_kwargs" and not name:
            raise ConfigError(f"{join_path(path)} has no counterpart here.", f"All names: {PAGE}")
        if name:
            foreign[name] = value
        else:
            own.append((path, value))
    return own, foreign


def _name_of(path: Path, kind: Any) -> str:
    """The name of Stable-Baselines3 in a key, if any. Below ``algorithm``, its own settings go first."""
    name = join_path(path)
    if path[0] == "algorithm" and len(path) > 1:
        name = join_path(path[1:])
        if path[1] in _fields(kind):
            return ""
    return name if name in NAMES else ""


def own_kind(kind: Any) -> str:
    """Which of our algorithms a kind is or builds on."""
    default = _fields(kind)["kind"].default if "kind" in _fields(kind) else kind
    return default if isinstance(default, str) else str(kind)


def _fields(kind: Any) -> Mapping[str, FieldInfo]:
    """The settings of an algorithm. Empty for an unknown one, which validation reports."""
    if not isinstance(kind, str):
        return {}
    try:
        return component_config("algorithm", kind).model_fields
    except ConfigError:
        return {}


@dataclass
class Translator:
    """Translates names into our settings, one by one. Each sees the results of those before."""

    read_settings: Callable[[], Tree]
    """Reads the current settings, defaults included."""
    foreign: Settings
    own: set[str]
    """Keys that are also given directly."""
    steps: int | None = None
    """The budget of the run, if the command line sets another."""
    notes: list[str] = field(default_factory=list)

    @property
    def tree(self) -> Tree:
        return self.read_settings()

    def translate(self, apply: Apply) -> None:
        """Translate all names in the order of the table and hand each to ``apply``, which changes the tree."""
        kind, taken = own_kind(get(self.tree, ("algorithm", "kind"))), dict.fromkeys(self.own, "")
        for name in [name for name in NAMES if name in self.foreign]:
            found, value = meaning(name, kind), self.foreign[name]
            if isinstance(found, Without):
                raise ConfigError(f"{name} has no meaning for {kind}: {found.reason}.", f"All names: {PAGE}")
            settings = self._settings(found, name, value)
            first = next(iter(settings), "")
            if first in taken and settings:
                other = f"{taken[first]} and {name} both set {first}" if taken[first] else f"{name} sets {first} again"
                raise ConfigError(f"{other}.", f"Keep one of them: {first} is its name here.")
            taken.update({first: name} if settings else {})
            apply([(split_path(key), inner) for key, inner in settings.items()])
            if settings:
                together = [other for other in self.foreign if found.how in JOINT and _how(other, kind) == found.how]
                self.notes.append(_note({other: self.foreign[other] for other in together or [name]}, settings))

    def _settings(self, found: Ours, name: str, value: Any) -> Settings:
        if not found.how:
            return {found.key: value}
        settings: Settings = getattr(self, f"_{found.how}")(name, value)
        return settings

    # ---------------------------------------------------------------- conversions

    def _rows_per_env(self, name: str, value: Any) -> Settings:
        steps = _whole(name, value, "A number of steps of each env; to collect episodes, set collect.episodes.")
        amounts = self._amounts(self._hook("update", name))
        ratio = next((key for key in ("updates_per_step", "train_ratio") if key in amounts), None)
        if name == "train_freq" and ratio and "gradient_steps" not in self.foreign:
            self.notes.append(f"{ratio}={amounts[ratio]} stays as it is; gradient_steps changes it.")
        return {f"{self._hook('collect', name)}.rows": steps * self._num_envs()}

    def _updates(self, name: str, value: Any) -> Settings:
        hook = self._hook("update", name)
        kept = {key: amount for key, amount in self._amounts(hook).items() if key.startswith("every_")}
        if value == -1:
            return {hook: {**kept, "updates_per_step": 1}}
        return {hook: {**kept, "updates": _whole(name, value)}}

    def _budget(self, name: str, value: Any) -> Settings:
        total = _whole(name, value)
        counted = [index for index, phase in enumerate(self._phases()) if phase.get("duration_steps")]
        earlier = sum(self._phases()[index]["duration_steps"] for index in counted[:-1])
        if not counted or total <= earlier:
            raise ConfigError(f"{name}={total} cannot be split over the phases of this run.", f"Write --steps {total}.")
        return {self._duration(counted[-1]): total - earlier}

    def _prefill(self, name: str, value: Any) -> Settings:
        """The budget of the run stays: the learning phase gets what the prefill leaves."""
        steps = _whole(name, value)
        index = next((i for i, phase in enumerate(self._phases()) if phase.get("controller") == "random"), None)
        if index is None:
            raise ConfigError(f"{name}: no phase of this run acts at random before it learns.", "See docs/phases.md.")
        prefill = self._phases()[index]
        settings: Settings = {self._duration(index): steps}
        learn = self._learn()
        if learn is not None and self._phases()[learn].get("duration_steps") and prefill.get("duration_steps"):
            total = self._phases()[learn]["duration_steps"] + prefill["duration_steps"]
            settings |= {self._duration(learn): total - steps} if total > steps else {}
        hooks = self._hooks(index)
        if "collect" in hooks and steps < self._amounts(hooks["collect"]).get("rows", 0):
            envs = self._num_envs()
            settings[f"{hooks['collect']}.rows"] = max(1, steps // envs) * envs
        if steps < (get(self.tree, ("buffers", "main", "min_rows")) or 1):
            settings["buffers.main.min_rows"] = steps
        return settings

    def _target_every(self, name: str, value: Any) -> Settings:
        """Theirs counts env steps and copies the network. Ours counts updates and moves it by ``target_rate``."""
        every = max(1, round(_whole(name, value) * self._updates_per_step(name)))
        return {"algorithm.target_every": every, **({} if "tau" in self.foreign else {"algorithm.target_rate": 1.0})}

    def _epsilon(self, name: str, value: Any) -> Settings:
        """The three names make one schedule, so the first one sets it for all."""
        names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
        given = {key: _number(key, self.foreign[key]) for key in names if key in self.foreign}
        if name != next(iter(given)):
            return {}
        now = get(self.tree, ("algorithm", "epsilon"))
        old = now if isinstance(now, dict) else {"start": 1.0, "end": now if isinstance(now, int | float) else 0.05}
        to = old.get("to", 0)
        if "exploration_fraction" in given or not to:
            to = max(1, round(given.get("exploration_fraction", 0.1) * self._total_steps(name)))
        ends = [given.get(key, old[end]) for key, end in zip(names, ("start", "end"), strict=False)]
        return {"algorithm.epsilon": {"start": ends[0], "end": ends[1], "from": 0, "to": to}}

    def _temperature(self, name: str, value: Any) -> Settings:
        if isinstance(value, str) and value.startswith("auto"):
            initial = value.removeprefix("auto").removeprefix("_")
            settings: Settings = {"algorithm.temperature.kind": "learned"}
            return settings | ({"algorithm.temperature.initial": _number(name, initial)} if initial else {})
        return {"algorithm.temperature.kind": "fixed", "algorithm.temperature.value": _number(name, value)}

    def _unless_auto(self, name: str, value: Any) -> Settings:
        return {"algorithm.temperature.target_entropy": None if value == "auto" else _number(name, value)}

    def _both_nets(self, name: str, value: Any) -> Settings:
        parts = [key for key in self.foreign if key.startswith("policy_kwargs.net_arch.")]
        if any(self.foreign[part] != value for part in parts) or len(parts) < 2:
            text = "Policy and value function have layers of the same widths here"
            raise ConfigError(f"{text}, so {name} alone cannot be set.", "Write policy_kwargs.net_arch=[64,64].")
        if name != parts[0]:
            return {}
        found = meaning(name, own_kind(get(self.tree, ("algorithm", "kind"))))
        assert isinstance(found, Ours)
        return {found.key: value}

    def _activation(self, name: str, value: Any) -> Settings:
        found = meaning(name, own_kind(get(self.tree, ("algorithm", "kind"))))
        assert isinstance(found, Ours)
        return {found.key: str(value).rpartition(".")[2].strip("'>").lower()}

    def _normaliser(self, name: str, value: Any) -> Settings:
        return {**self._norm_obs(name, value), "normaliser.reward": value}

    def _norm_obs(self, name: str, value: Any) -> Settings:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value} is neither true nor false.", f"Write {name}=true.")
        return {"normaliser.observation": "rolling" if value else "off"}

    # ---------------------------------------------------------------- what the run is like

    def _phases(self) -> list[Tree]:
        phases = self.tree.get("phases")
        return [phase for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []

    def _num_envs(self) -> int:
        number = get(self.tree, ("env", "num_envs"))
        return number if isinstance(number, int) else 1

    def _duration(self, index: int) -> str:
        return PathNames(self.tree).shown(("phases", str(index), "duration_steps"))

    def _hooks(self, index: int) -> dict[str, str]:
        """The keys of a phase's hooks, by the hooks' names. Of equal hooks, the last."""
        hooks, names = self._phases()[index].get("hooks") or [], PathNames(self.tree)
        paths = {hook_name(hook): ("phases", str(index), "hooks", str(slot)) for slot, hook in enumerate(hooks)}
        return {name: names.shown(path) for name, path in paths.items()}

    def _learn(self) -> int | None:
        both = [i for i in range(len(self._phases())) if {"collect", "update"} <= set(self._hooks(i))]
        return both[-1] if both else None

    def _hook(self, which: str, name: str) -> str:
        learn = self._learn()
        if learn is None:
            text = f"{name}: no phase of this run has both a collect and an update hook, which it would set."
            raise ConfigError(text, "See docs/phases.md.")
        return self._hooks(learn)[which]

    def _amounts(self, hook: str) -> Tree:
        amounts = get(self.tree, PathNames(self.tree).find(split_path(hook)))
        return amounts if isinstance(amounts, dict) else {}

    def _updates_per_step(self, name: str) -> float:
        amounts = self._amounts(self._hook("update", name))
        rows = self._amounts(self._hook("collect", name)).get("rows")
        if "updates_per_step" in amounts:
            return float(amounts["updates_per_step"])
        if "train_ratio" in amounts:
            return float(amounts["train_ratio"]) / float(get(self.tree, ("algorithm", "batch_size")) or 32)
        return float(amounts.get("updates", 1)) / float(rows or 1)

    def _total_steps(self, name: str) -> int:
        total = self.steps or sum(phase.get("duration_steps") or 0 for phase in self._phases())
        if not total:
            raise ConfigError(f"{name} is a part of the env steps, but no phase has a budget of those.", "Set --steps.")
        return total


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}={value} is not a number.", f"Write {name}=0.1, for example.") from error


def _whole(name: str, value: Any, fix: str = "Give a whole number from 1 on.") -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value} is not a whole number from 1 on.", fix)
    return value


def _how(name: str, kind: str) -> str:
    found = meaning(name, kind)
    return found.how if isinstance(found, Ours) else ""


def _note(given: Settings, settings: Settings) -> str:
    theirs, ours = (", ".join(f"{key}={_text(value)}" for key, value in part.items()) for part in (given, settings))
    return f"{theirs} (Stable-Baselines3) is set as {ours}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
