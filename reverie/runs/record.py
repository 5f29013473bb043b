"""Videos on demand: who plays which env, and the file that it is written to."""

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
from reverie.runs.watch import Scene, Take, policy_player, random_player, show_episodes
from reverie.training.interaction import Player

MOST_FRAMES = {".mp4": 20_000, ".gif": 600}
"""Default length of a video. GIFs become large, and their frames are kept in memory until the end."""


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
        """Whether an episode continued after the video's last frame."""
        return any(take.is_cut for take in self.takes)


@dataclass(frozen=True)
class Cast:
    """Who plays which env, under which title."""

    player: Player
    env: EnvConfig
    seed: int
    title: str

    @classmethod
    def of_run(cls, run: Path, which: str = "best", seed: int | None = None, sample: bool | None = None) -> Cast:
        """A trained policy. By default it plays the episodes of its evaluations, and samples actions if they do."""
        policy, about = load_any_policy(run, which)
        seed = int(about["seed"]) if seed is None else seed
        sample = bool(about["evaluate"]["sample"]) if sample is None else sample
        player = policy_player(policy, seed, Counters.saved_in(about).clock(), sample)
        env = EnvConfig.model_validate(about["env"])
        return cls(player, env, seed, f"{env.id} after {count(about['env_steps'], 'step')}")

    @classmethod
    def of_random_play(cls, env: EnvConfig, seed: int | None = None) -> Cast:
        seed = seed or 0
        return cls(random_player(make_specs(env), seed), env, seed, f"{env.id}, random play")

    def scene(self, episodes: int | None, fps: float | None, max_frames: int) -> Scene:
        return Scene(self.env, self.seed, self.title, episodes, max_frames, fps)


def choose_path(folder: Path, name: str, out: Path | None, gif: bool) -> Path:
    """The file of a video: ``out``, or one in ``folder``, as mp4 if that can be written here and else as gif."""
    if out is not None:
        if gif and out.suffix != ".gif":
            raise VideoError(
                f"--gif writes a GIF, but '{out}' does not end with .gif.", "Drop --gif, or name a .gif file."
            )
        if out.suffix not in ENDINGS:
            raise VideoError(f"'{out}' does not end like a video file.", f"Use a name with {' or '.join(ENDINGS)}.")
        return out
    return folder / f"{name}.{'mp4' if is_installed() and not gif else 'gif'}"


def record_file(
    cast: Cast, path: Path, episodes: int, fps: float | None = None, max_frames: int | None = None
) -> Recording:
    """Play the episodes one after the other and write them into one file."""
    max_frames = max_frames or MOST_FRAMES[path.suffix]
    takes = show_episodes(cast.player, cast.scene(episodes, fps, max_frames), lambda speed: open_video(path, speed))
    return Recording(path, tuple(takes))
