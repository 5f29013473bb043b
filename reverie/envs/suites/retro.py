"""Games of old consoles through stable-retro (Nichol et al. 2018). Needs the extra ``retro``.

Ids are ``Retro/<game>``. The package contains one game, ``Retro/Airstriker-Genesis-v0``. The command ``python -m
stable_retro.import <folder>`` imports the roms that you own. A process can run one emulator, so every env gets a worker
process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from reverie.core.errors import ConfigError, nearest
from reverie.core.types import Row
from reverie.envs.config import EnvConfig
from reverie.envs.suite import Suite

_PREFIX = "Retro/"
_FPS = 60
_ACTIONS = {"discrete": "DISCRETE", "multi_discrete": "MULTI_DISCRETE", "filtered": "FILTERED", "all": "ALL"}


def make_emulator(
    game: str, state: str = "", scenario: str = "", actions: str = "discrete", ram: bool = False, data_path: str = "",
    render_mode: str | None = None, **settings: Any,
) -> gym.Env[Any, Any]:  # fmt: skip
    """One emulator. ``actions``: discrete or multi_discrete (sensible combinations of buttons), filtered or all (one
    switch per button). ``data_path``: a folder with integrations of your own. Others are those of stable-retro."""
    import stable_retro as retro

    if actions not in _ACTIONS:
        raise ConfigError(f"stable-retro has no actions '{actions}'.", nearest(actions, _ACTIONS))
    if data_path and str(Path(data_path).resolve()) not in retro.data.Integrations.ALL.paths:
        retro.data.Integrations.add_custom_path(str(Path(data_path).resolve()))
    _check_rom(retro, game)
    try:
        env = retro.RetroEnv(
            game,
            state=state or retro.State.DEFAULT,
            scenario=scenario or None,
            use_restricted_actions=retro.Actions[_ACTIONS[actions]],
            obs_type=retro.Observations.RAM if ram else retro.Observations.IMAGE,
            inttype=retro.data.Integrations.ALL,
            render_mode=render_mode or "rgb_array",
            **settings,
        )
    except RuntimeError as error:
        raise ConfigError(f"{game} cannot be started: {error}.", "Leave env.vector at auto or process.") from error
    env.metadata = {"render_modes": ["rgb_array"], "render_fps": _FPS}
    made: gym.Env[Any, Any] = env
    return made


def _check_rom(retro: Any, game: str) -> None:
    """Refuse games that do not exist and games whose rom is missing."""
    known = retro.data.list_games(inttype=retro.data.Integrations.ALL)
    if game not in known:
        raise ConfigError(f"stable-retro has no game '{game}'.", nearest(game, known))
    if not _has_rom(retro, game):
        raise ConfigError(
            f"The rom of '{game}' is missing. stable-retro contains only that of Airstriker-Genesis-v0.",
            "Import the roms that you own: python -m stable_retro.import <folder with roms>",
        )


def _has_rom(retro: Any, game: str) -> bool:
    try:
        return bool(retro.data.get_romfile_path(game, retro.data.Integrations.ALL))
    except FileNotFoundError:
        return False


class EmulatorState:
    """The emulator. The game's variables are read from its memory again."""

    def save(self, env: Any) -> Row:
        return {"emulator": np.frombuffer(env.em.get_state(), np.uint8).copy()}

    def load(self, env: Any, arrays: Row) -> None:
        env.em.set_state(arrays["emulator"].tobytes())
        env.data.reset()
        env.data.update_ram()


def _with_ram(config: EnvConfig) -> EnvConfig:
    """The memory of the console. Wrappers for images are left out."""
    wrappers = tuple(one for one in config.wrappers if one.kind not in ("resize", "grayscale", "frame_stack"))
    return config.model_copy(update={"kwargs": {**config.kwargs, "ram": True}, "wrappers": wrappers})


def _env_ids() -> list[str]:
    """The games whose roms are there."""
    import stable_retro as retro

    games = retro.data.list_games(inttype=retro.data.Integrations.ALL)
    return [f"{_PREFIX}{game}" for game in games if _has_rom(retro, game)]


def _register(env_id: str) -> None:
    """Without Gymnasium's check, which refuses a name without ``-v0`` before its rom can be asked for."""
    entry_point, game = "reverie.envs.suites.retro:make_emulator", env_id.removeprefix(_PREFIX)
    gym.registry[env_id] = gym.envs.registration.EnvSpec(env_id, entry_point, kwargs={"game": game})


SUITE = Suite(
    name="retro",
    title="stable-retro",
    prefixes=(_PREFIX,),
    example="Retro/Airstriker-Genesis-v0",
    id_forms=("Retro/<game>",),
    env_ids=_env_ids,
    modules=("stable_retro",),
    register=_register,
    extra="retro",
    packages={"stable_retro": "stable-retro"},
    licence="each emulator core has its own, some forbid commercial use",
    one_per_process=True,
    observations={"ram": _with_ram},
    accelerator=lambda env: EmulatorState(),
)
