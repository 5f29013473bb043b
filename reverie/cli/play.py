"""``reverie play`` and ``reverie record``: watch an agent or random actions, or play yourself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli import names
from reverie.cli.evaluate import RunName, Sample, Which
from reverie.cli.options import Json, RunsDir, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reverie.envs.config import EnvConfig
    from reverie.runs.record import Cast

WINDOW_EPISODES = 3
Target = Annotated[
    str,
    typer.Argument(
        metavar="RUN|ENV", help="A run, or an env to play yourself.", autocompletion=names.complete_run_or_env
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of the episodes. Default: that of the run's evaluations.")]
Fps = Annotated[float | None, typer.Option(min=0.1, help="Env steps per second. Default: the env's own speed.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write this file, .mp4 or .gif.")]
Gif = Annotated[bool, typer.Option("--gif", help="Write a GIF.")]


def play(
    target: Target = "@last",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE...]", help="Settings of the env, for example env.kwargs.size=5."),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Act at random in the env.")] = False,
    episodes: Annotated[int | None, typer.Option(min=1, help="Number of episodes.")] = None,
    policy: Which = "best",
    sample: Sample = None,
    seed: Seed = None,
    fps: Fps = None,
    out: Out = None,
    gif: Gif = False,
    keys: Annotated[
        str, typer.Option(metavar="a=0,d=1", help="Your own keys, as key=action. none=2 is the action without a key.")
    ] = "",
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
) -> None:
    """Watch an agent in a window, or play an env yourself with the keyboard.

    Without a screen, or with --out or --gif, writes a video file instead. Press q or escape to quit.

    Examples: reverie play @last, reverie play CartPole-v1, reverie play --random CartPole-v1
    """
    from reverie import api
    from reverie.envs.gl import has_screen
    from reverie.runs.record import Cast, choose_path

    env = _find_env(target, overrides or [], random, runs_dir)
    if env is not None and not random:
        _play_by_hand(env, keys, seed or 0, episodes, fps)
        return
    _check_no_keys(keys, overrides if env is None else None)
    run = Path() if env is not None else _find_run(target, runs_dir, trust)
    with api.trusting(trust or env is not None, run):
        if env is not None:
            cast, folder, name = Cast.of_random_play(env, seed), Path(), f"{env.id.replace('/', '-')}-random"
        else:
            cast, folder, name = Cast.of_run(run, policy, seed, sample), run / "videos", f"play-{policy}"
        if has_screen() and out is None and not gif:
            _show(cast, episodes or WINDOW_EPISODES, fps)
        else:
            if out is None and not gif:
                typer.echo("No screen, so a video is written instead.")
            _write(cast, choose_path(folder, name, out, gif), episodes or 1, fps)


def record(
    run: RunName = "@last",
    episodes: Annotated[int, typer.Option(min=1, help="Number of consecutive episodes.")] = 1,
    policy: Which = "best",
    sample: Sample = None,
    seed: Seed = None,
    fps: Fps = None,
    max_frames: Annotated[int | None, typer.Option(min=1, help="Maximum number of frames in the video.")] = None,
    out: Out = None,
    gif: Gif = False,
    runs_dir: RunsDir = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Record episodes of a trained policy as a video, in the run folder or in --out.

    Example: reverie record @last --episodes 3 --gif
    """
    from reverie import api

    done = api.record(run, episodes, policy, out, gif, seed, sample, fps, max_frames, runs_dir, trust, quiet=as_json)
    if as_json:
        typer.echo(json.dumps({"path": str(done.path), "episodes": [take.to_json() for take in done.takes]}))
        return
    _report(done.returns, done.path, done.is_cut)


def _find_env(target: str, overrides: Sequence[str], random: bool, runs_dir: Path) -> EnvConfig | None:
    """The env that the target names, or None if it names a run. An exact env name wins over the start of a run name."""
    import gymnasium as gym

    from reverie.config.catalogue import find_env_config
    from reverie.config.presets import env_names
    from reverie.core.errors import ConfigError, nearest
    from reverie.envs.make import is_dotted
    from reverie.envs.suites import register_suites
    from reverie.store.run_folder import list_runs

    register_suites()
    is_run = target.startswith("@") or (Path(target) / "config.yaml").exists()
    is_env = target in gym.registry or target in env_names() or ":" in target or is_dotted(target)
    if not is_run and (is_env or random):
        return find_env_config(target, overrides)
    runs = [run.name for run in list_runs(runs_dir)]
    if not is_run and not any(name.startswith(target) for name in runs):
        known = {*runs, *env_names(), *gym.registry}
        raise ConfigError(f"'{target}' is neither a run in '{runs_dir}' nor an environment.", nearest(target, known))
    return None


def _find_run(name: str, runs_dir: Path, trust: bool) -> Path:
    from reverie.store.run_folder import find_run, refuse_links

    run = find_run(name, runs_dir)
    if not trust:
        refuse_links(run)
    return run


def _play_by_hand(env: EnvConfig, keys: str, seed: int, episodes: int | None, fps: float | None) -> None:
    from reverie.envs.gl import has_screen
    from reverie.envs.keyboard import choose_keys
    from reverie.envs.make import make_env
    from reverie.log.window import no_screen
    from reverie.runs.human import play_by_hand

    made = make_env(env)
    chosen = choose_keys(made, env.id, keys)
    made.close()
    if not has_screen():
        raise no_screen()
    pace = "waits for your keys" if chosen.waits else "runs in real time"
    typer.echo(f"{env.id}: {pace}. Press q or escape to quit.")
    typer.echo("\n".join(chosen.lines()))
    _report(play_by_hand(env, chosen, seed, episodes, fps))


def _show(cast: Cast, episodes: int, fps: float | None) -> None:
    from reverie.log.window import open_window
    from reverie.runs.watch import show_episodes

    scene = cast.scene(episodes, fps, max_frames=10**9)
    takes = show_episodes(cast.player, scene, lambda speed: open_window(cast.title, speed), quiet=True)
    _report([take.total for take in takes])


def _write(cast: Cast, path: Path, episodes: int, fps: float | None) -> None:
    from reverie.runs.record import record_file

    done = record_file(cast, path, episodes, fps)
    _report(done.returns, done.path, done.is_cut)


def _report(returns: Sequence[float], path: Path | None = None, is_cut: bool = False) -> None:
    from reverie.log.video_frames import as_return

    typer.echo(f"returns: {', '.join(map(as_return, returns)) or 'no episode ended'}")
    if is_cut:
        typer.echo("The video ends before the last episode. For a longer video: reverie record --max-frames NUMBER")
    if path is not None:
        typer.echo(str(path))


def _check_no_keys(keys: str, overrides: Sequence[str] | None) -> None:
    from reverie.core.errors import ConfigError

    if keys:
        raise ConfigError(
            "--keys is only for playing an env yourself.", "Remove --keys, or name an env without --random."
        )
    if overrides:
        raise ConfigError(
            f"A run is played in its own env, which '{overrides[0]}' cannot change.", "Remove the setting."
        )
