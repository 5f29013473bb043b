"""Known traps, found before the first step. Each says what to type to get out of it."""

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
"""How many times the preset's amount of updates counts as far from it."""
UPDATE_AMOUNTS = ("updates_per_step", "updates", "train_ratio")
TINY_PARAMETERS = 200_000
BRIEF_SECONDS = 60.0
"""Evaluations that take no longer than this in all disturb nobody."""


@dataclass(frozen=True)
class Facts:
    """What is known before the first step; None where nothing was measured."""

    config: RunConfig
    specs: Specs
    memory: int
    free_memory: int | None
    disk: int | None = None
    free_disk: int | None = None
    parameters: int | None = None
    duration: Duration | None = None
    measured: Measured = field(default_factory=Measured)


def find_traps(facts: Facts) -> list[str]:
    """What looks wrong, the worst first."""
    found = (trap(facts) for trap in TRAPS)
    return [text for text in found if text]


def check_memory(facts: Facts) -> None:
    """Refuse buffers that cannot be filled: the run would be ended by the system hours later."""
    memory, free, buffers = facts.memory, facts.free_memory, facts.config.buffers
    if free is None or memory <= free:
        return
    ways = [f"set a smaller buffers.{name}.capacity" for name, buffer in buffers.items() if hasattr(buffer, "capacity")]
    in_memory = [name for name, buffer in buffers.items() if getattr(buffer, "storage", "disk") != "disk"]
    ways += [f"set buffers.{name}.storage=disk" for name in in_memory]
    advice = ", ".join([*ways, "or free memory"])
    raise ConfigError(
        f"The buffers will take {size_text(memory)} when they are full; {size_text(free)} of memory are free.",
        f"{advice[0].upper()}{advice[1:]}; preflight.enabled=false starts nevertheless.",
    )


def much_memory(facts: Facts) -> str | None:
    if facts.free_memory is None or facts.memory <= 0.8 * facts.free_memory:
        return None
    share = "more than" if facts.memory > facts.free_memory else "most of"
    return f"the buffers will take {share} the free memory: set a smaller buffers.main.capacity"


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
    resumed = "" if has_state else f"a resume inside an episode of over {env.replay_steps:,} steps begins a new one"
    if longest is not None:
        return f"{resumed}: set env.replay_steps={longest} to keep all of it" if resumed else None
    cut = f"evaluation cuts its episodes at {LONGEST_EPISODE:,} steps" + (f" and {resumed}" if resumed else "")
    return f"the env states no time limit, so {cut}: set env.max_episode_steps=1000, or as many as one may take"


def large_observations(facts: Facts) -> str | None:
    largest = facts.measured.largest_observation
    if largest < LARGE_OBSERVATION:
        return None
    return f"observations reach {largest:.3g} and are not normalised: set normaliser.observation=rolling"


def no_updates(facts: Facts) -> str | None:
    """A short budget ends with the prefill; what comes after it is not even planned."""
    phases = list(flatten_phases(facts.config.phases))
    if any(map(has_update, phases)) or not any(has_hook(phase, "collect") for phase in phases):
        return None
    return "no phase makes an update, so nothing will be learnt; if --steps cut them off, give more"


def unusual_updates(facts: Facts) -> str | None:
    own, usual = update_rate(facts.config, facts.measured), preset_rate(facts.config, facts.measured)
    if own is None or usual is None or 1 / FAR < own / usual < FAR:
        return None
    fix = _amount_for(facts.config, usual / own)
    return f"{own:.3g} updates per env step, where the preset has {usual:.3g}: {fix}"


def twice_exploring(facts: Facts) -> str | None:
    algorithm = facts.config.algorithm
    epsilon = getattr(algorithm, "epsilon", None)
    if not getattr(algorithm, "noisy", False) or not isinstance(epsilon, Schedule):
        return None
    largest = max(epsilon.start, epsilon.end)
    told = f"noisy layers explore, and up to {largest:.0%} of the actions are random as well: set algorithm.epsilon=0"
    return told if largest else None


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


def no_pictures(facts: Facts) -> str | None:
    """Only where videos are asked for: drawing one picture may take a moment."""
    if facts.config.video.enabled is not True:
        return None
    try:
        env = make_env(facts.config.env, "rgb_array")
        try:
            env.reset(seed=0)
            problem = "it draws nothing" if env.render() is None else ""
        finally:
            env.close()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:60]
    fix = "set MUJOCO_GL=egl (MuJoCo) or SDL_VIDEODRIVER=dummy (pygame), or video.enabled=false"
    return f"videos are on, but the env cannot be drawn here ({problem}): {fix}" if problem else None


TRAPS: tuple[Callable[[Facts], str | None], ...] = (
    no_updates, much_memory, little_disk, no_time_limit, large_observations, unusual_updates, twice_exploring,
    tiny_network_on_gpu, long_evaluations, no_pictures,
)  # fmt: skip


def update_rate(config: RunConfig, measured: Measured) -> float | None:
    """Updates per env step of the phase that learns longest; None where an update reads all that was collected."""
    return _rate(learning_phase(config).hooks, measured)


def preset_rate(config: RunConfig, measured: Measured) -> float | None:
    """The same of the preset for this algorithm on this env, or else of the algorithm's own."""
    try:
        return update_rate(load_config(compose(f"{config.env.id}:{config.algorithm.kind}").tree), measured)
    except ConfigError:  # a class of one's own, or an env that a preset does not fit
        return None


def _amount_for(config: RunConfig, factor: float) -> str:
    """What to type for so many times the updates."""
    phase = learning_phase(config)
    key = next(key for key, other in phases_by_key(config.phases) if other is phase)
    amounts = [
        (f"{hook_key}.{name}", getattr(hook, name))
        for hook_key, hook in zip(hook_keys(key, phase), phase.hooks, strict=True)
        for name in UPDATE_AMOUNTS
        if getattr(hook, name) is not None
    ]
    if not amounts:
        return f"do {factor:.2g} times as many"
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
