"""Trains shipped presets briefly, each in a process of its own, with small networks and short episodes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from reverie.config.compose import compose
from reverie.config.phases import Hook, Phase, flatten_phases
from reverie.config.presets import env_names, find_env_preset, find_presets, preset_for, preset_names, variant_names
from reverie.config.schema import RunConfig
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError
from reverie.envs.make import find_spec, is_dotted
from reverie.envs.suites import SUITES, add_installed, find_suite

EPISODE_STEPS = 30
"""Time limit of episodes, so that short runs finish and evaluate some."""
TIMEOUT_SECONDS = 600
SMALL_SIZES = ("debug", "small")
"""Presets of size/ that are tried, the smallest first."""
MOST_ROWS = 32
"""Most rows per collect, so that even few env steps have several updates."""


@dataclass(frozen=True)
class ShippedPreset:
    """``<env>:<variant>``, and the command that installs what it needs. Empty if it is installed."""

    spec: str
    install: str


def shipped_presets() -> list[ShippedPreset]:
    """Every variant of every env with a preset, and those of suites on their examples."""
    add_installed()
    examples = [suite.example for suite in SUITES if suite.example and find_env_preset(suite.example) is not None]
    envs = dict.fromkeys([*env_names(), *examples])
    return [ShippedPreset(f"{env}:{variant}", _missing(env)) for env in envs for variant in variant_names(env)]


def _missing(env: str) -> str:
    suite = find_suite(env)
    return "" if suite is None or suite.is_installed else suite.install_hint


def train_briefly(spec: str, steps: int, timeout: float | None = TIMEOUT_SECONDS) -> tuple[str, str]:
    """The problem (empty if there was none), and what the run did. ``timeout`` in seconds."""
    try:
        words = brief_settings(spec, steps)
    except ConfigError as error:
        return f"{error.message} {error.fix}".strip(), ""
    with tempfile.TemporaryDirectory(prefix="reverie-smoke-") as runs_dir:
        command = [sys.executable, "-P", "-m", "reverie", "train", spec, *words, "--steps", str(steps), "--seed", "1"]
        try:
            done = subprocess.run(
                [*command, "--runs-dir", runs_dir, "--json"], capture_output=True, text=True, errors="replace",
                timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not finished after {timeout} seconds", ""
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing was printed"]
        start = next((index for index, line in enumerate(lines) if line.startswith("Error:")), len(lines) - 1)
        return f"exit code {done.returncode}: {' '.join(lines[start:])}", ""
    result = json.loads(done.stdout)
    state, score = result["state"], result.get("final_score")
    problem = "" if state == "finished" and score is not None else f"the run is {state}, its final score {score}"
    return problem, f"{result['env_steps']:,} env steps, {result['updates']:,} updates"


def brief_settings(spec: str, steps: int) -> list[str]:
    """Settings that make a run of this preset small: size, envs, episodes, rows per update, evaluations."""
    config = _load(spec, [])
    size = _small_size(config.algorithm.kind)
    words = [*size, *_env_words(config), *_algorithm_words(config), "video.enabled=false"]
    for phase in flatten_phases(config.phases):
        words += _phase_words(phase, len(config.phases), steps)
    for name, buffer in config.buffers.items():
        words += [f"buffers.{name}.min_rows={MOST_ROWS}"] if getattr(buffer, "min_rows", 0) > MOST_ROWS else []
    return words


def _load(spec: str, words: list[str]) -> RunConfig:
    composed = compose(spec, words)
    return load_config(composed.tree, composed.sources)


def _small_size(algorithm: str) -> list[str]:
    """The name of the algorithm's smallest size, if it has sizes."""
    for name in SMALL_SIZES:
        if f"size/{name}" not in preset_names():
            continue
        try:
            preset_for(name, find_presets(name), algorithm)
        except ConfigError:
            continue
        return [name]
    return []


def _env_words(config: RunConfig) -> Iterator[str]:
    env = config.env
    yield f"env.num_envs={min(env.num_envs, 2)}"
    yield "evaluate.num_envs=1"
    if env.vector == "auto":
        yield "env.vector=sync"
    limit = env.max_episode_steps or (None if is_dotted(env.id) else find_spec(env.id).max_episode_steps)
    if limit is None or limit > EPISODE_STEPS:
        yield f"env.max_episode_steps={EPISODE_STEPS}"


def _algorithm_words(config: RunConfig) -> Iterator[str]:
    if getattr(config.algorithm, "epochs", 1) > 1:
        yield "algorithm.epochs=1"


def _phase_words(phase: Phase, num_phases: int, steps: int) -> list[str]:
    words = [word for hook in phase.hooks for word in _hook_words(f"phases.{phase.name}.{hook.name}", hook)]
    share = max(1, steps // (2 * num_phases))
    is_long = phase.duration_steps is not None and phase.duration_steps > share
    return [*words, f"phases.{phase.name}.duration_steps={share}"] if is_long else words


def _hook_words(key: str, hook: Hook) -> Iterator[str]:
    if hook.rows is not None and hook.rows > MOST_ROWS:
        yield f"{key}.rows={MOST_ROWS}"
    if hook.train_ratio is not None and hook.train_ratio > 1:
        yield f"{key}.train_ratio=1"
    if hook.updates is not None and hook.updates > 1:
        yield f"{key}.updates=1"
    if hook.name == "evaluate":
        yield f"{key}.episodes=1"
