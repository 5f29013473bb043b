"""Videos on demand: who plays what, and into which file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reverie.core.counters import Counters
from reverie.core.wording import count
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_specs
from reverie.log.video import ENDINGS, is_installed, open_video
from reverie.log.video_frames import VideoError
from reverie.runs.policies import load_any_policy
from reverie.runs.watch import Actor, PolicyActor, RandomActor, Scene, Take, film

MOST_FRAMES = {".mp4": 20_000, ".gif": 600}
"""Where a video ends unless told otherwise: GIFs become large, and their frames wait in memory."""


@dataclass(frozen=True)
class Recording:
    """A video file and the episodes in it."""

    path: Path
    takes: tuple[Take, ...]

    @property
    def returns(self) -> list[float]:
        return [take.total for take in self.takes]

    @property
    def is_cut(self) -> bool:
        """Whether an episode went on after the video's last frame."""
        return any(take.is_cut for take in self.takes)


@dataclass(frozen=True)
class Cast:
    """Who plays which env, and what to call it."""

    actor: Actor
    env: EnvConfig
    seed: int
    title: str

    @classmethod
    def of_run(cls, run: Path, which: str = "best", seed: int | None = None, sample: bool | None = None) -> Cast:
        """A trained policy; without a seed it plays its run's evaluations, and draws actions if they do."""
        policy, about = load_any_policy(run, which)
        seed = int(about["seed"]) if seed is None else seed
        sample = bool(about["evaluate"]["sample"]) if sample is None else sample
        actor = PolicyActor(policy, seed, Counters.saved_in(about).clock(), sample)
        env = EnvConfig.model_validate(about["env"])
        return cls(actor, env, seed, f"{env.id} after {count(about['env_steps'], 'step')}")

    @classmethod
    def of_chance(cls, env: EnvConfig, seed: int | None = None) -> Cast:
        seed = seed or 0
        return cls(RandomActor(make_specs(env), seed), env, seed, f"{env.id}, random play")

    def scene(self, episodes: int | None, fps: float | None, max_frames: int) -> Scene:
        return Scene(self.env, self.seed, self.title, episodes, max_frames, fps)


def choose_path(folder: Path, name: str, out: Path | None, gif: bool) -> Path:
    """Where a video goes: as told, or into ``folder`` as mp4 if that can be written here and as gif otherwise."""
    if out is not None:
        if gif and out.suffix != ".gif":
            raise VideoError(f"--gif writes a GIF, but '{out}' does not end with .gif.", "Leave one of the two out.")
        if out.suffix not in ENDINGS:
            raise VideoError(f"'{out}' names no kind of video.", f"Let it end with {' or '.join(ENDINGS)}.")
        return out
    return folder / f"{name}.{'mp4' if is_installed() and not gif else 'gif'}"


def record_file(
    cast: Cast, path: Path, episodes: int, fps: float | None = None, max_frames: int | None = None
) -> Recording:
    """Play and write the episodes, one after the other, into one file."""
    max_frames = max_frames or MOST_FRAMES[path.suffix]
    takes = film(cast.actor, cast.scene(episodes, fps, max_frames), lambda speed: open_video(path, speed))
    return Recording(path, tuple(takes))
