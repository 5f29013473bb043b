"""What a start has to know about an env, read from one throw-away copy of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from reverie.core.errors import ConfigError
from reverie.core.specs import Specs, read_specs
from reverie.envs.config import DecidedVector, EnvConfig
from reverie.envs.make import make_env, max_episode_steps_of, resolve_vector
from reverie.envs.render import has_frames
from reverie.envs.trial import PATIENCE_STEPS, TRIAL_STEPS, play_trial


@dataclass(frozen=True)
class EnvFacts:
    """Facts about one env, passed along through a start so that nobody has to make the env again to learn them."""

    config: EnvConfig
    specs: Specs
    can_render: bool
    ends_episodes: bool
    """The env has a time limit, or ended an episode under random actions."""
    vector: DecidedVector
    """``env.vector`` with ``auto`` decided."""

    def require_end(self) -> None:
        """Refuse envs whose episodes may never end: an evaluation would wait for ever."""
        if not self.ends_episodes:
            raise ConfigError(
                "Evaluation plays whole episodes, but this env has no time limit and did not end an episode within "
                f"{PATIENCE_STEPS:,} random steps.",
                "Set a limit, for example env.max_episode_steps=1000.",
            )


def probe_env(config: EnvConfig) -> EnvFacts:
    """Make the env once and take a few random steps. EnvError if it breaks the Gymnasium interface in them."""
    with closing(make_env(config)) as env:
        specs = read_specs(env, max_episode_steps_of(env))
        is_limited = specs.max_episode_steps is not None
        is_over = play_trial(env, config, specs, TRIAL_STEPS if is_limited else PATIENCE_STEPS)
        return EnvFacts(config, specs, has_frames(env), is_limited or is_over, resolve_vector(config, env))
