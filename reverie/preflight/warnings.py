"""Warnings about known traps, before the first step. Each says what to type to avoid it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reverie.config.compose import compose
from reverie.config.hook_checks import has_hook, has_update
from reverie.config.path_names import hook_keys, phases_by_key
from reverie.config.phases import Hook, flatten_phases
from reverie.config.schema import RunConfig
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError
from reverie.core.schedule import Schedule
from reverie.core.specs import Specs
from reverie.envs.make import make_env
from reverie.envs.snapshot_cache import load_verdict
from reverie.machine.memory import size_text
from reverie.preflight.forecast import Duration
from reverie.preflight.probe import Measured, learning_phase
from reverie.training.evaluator import LONGEST_EPISODE

LARGE_OBSERVATION = 100.0
FAR = 10.0
"""Ratio to the preset's updates per env step from which a run is warned."""
UPDATE_AMOUNTS = ("updates_per_step", "updates", "train_ratio")
TINY_PARAMETERS = 200_000
BRIEF_SECONDS = 60.0
"""Evaluations that take less than this in total are never warned about."""


@dataclass(frozen=True)
class Facts:
    """The facts before the first step. None where nothing was measured."""

    config: RunConfig
    specs: Specs
    memory: int
    free_memory: int | None
    disk: int | None = None
    free_disk: int | None = None
    parameters: int | None = None
    duration: Duration | None = None
    measured: Measured = field(default_factory=Measured)
    process_memory: int | None = None
    """Memory that the process has before the first step: libraries, networks, envs."""


def find_traps(facts: Facts) -> list[str]:
    """All warnings, the worst first."""
    found = (trap(facts) for trap in TRAPS)
    return [text for text in found if text]


def check_memory(facts: Facts) -> None:
    """Refuse buffers that do not fit into memory: the system would kill the run hours later."""
    memory, free, buffers = facts.memory, facts.free_memory, facts.config.buffers
    if free is None or memory <= free:
        return
    ways = [f"set a smaller buffers.{name}.capacity" for name, buffer in buffers.items() if hasattr(buffer, "capacity")]
    in_memory = [name for name, buffer in buffers.items() if getattr(buffer, "storage", "disk") != "disk"]
    ways += [f"set buffers.{name}.storage=disk" for name in in_memory]
    advice = ", ".join([*ways, "or free memory"])
    raise ConfigError(
        f"Full buffers need {size_text(memory)} of memory, but only {size_text(free)} are free.",
        f"{advice[0].upper()}{advice[1:]}. preflight.enabled=false starts anyway.",
    )


def much_memory(facts: Facts) -> str | None:
    if facts.free_memory is None or facts.memory <= 0.8 * facts.free_memory:
        return None
    amount = "more than" if facts.memory > facts.free_memory else "most of"
    return f"full buffers need {amount} the free memory: set a smaller buffers.main.capacity"


def little_disk(facts: Facts) -> str | None:
    if facts.disk is None or facts.free_disk is None or facts.disk <= facts.free_disk:
        return None
    return "the disk is too small for the checkpoints: set checkpoint.keep_last=1, or choose another --runs-dir"


def no_time_limit(facts: Facts) -> str | None:
    env, longest = facts.config.env, facts.specs.max_episode_steps
    if longest is not None and longest <= env.replay_steps:
        return None
    verdict = load_verdict(env)
    has_state = verdict is not None and verdict.method == "replay+state"
    resumed = "" if has_state else f"a resume after step {env.replay_steps:,} of an episode starts a new one"
    if longest is not None:
        return f"{resumed}: set env.replay_steps={longest} to continue it" if resumed else None
    effect = f"evaluation truncates episodes at {LONGEST_EPISODE:,} steps" + (f" and {resumed}" if resumed else "")
    return f"the env has no time limit, so {effect}: set a limit, for example env.max_episode_steps=1000"


def large_observations(facts: Facts) -> str | None:
    largest = facts.measured.largest_observation
    if largest < LARGE_OBSERVATION:
        return None
    return f"observations reach {largest:.3g} and are not normalised: set normaliser.observation=rolling"


def no_updates(facts: Facts) -> str | None:
    """A budget shorter than the prefill leaves no phase with updates."""
    phases = list(flatten_phases(facts.config.phases))
    if any(map(has_update, phases)) or not any(has_hook(phase, "collect") for phase in phases):
        return None
    return "no phase makes an update, so nothing is learnt: if --steps is too small, raise it"


def unusual_updates(facts: Facts) -> str | None:
    own, usual = update_rate(facts.config, facts.measured), preset_rate(facts.config, facts.measured)
    if own is None or usual is None or 1 / FAR < own / usual < FAR:
        return None
    fix = _amount_for(facts.config, usual / own)
    return f"{own:.3g} updates per env step, but the preset has {usual:.3g}: {fix}"


def twice_exploring(facts: Facts) -> str | None:
    algorithm = facts.config.algorithm
    epsilon = getattr(algorithm, "epsilon", None)
    if not getattr(algorithm, "noisy", False) or not isinstance(epsilon, Schedule):
        return None
    largest = max(epsilon.start, epsilon.end)
    text = f"noisy layers explore, and up to {largest:.0%} of the actions are random too: set algorithm.epsilon=0"
    return text if largest else None


def tiny_network_on_gpu(facts: Facts) -> str | None:
    has_images = any(spec.kind == "image" for spec in facts.specs.observations.values())
    is_tiny = facts.parameters is not None and facts.parameters < TINY_PARAMETERS and not has_images
    if facts.config.backend.device == "cpu" or not is_tiny:
        return None
    return f"a network of {facts.parameters:,} parameters is usually faster without a GPU: set backend.device=cpu"


def long_evaluations(facts: Facts) -> str | None:
    duration = facts.duration
    if duration is None or duration.evaluation <= max(duration.training, BRIEF_SECONDS):
        return None
    return "evaluations may take longer than training: set fewer episodes, or a longer every_steps"


def no_rendering(facts: Facts) -> str | None:
    """Checked only if videos are requested, because rendering may take a moment."""
    if facts.config.video.enabled is not True:
        return None
    try:
        env = make_env(facts.config.env, "rgb_array")
        try:
            env.reset(seed=0)
            problem = "render() returned nothing" if env.render() is None else ""
        finally:
            env.close()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:60]
    fix = "set MUJOCO_GL=egl (MuJoCo) or SDL_VIDEODRIVER=dummy (pygame), or video.enabled=false"
    return f"videos are on, but the env cannot be rendered here ({problem}): {fix}" if problem else None


TRAPS: tuple[Callable[[Facts], str | None], ...] = (
    no_updates, much_memory, little_disk, no_time_limit, large_observations, unusual_updates, twice_exploring,
    tiny_network_on_gpu, long_evaluations, no_rendering,
)  # fmt: skip


def update_rate(config: RunConfig, measured: Measured) -> float | None:
    """Updates per env step in the longest phase with updates. None if an update reads all collected rows."""
    return _rate(learning_phase(config).hooks, measured)


def preset_rate(config: RunConfig, measured: Measured) -> float | None:
    """Updates per env step in the preset for this algorithm and env, or in the algorithm's defaults."""
    try:
        return update_rate(load_config(compose(f"{config.env.id}:{config.algorithm.kind}").tree), measured)
    except ConfigError:  # a user's own class, or an env that the preset does not fit
        return None


def _amount_for(config: RunConfig, factor: float) -> str:
    """The setting to type for ``factor`` times the updates."""
    phase = learning_phase(config)
    key = next(key for key, other in phases_by_key(config.phases) if other is phase)
    amounts = [
        (f"{hook_key}.{name}", getattr(hook, name))
        for hook_key, hook in zip(hook_keys(key, phase), phase.hooks, strict=True)
        for name in UPDATE_AMOUNTS
        if getattr(hook, name) is not None
    ]
    if not amounts:
        return f"make {factor:.2g} times as many"
    (key, amount), *_ = amounts
    wanted = max(1, round(amount * factor)) if isinstance(amount, int) else amount * factor
    return f"set {key}={wanted:g}"


def _rate(hooks: tuple[Hook, ...], measured: Measured) -> float | None:
    rows = next((hook.rows for hook in hooks if hook.name == "collect"), None)
    for hook in hooks:
        if hook.updates_per_step is not None:
            return hook.updates_per_step
        if hook.updates is not None and rows:
            return hook.updates / rows
        cost = measured.hooks.get(hook.name)
        if hook.train_ratio is not None and cost is not None and cost.batch_rows:
            return hook.train_ratio / cost.batch_rows
    return None
