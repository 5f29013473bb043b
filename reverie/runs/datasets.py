"""Datasets made from runs: the rows that a run has stored, or new episodes played by its policy or at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reverie.config.pipeline import read_saved
from reverie.config.schema import RunConfig
from reverie.core.counters import Counters
from reverie.core.errors import RunError
from reverie.core.rng import make_generator
from reverie.core.specs import Specs
from reverie.core.types import Clock, Mode, Row, Sealed, is_last
from reverie.core.wording import count
from reverie.data.dataset import Dataset, Tally, write_dataset
from reverie.data.episodes import EpisodeSplitter
from reverie.data.rows import stack_frames
from reverie.data.source import open_source
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.log.progress import progress
from reverie.policy import Policy
from reverie.runs.policies import load_any_policy
from reverie.runs.resume import choose_checkpoint
from reverie.store.checkpoint import Checkpoint
from reverie.store.run_folder import RunFolder
from reverie.training.evaluator import check_time_limit, with_limit
from reverie.training.interaction import Interaction, Player, PolicyPlayer, RandomPlayer

MOST_ENVS = 8
"""Maximum number of envs in the vector that records episodes."""


class StoredRows:
    """The replay buffer of a run, read from its newest intact checkpoint."""

    def __init__(self, run: Path, buffer: str = "main", checkpoint: str | None = None) -> None:
        self.run = run
        prepared = read_saved(run / "config.yaml")
        self.config: RunConfig = prepared.config
        self.buffer = self.config.buffers.get(buffer)
        if self.buffer is None or self.buffer.kind != "replay":
            raise RunError(
                f"The run '{run.name}' has no replay buffer '{buffer}', so there is nothing to export.",
                "Record new episodes of its policy instead: "
                f"reverie data record {RunFolder(run).words} --episodes 100 --out DIR",
            )
        found, _ = choose_checkpoint(RunFolder(run), checkpoint)
        if found is None:
            raise RunError(f"The run '{run.name}' has no checkpoint yet.", "Let it train until it saves one.")
        self.checkpoint: Checkpoint = found
        self._state = found.read(f"buffer_{buffer}")["rows"]
        self.specs = prepared.specs

    @property
    def stacked(self) -> dict[str, int]:
        """Observations that are stored as single frames, and the frames in a stack."""
        frames: int = getattr(self.buffer, "frames", 1)
        stacks = {
            key: frames for key, spec in self.specs.observations.items() if spec.kind != "discrete" and spec.shape
        }
        return stacks if frames > 1 else {}

    def episodes(self) -> Iterator[Row]:
        """All episodes whose first row is still stored, with stacked frames."""
        splitter = EpisodeSplitter(int(self._state["num_envs"]))
        chunks: list[Sealed] = self._state["chunks"]
        for chunk in chunks:
            yield from map(self._stack, splitter.split(self._ordered(chunk.arrays)))
        if self._state["tail"]:
            yield from map(self._stack, splitter.split(self._ordered(self._state["tail"])))
        yield from map(self._stack, splitter.finish())

    def _ordered(self, arrays: Row) -> Row:
        return {key: arrays[key] for key in self._state["keys"]}

    def _stack(self, episode: Row) -> Row:
        first = episode["is_first"][None]
        return episode | {key: stack_frames(episode[key][None], first, n)[0] for key, n in self.stacked.items()}


def export_run(run: Path, out: Path, form: str = "chunks", buffer: str = "main") -> Path:
    """Write the replay buffer of a run as a dataset, in our format or Minari's. Returns its folder."""
    rows = StoredRows(run, buffer)
    origin = f"replay of {run.name} after {count(rows.checkpoint.counters['env_steps'], 'env step')}"
    with progress(f"exporting the replay of {run.name}"):
        return _write(out, form, rows.episodes(), rows.specs, rows.config.env, origin, run.name, rows.stacked)


def export_dataset(dataset: Dataset, out: Path, form: str) -> Path:
    """Convert a dataset of ours to another format."""
    env, name = EnvConfig.model_validate(dataset.env), dataset.folder.absolute().name
    with progress(f"exporting {name}", total=dataset.summary.get("episodes")) as task:
        return _write(
            out, form, task.count(dataset.episodes()), dataset.specs, env, dataset.origin, name, dataset.stacked
        )


@dataclass(frozen=True)
class EpisodeRecorder:
    """Plays whole episodes for a dataset, with a policy or at random."""

    env: EnvConfig
    specs: Specs
    origin: str
    policy: Policy | None = None
    """None: random actions."""
    mode: Mode = Mode.COLLECT
    clock: Clock = field(default_factory=lambda: Counters().clock())

    @classmethod
    def of_run(cls, run: Path, which: str, sample: bool) -> EpisodeRecorder:
        """A trained policy. If it samples, it explores as much as when it was saved."""
        policy, about = load_any_policy(run, which)
        env, steps = EnvConfig.model_validate(about["env"]), int(about["env_steps"])
        mode = Mode.COLLECT if sample else Mode.EVALUATE
        origin = f"policy of {run.name} after {count(steps, 'env step')}"
        return cls(env, policy.specs, origin, policy, mode, Counters.saved_in(about).clock())

    @classmethod
    def of_random_play(cls, env: EnvConfig) -> EpisodeRecorder:
        return cls(env, make_specs(env), f"{env.id}, random play")

    def record(self, episodes: int, seed: int, out: Path) -> Path:
        """Play new episodes and write them as a dataset."""
        with progress(f"recording {self.env.id}", total=episodes) as task:
            played = task.count(self.play(episodes, seed))
            return _write(out, "chunks", played, self.specs, self.env, self.origin, out.name, {})

    def play(self, episodes: int, seed: int) -> Iterator[Row]:
        """Whole episodes in the order in which they end. Env i plays numbers i, i + N, i + 2N ..."""
        check_time_limit(self.env, self.specs)
        count = min(episodes, MOST_ENVS)
        env = self.env if self.specs.max_episode_steps is not None else with_limit(self.env)
        vector = make_vector(env.model_copy(update={"vector": "sync"}), seed, "record", count)
        try:
            yield from _whole_episodes(Interaction(vector, self._player(seed)), episodes)
        finally:
            vector.close()

    def _player(self, seed: int) -> Player:
        rng = make_generator(seed, "record")
        if self.policy is None:
            return RandomPlayer(self.specs, rng)
        return PolicyPlayer.at(self.policy, self.mode, self.clock, rng)


def _whole_episodes(interaction: Interaction, episodes: int) -> Iterator[Row]:
    """Episodes (T, ...) as they end, without the algorithm's extras."""
    count = interaction.vector.num_envs
    left = np.array([len(range(env, episodes, count)) for env in range(count)])
    splitter = EpisodeSplitter(count)
    arriving = interaction.restart()
    while (left > 0).any():
        row = interaction.act()
        stored = {key: row[key] for key in (*arriving, "action") if key != "previous_action"}
        yield from splitter.split({**stored, "valid": left > 0})
        left -= is_last(arriving)
        arriving = interaction.step(row["action"])


def describe(text: str) -> dict[str, Any]:
    """A summary of a dataset. ``text`` names it as a buffer's ``source`` does."""
    source = open_source(text)
    if isinstance(source, Dataset):
        with progress(f"reading {text}", total=len(source.chunks)) as task:
            for name in task.count(source.chunks):
                source.check(name)
        origin, summary = source.origin, source.summary
    else:
        tally = Tally()
        with progress(f"reading {text}"):
            for episode in source.episodes():
                tally.count(episode)
        origin, summary = "Minari", tally.summary()
    specs = source.specs
    columns = {key: f"{spec.dtype} of shape {spec.shape}" for key, spec in specs.observations.items()}
    columns["action"] = f"{specs.action.kind} of shape {specs.action.shape}"
    return {"source": text, "origin": origin, **summary, "columns": columns}


def _write(
    out: Path, form: str, episodes: Iterator[Row], specs: Specs, env: EnvConfig, origin: str, name: str,
    stacked: dict[str, int],
) -> Path:  # fmt: skip
    about: dict[str, Any] = env.model_dump(mode="json")
    if form == "chunks":
        return write_dataset(out, episodes, specs, about, origin, stacked).folder
    from reverie.data.minari_format import minari_name, write_minari

    made = make_env(env)
    try:
        return write_minari(out, minari_name(env.id, name), episodes, made, origin)
    finally:
        made.close()
