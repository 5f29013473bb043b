"""Resolve every ``auto`` that depends on the machine or the env: device, vector, network, storage, videos.

Engine and matmul libraries of a CPU follow in :mod:`reverie.config.kernel_choice`.

Most choices change bits, so they are made once, when the run is created, and written into the run's config.yaml.
"""

from __future__ import annotations

from reverie.config.fields import networks_of
from reverie.config.files import config_to_tree
from reverie.config.schema import RunConfig
from reverie.config.tree import Tree, get, put
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.specs import Specs
from reverie.core.traits import algorithm_traits
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer, known_extras
from reverie.envs.probe import EnvFacts
from reverie.machine.memory import free_memory

FOR_DEBUGGING = (("env", "vector", "sync"), ("backend", "engine", "torch"))
"""Values of ``auto`` in debug mode: breakpoints in the env work, and torch sees every operation."""


def decide_before_probe(tree: Tree) -> None:
    """Resolve in place what debug mode decides, before the env is made."""
    for section, key, value in FOR_DEBUGGING if tree["debug"] else ():
        if tree[section][key] == "auto":
            tree[section][key] = value


def decide_auto(tree: Tree, facts: EnvFacts) -> RunConfig:
    """The config with everything decided. A value that is not ``auto`` stays."""
    _decide_backend(tree["backend"], tree["algorithm"]["kind"])
    if tree["env"]["vector"] == "auto":
        tree["env"]["vector"] = facts.vector
    if tree["video"]["enabled"] == "auto":
        tree["video"]["enabled"] = can_record(facts.can_render)
    return choose_storage(choose_network(load_config(tree), facts.specs), facts.specs)


def can_record(can_render: bool) -> bool:
    """The value of ``video.enabled: auto``: true if the env renders frames and a video writer is installed."""
    from reverie.log.video import is_installed

    return is_installed() and can_render


def choose_network(config: RunConfig, specs: Specs) -> RunConfig:
    """Choose every network of kind ``auto`` by the observations. Settings given to auto stay."""
    undecided = [("algorithm", *path) for path, network in networks_of(config.algorithm) if network.kind == "auto"]
    if not undecided:
        return config
    kind = registry.load("network", "auto").choose_kind(specs.observations)
    tree = config_to_tree(config)
    for path in undecided:
        given = {key: value for key, value in get(tree, path).items() if value is not None}
        put(tree, path, {**given, "kind": kind})
    return load_config(tree)


def choose_storage(config: RunConfig, specs: Specs) -> RunConfig:
    """Resolve ``storage: auto`` of buffers: memory, if all of them fit into half of the free memory."""
    undecided = [name for name, buffer in config.buffers.items() if getattr(buffer, "storage", "") == "auto"]
    if not undecided:
        return config
    expected = ExpectedRows(specs, config.env.num_envs, known_extras(config.algorithm))
    needed = sum(forecast_buffer(buffer, expected).memory for buffer in config.buffers.values())
    free = free_memory()
    storage = "memory" if free is None or needed <= free // 2 else "disk"
    chosen = {name: config.buffers[name].model_copy(update={"storage": storage}) for name in undecided}
    return config.model_copy(update={"buffers": {**config.buffers, **chosen}})


def _decide_backend(settings: Tree, algorithm: str) -> None:
    from reverie import backend  # imports torch

    if settings["device"] == "auto":
        settings["device"] = backend.best_device()
    device = settings["device"]
    if settings["precision"] == "auto":
        has_bfloat16 = device != "cpu" and algorithm_traits(algorithm).bfloat16
        settings["precision"] = backend.best_precision(device) if has_bfloat16 else "float32"
    if device != "cpu":  # on a CPU they are measured once the algorithm is known
        unused = {"engine": "torch", "matmul": "torch", "numpy_matmul": "numpy"}
        settings.update({key: value for key, value in unused.items() if settings[key] == "auto"})
