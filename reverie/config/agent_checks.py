"""Check that an algorithm can be built for an env, and that the run's buffers can serve what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reverie.config.checks import raise_findings
from reverie.config.data_checks import check_order_of_data
from reverie.config.hook_checks import updates_per_step
from reverie.config.phases import Phase, flatten_phases
from reverie.config.schema import RunConfig
from reverie.config.tree import leaves
from reverie.core import registry
from reverie.core.contracts import Algorithm
from reverie.core.errors import ConfigError
from reverie.core.reads import Read
from reverie.core.rng import Streams
from reverie.core.specs import Specs
from reverie.core.traits import algorithm_traits, buffer_traits, check_actions
from reverie.data.hindsight import check_hindsight
from reverie.policy import make_algorithm

if TYPE_CHECKING:
    from reverie.backend import Backend

Reads = Mapping[str, Read]


def build_algorithm(config: RunConfig, specs: Specs, streams: Streams, backend: Backend) -> Algorithm:
    """A fresh algorithm. ConfigError if it does not declare what its hooks read."""
    kind = config.algorithm.kind
    check_actions(kind, specs.action)
    rng = streams["initial weights"]
    algorithm = make_algorithm(registry.load("algorithm", kind), config.algorithm, specs, rng, backend)
    undeclared = [hook for hook in algorithm.traits.hooks if hook not in getattr(algorithm, "reads", {})]
    if undeclared:
        raise ConfigError(
            f"The algorithm '{kind}' does not declare what its hook {' and '.join(undeclared)} reads.",
            f"Set self.reads = {{'{undeclared[0]}': Rollout()}}, or another read of reverie.core.reads.",
        )
    return algorithm


def check_agent(config: RunConfig, specs: Specs) -> Algorithm | None:
    """Refuse an agent that does not fit the env or its buffers; returns its algorithm, without weights.

    Without weights a big one costs nothing. Returns None for your own classes: they may read their
    weights while they are built, so only a run that trains builds them.
    """
    if any(path[-1] == "kind" and "." in str(kind) for path, kind in leaves(config.algorithm.model_dump())):
        return None
    from reverie.backend import without_weights  # imports torch

    with without_weights() as backend:
        algorithm = build_algorithm(config, specs, Streams(config.seed), backend)
    check_reads(config, algorithm.reads)
    return algorithm


def check_data(config: RunConfig, reads: Reads) -> None:
    """Refuse updates that come before there are enough rows. Only new runs are checked."""
    raise_findings(check_order_of_data(config, {name: read.rows for name, read in reads.items()}))


def check_reads(config: RunConfig, reads: Reads) -> None:
    """Refuse hooks whose buffer cannot serve their read, and ratios for reads without a fixed size, in one error."""
    errors: dict[str, ConfigError] = {}
    for phase in flatten_phases(config.phases):
        for error in _read_errors(config, phase, reads):
            errors.setdefault(error.message, error)
    if errors:
        fixes = "\n".join(dict.fromkeys(error.fix for error in errors.values()))
        raise ConfigError("\n".join(errors), fixes)


def _read_errors(config: RunConfig, phase: Phase, reads: Reads) -> list[ConfigError]:
    errors = []
    for hook in (hook for hook in phase.hooks if hook.name in reads):
        try:
            _check_serves(config, phase.read_by(hook), hook.name, reads[hook.name])
            updates_per_step(hook, reads[hook.name].rows)
        except ConfigError as error:
            errors.append(error)
    return errors


def _check_serves(config: RunConfig, buffer: str, hook: str, read: Read) -> None:
    kind = config.buffers[buffer].kind
    is_on_policy = algorithm_traits(config.algorithm.kind).on_policy
    if _serves(kind, read, is_on_policy):
        if getattr(config.buffers[buffer], "hindsight", None) is not None:
            check_hindsight(buffer, read)
        return
    able = " or ".join(other for other in registry.kinds("buffer") if _serves(other, read, is_on_policy))
    fix = f"Set buffers.{buffer}.kind={able}" if able else "Choose another algorithm"
    why = f"its hook {hook} reads {type(read).__name__}, which that buffer does not serve"
    if _serves(kind, read, is_on_policy=False):
        why = "it is on-policy, and that buffer also serves rows of older policies"
    raise ConfigError(
        f"{config.algorithm.kind} cannot learn from buffers.{buffer}.kind={kind}: {why}.",
        f"{fix}, or name the read in the traits of {kind}." if "." in kind else f"{fix}.",
    )


def _serves(kind: str, read: Read, is_on_policy: bool) -> bool:
    """Whether a buffer can serve this read of an algorithm."""
    traits = buffer_traits(kind)
    return isinstance(read, traits.serves) and not (is_on_policy and traits.replays)
