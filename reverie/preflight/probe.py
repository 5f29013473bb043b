"""Measures the speed of a run by running a temporary copy of it for a moment.

The copy has its own seed, envs, streams and buffers and writes nothing. Global random generators are restored
afterwards. Measurements are only shown, nothing depends on them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np

from reverie import backend
from reverie.config.phases import Phase, flatten_phases
from reverie.config.schema import RunConfig
from reverie.core.contracts import Buffer
from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import Specs
from reverie.core.types import ACT_METRICS, Array, Mode, Row, observation_keys
from reverie.envs.config import BATCHED
from reverie.envs.make import num_workers
from reverie.log.progress import progress
from reverie.training.session import Session

ACT_SECONDS, READY_SECONDS = 0.3, 1.0
"""Time spent on acting, and its limit if updates need more rows. Then each update hook is called."""
UPDATE_SECONDS, MOST_CALLS = 0.1, 10
QUICK_SECONDS = 0.5
"""If the first round takes no longer than this, a second one follows: it measures without warm-up."""
MOST_ENVS = 8
MOST_ROWS = 20_000


@dataclass(frozen=True)
class HookCost:
    """The cost of one call of an update hook, which read ``batch_rows`` rows (or ``rows``, if its read has no fixed
    size)."""

    seconds: float
    updates: int
    rows: int | None = None
    batch_rows: int | None = None


@dataclass
class Measured:
    """The measurements."""

    row_seconds: float = 0.0
    """Time of one row of one env: acting, stepping, storing."""
    hooks: dict[str, HookCost] = field(default_factory=dict)
    largest_observation: float = 0.0
    """The largest absolute value in float observations, if they are not normalised."""
    episode_length: float | None = None
    extras: Row = field(default_factory=dict)
    annotations: Row = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""
    """Why there are no measurements, if so."""


def measure(config: RunConfig, make_session: Callable[[RunConfig], Session]) -> Measured:
    """Build, run and discard the copy. A failure in it must not keep the real run from starting."""
    started = time.perf_counter()
    measured = Measured()
    backend.configure_process(config.backend)
    try:
        with (
            progress("measuring the speed of the run"),
            untouched_generators(),
            closing(make_session(probe_config(config))) as session,
        ):
            _try(session, config, measured)
    except Exception as error:
        measured.problem = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
    measured.seconds = time.perf_counter() - started
    return measured


def probe_config(config: RunConfig) -> RunConfig:
    """The run with another seed, few envs in this process and small buffers in memory."""
    env = config.env
    if env.vector not in BATCHED:
        env = env.model_copy(update={"vector": "sync", "num_envs": min(env.num_envs, MOST_ENVS)})
    small = {"capacity": 4 * MOST_ROWS, "min_rows": 1, "storage": "memory"}
    buffers = {
        name: buffer.model_copy(update={key: small[key] for key in small if key in type(buffer).model_fields})
        for name, buffer in config.buffers.items()
    }
    seed = derive_seed(config.seed, "preflight")
    return config.model_copy(update={"seed": seed, "env": env, "buffers": buffers})


@contextmanager
def untouched_generators() -> Iterator[None]:
    """Restore the global random generators after the block, in case envs or libraries draw from them."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - kept, not drawn from
    try:
        with backend.seeded(make_generator("preflight")):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _try(session: Session, config: RunConfig, measured: Measured) -> None:
    phase = learning_phase(config)
    buffer = session.buffers[phase.buffer]
    rows = next((hook.rows for hook in phase.hooks if hook.name == "collect"), None)
    hooks = list(dict.fromkeys(hook.name for hook in phase.hooks if hook.name in session.algorithm.reads))
    workers = num_workers(config.env, config.env.num_envs) if config.env.vector == "process" else 1
    started = time.perf_counter()
    session.collector.restart()
    for _ in range(2):
        _act(session, buffer, min(rows or MOST_ROWS, MOST_ROWS), measured, hooks)
        env_seconds = session.collector.env_seconds / max(1, session.counters.rows)
        measured.row_seconds -= env_seconds * (1 - 1 / workers)
        for hook in hooks:
            _update(session, buffer, hook, measured)
        if time.perf_counter() - started > QUICK_SECONDS:
            return


def learning_phase(config: RunConfig) -> Phase:
    """The longest phase with updates. The first phase if none has updates."""
    phases = list(flatten_phases(config.phases))
    learning = [phase for phase in phases if any(hook.name not in ("collect", "evaluate") for hook in phase.hooks)]
    return max(learning or phases[:1], key=lambda phase: phase.duration_steps or 0)


class _RandomActions:
    """A controller."""

    def __init__(self, specs: Specs) -> None:
        self.specs = specs

    def act(self, now: Row, rng: np.random.Generator) -> Array:
        return self.specs.action.sample(rng, len(now["is_first"]))


def _act(session: Session, buffer: Buffer, rows: int, measured: Measured, hooks: Sequence[str]) -> None:
    collector, count = session.collector, session.collector.num_envs
    collector.env_seconds = 0.0
    session.counters.rows = done = 0
    measured.row_seconds, limit, started = 0.0, READY_SECONDS, time.perf_counter()
    while True:
        seconds = time.perf_counter() - started
        is_enough = done >= rows or seconds >= ACT_SECONDS
        if seconds >= limit or (is_enough and all(buffer.can_sample(session.algorithm.reads[hook]) for hook in hooks)):
            break
        if is_enough and session.algorithm.traits.observes and not measured.row_seconds:
            # Planning may take too long to collect all that updates need: random actions do the rest.
            measured.row_seconds, limit = seconds / done, seconds + READY_SECONDS
            collector.use_controller(_RandomActions(session.policy.specs))
        collector.collect_rows(buffer, count)
        done += count
        measured.largest_observation = max(measured.largest_observation, _largest(session, collector.now))
    collector.use_controller(None)
    measured.row_seconds = measured.row_seconds or (time.perf_counter() - started) / done
    lengths = session.recorder.pending.get("collect/length")
    measured.episode_length = float(np.mean(lengths)) if lengths else None
    _, _, extras = session.policy.act(
        collector.now, collector.carry, session.counters.clock(), make_generator("preflight"), Mode.COLLECT
    )
    measured.extras = {key: values for key, values in extras.items() if key != ACT_METRICS}


def _largest(session: Session, row: Row) -> float:
    """The largest absolute value in vector observations. 0 if they are normalised."""
    if session.config.normaliser.observation != "off":
        return 0.0
    specs = session.policy.specs.observations
    vectors = [row[key] for key in observation_keys(row) if specs[key].kind == "vector"]
    return max((float(np.abs(values).max(initial=0.0)) for values in vectors), default=0.0)


def _update(session: Session, buffer: Buffer, hook: str, measured: Measured) -> None:
    """Measure an update hook. It is called several times if it is fast and can read stored rows again."""
    read = session.algorithm.reads[hook]
    rng = make_generator("preflight")
    seconds: list[float] = []
    while buffer.can_sample(read) and sum(seconds) < UPDATE_SECONDS and len(seconds) < MOST_CALLS:
        batch = session.normaliser.normalise_batch(buffer.sample(read, session.collector.now, rng))
        started = time.perf_counter()
        update = getattr(session.algorithm, hook)(batch, session.counters.clock(), rng)
        for value in update.metrics.values():
            float(value)  # on a GPU: wait until it is done
        seconds.append(time.perf_counter() - started)
        rows = None if read.rows else batch["reward"].size
        measured.hooks[hook] = HookCost(float(np.median(seconds)), max(1, update.count), rows, read.rows)
        if update.write_back is not None:
            columns = update.write_back.columns
            measured.annotations = {key: columns[key] for key in columns if key != "priority"}  # the sampler's
