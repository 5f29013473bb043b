"""The class of each ``kind``. Classes are imported only when they are chosen.

A kind is a name from the table below, a name added with :func:`register`, or the dotted path of a class of your own
(``my_module.MyNetwork``). Dotted paths run foreign code, so code that loads run folders refuses them with
:func:`known_kinds_only`, except for those that the user trusts.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.core.errors import ConfigError, ForeignCodeError, nearest


@dataclass(frozen=True)
class Trust:
    """What a config may do: import code outside Reverie (these names, or any), and send data to servers it names."""

    names: frozenset[str] = frozenset()
    may_send: bool = False
    is_complete: bool = False


EVERYTHING = Trust(may_send=True, is_complete=True)
_TABLE: dict[str, dict[str, str]] = {
    "algorithm": {
        "dqn": "reverie.algos.dqn.DQN",
        "dreamer": "reverie.algos.dreamer.Dreamer",
        "planet": "reverie.algos.planet.PlaNet",
        "ppo": "reverie.algos.ppo.PPO",
        "qlearning": "reverie.algos.qlearning.QLearning",
        "reinforce": "reverie.algos.reinforce.Reinforce",
        "sac": "reverie.algos.sac.SAC",
        "tdmpc": "reverie.algos.tdmpc.TDMPC",
        "tdmpc2": "reverie.algos.tdmpc2.TDMPC2",
    },
    "buffer": {
        "replay": "reverie.data.replay.ReplayBuffer",
        "rollout": "reverie.data.rollout.RolloutBuffer",
    },
    "controller": {
        "random": "reverie.agents.random.RandomController",
    },
    "exploration": {
        "epsilon": "reverie.agents.exploration.EpsilonGreedy",
        "softmax": "reverie.agents.exploration.Softmax",
        "thompson": "reverie.agents.exploration.Thompson",
        "ucb": "reverie.agents.exploration.UpperConfidence",
    },
    "logger": {
        "bsuite": "reverie.log.bsuite.BSuiteSink",
        "csv": "reverie.log.csv.CsvSink",
        "scope": "reverie.log.scope.ScopeSink",
        "tensorboard": "reverie.log.tensorboard.TensorBoardSink",
        "wandb": "reverie.log.wandb.WandbSink",
    },
    "model": {
        "latent_mlp": "reverie.models.latent_mlp.LatentMLP",
        "rssm": "reverie.models.world_model.RSSMWorldModel",
        "told": "reverie.models.told.TOLD",
    },
    "network": {
        "auto": "reverie.nets.encoders.AutoNetwork",
        "mlp": "reverie.nets.encoders.MLP",
        "nature": "reverie.nets.encoders.NatureCNN",
        "impala": "reverie.nets.encoders.ImpalaCNN",
        "gru": "reverie.nets.gated.GRU",
        "lstm": "reverie.nets.gated.LSTM",
        "transformer": "reverie.nets.transformer.Transformer",
    },
    "optimizer": {
        "adam": "reverie.nets.optim.Adam",
        "adamw": "reverie.nets.optim.AdamW",
        "laprop": "reverie.nets.laprop.LaProp",
    },
    "planner": {
        "cem": "reverie.planners.cem.CEM",
        "mppi": "reverie.planners.mppi.MPPI",
        "none": "reverie.planners.no_planner.NoPlanner",
    },
    "q_head": {
        "scalar": "reverie.nets.q_heads.ScalarHead",
        "categorical": "reverie.nets.q_heads.CategoricalHead",
        "quantile": "reverie.nets.q_heads.QuantileHead",
    },
    "return_scale": {
        "deviation": "reverie.nets.scaling.DeviationScale",
        "none": "reverie.nets.scaling.NoScale",
        "percentile": "reverie.nets.scaling.PercentileScale",
        "range": "reverie.nets.scaling.RangeScale",
    },
    "sampler": {
        "mixture": "reverie.data.mixture_sampler.MixtureSampler",
        "online": "reverie.data.online_sampler.OnlineSampler",
        "prioritised": "reverie.data.prioritised_sampler.PrioritisedSampler",
        "recency": "reverie.data.sampler.RecencySampler",
        "shuffled": "reverie.data.shuffled_sampler.ShuffledSampler",
        "uniform": "reverie.data.sampler.UniformSampler",
    },
    "temperature": {
        "fixed": "reverie.nets.temperature.FixedTemperature",
        "learned": "reverie.nets.temperature.LearnedTemperature",
    },
    "vector": {
        "sync": "reverie.envs.vector.SyncVector",
        "process": "reverie.envs.process_vector.ProcessVector",
        "native": "reverie.envs.native_vector.NativeVector",
        "envpool": "reverie.envs.envpool_vector.EnvPoolVector",
        "jax": "reverie.envs.jax_vector.JaxVector",
        "ale": "reverie.envs.ale_vector.AleVector",
    },
    "wrapper": {
        "action_repeat": "reverie.envs.wrappers.steps.ActionRepeat",
        "atari": "reverie.envs.wrappers.atari.Atari",
        "atari_objects": "reverie.envs.wrappers.atari_objects.AtariObjects",
        "drop_keys": "reverie.envs.wrappers.keys.DropKeys",
        "frame_stack": "reverie.envs.wrappers.observations.FrameStack",
        "grayscale": "reverie.envs.wrappers.images.Grayscale",
        "mask_observation": "reverie.envs.wrappers.observations.MaskObservation",
        "minigrid": "reverie.envs.suites.minigrid.Grid",
        "one_hot": "reverie.envs.wrappers.observations.OneHot",
        "render_pixels": "reverie.envs.wrappers.images.RenderPixels",
        "resize": "reverie.envs.wrappers.images.Resize",
        "reward_clip": "reverie.envs.wrappers.steps.RewardClip",
        "select_keys": "reverie.envs.wrappers.keys.SelectKeys",
        "text_tokens": "reverie.envs.wrappers.text.TextTokens",
        "time_limit": "reverie.envs.wrappers.steps.TimeLimit",
    },
}
_trust: ContextVar[Trust] = ContextVar("trust", default=EVERYTHING)
_user_folder = ""


def register(group: str, kind: str, target: str) -> None:
    """Add a class of your own under a short name; ``target`` is its dotted path."""
    _TABLE.setdefault(group, {})[kind] = target


def groups() -> list[str]:
    return sorted(_TABLE)


def kinds(group: str) -> list[str]:
    return sorted(_TABLE[group])


@contextmanager
def known_kinds_only(but: Trust | None = None) -> Iterator[None]:
    """Inside this block, import nothing that a config names by a dotted path, except trusted names."""
    token = _trust.set(but or Trust())
    try:
        yield
    finally:
        _trust.reset(token)


def is_own() -> bool:
    """Whether the current config is the user's own, or trusted like it."""
    return _trust.get().may_send


def load(group: str, kind: str) -> Any:
    """The class of a kind."""
    target = _TABLE[group].get(kind)
    if target is None and "." in kind:
        check_foreign(group, kind)
        target = kind
    if target is None:
        raise ConfigError(f"There is no {group} called '{kind}'.", nearest(kind, _TABLE[group]))
    return import_name(target, what=group)


def check_foreign(what: str, name: str) -> None:
    """Inside :func:`known_kinds_only`, refuse code outside Reverie that is not trusted."""
    trust = _trust.get()
    if not trust.is_complete and name not in trust.names:
        raise ForeignCodeError(
            f"This run names code outside Reverie ({what} '{name}') and was not made here, or was changed since.",
            "If you know that code, add --trust; from Python, trust=True.",
        )


def search_in(folder: str) -> None:
    """Also search modules in this folder, where the command was started."""
    global _user_folder
    _user_folder = folder


def make_importable(module: str) -> None:
    """Put the user's folder last on ``sys.path`` if it is needed to find this module.

    Only then, because libraries search the whole path for optional packages and plugins: in a stranger's run folder
    they would import any file of the right name.
    """
    top = module.partition(".")[0]
    if not _user_folder or _user_folder in sys.path or not top.isidentifier() or top in sys.modules:
        return
    if importlib.util.find_spec(top) is None:
        sys.path.append(_user_folder)
        importlib.invalidate_caches()


def parent_kind(group: str, kind: str) -> str | None:
    """The registered kind that a user's class is derived from, or None."""
    found = load(group, kind)
    paths = [f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())]
    kinds = {target: name for name, target in _TABLE[group].items()}
    return next((kinds[path] for path in paths if path in kinds), None)


def extends(kind: str, other: str) -> bool:
    """Whether the config of a user's class extends that of another kind, in any group."""
    groups = [group for group, kinds in _TABLE.items() if other in kinds or "." in other]
    try:
        return any(issubclass(load(group, kind).Config, load(group, other).Config) for group in groups)
    except (ConfigError, AttributeError, TypeError):  # validation reports the problem
        return False


def path_of(found: Any) -> str | None:
    """The dotted path under which :func:`import_name` finds a class or function, or None."""
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", "")
    is_there = module and name.isidentifier() and getattr(sys.modules.get(module), name, None) is found
    return f"{module}.{name}" if is_there else None


def import_name(path: str, what: str = "class") -> Any:
    """Import ``package.module.Name``. A missing one is a ConfigError with an explanation."""
    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigError(f"'{path}' does not name a {what}.", "Write package.module.Name.")
    make_importable(module_name)
    try:
        return getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Cannot load the {what} '{path}': no module named '{error.name}'.",
            _explain_shadow(module_name) or "Install it, or run the command from the folder of the module.",
        ) from error
    except AttributeError as error:
        known = [n for n in vars(importlib.import_module(module_name)) if not n.startswith("_")]
        fix = _explain_main(module_name) or _explain_shadow(module_name) or nearest(name, known)
        raise ConfigError(f"'{module_name}' has no {what} '{name}'.", fix) from error


def _explain_main(module: str) -> str:
    """The fix for a class that another script or notebook defined."""
    if module != "__main__":
        return ""
    return (
        "__main__ is the script or notebook that defined it: continue there, or move the class to a module of its own."
    )


def _explain_shadow(module: str) -> str:
    """The fix for a user's module with the name of an installed one, which is found first."""
    top = module.partition(".")[0]
    origin = getattr(sys.modules.get(top), "__file__", None)
    here = Path(_user_folder, top)
    is_here = bool(_user_folder) and (here.is_dir() or here.with_suffix(".py").is_file())
    if not is_here or origin is None or Path(origin).is_relative_to(_user_folder):
        return ""
    return f"'{top}' is also the name of an installed module, which is found first ({origin}). Rename yours."
