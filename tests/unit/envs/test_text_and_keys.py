"""Text observations become tokens, and keys of Dict observations are selected or dropped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reverie import api
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.envs.accelerators import _WRAPPERS
from reverie.envs.check import check_env
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.envs.wrappers.text import TextTokens, has_text

MISSIONS = ("go left", "go right")


class Mission(gym.Env[Any, Any]):
    """The mission says which action earns 1. One step per episode."""

    def __init__(self, render_mode: str | None = None) -> None:
        text = spaces.Text(12, min_length=0, charset="abcdefghijklmnopqrstuvwxyz ")
        noise = spaces.Box(-5, 5, (2,), np.float32)
        self.observation_space = spaces.Dict({"mission": text, "noise": noise})
        self.action_space = spaces.Discrete(2)
        self.wanted = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.wanted = int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), float(action == self.wanted), True, False, {}

    def _observe(self) -> dict[str, Any]:
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"mission": MISSIONS[self.wanted], "noise": noise}


def config(*wrappers: dict[str, Any]) -> EnvConfig:
    return EnvConfig.model_validate({"id": f"{__name__}.Mission", "wrappers": wrappers, "vector": "sync"})


def wrap(env: gym.Env[Any, Any], kind: str, **settings: Any) -> gym.Env[Any, Any]:
    wrapper = registry.load("wrapper", kind)
    wrapped: gym.Env[Any, Any] = wrapper(env, wrapper.Config(**settings))
    return wrapped


def tokens_of(text: str, space: spaces.Space[Any], **settings: Any) -> list[int]:
    wrapper = TextTokens(Mission(), TextTokens.Config(**settings))
    return [int(token) for token in wrapper.change(text, space, "obs")]


def test_text_is_tokens_without_a_setting() -> None:
    spec = make_specs(config()).observations["obs/mission"]
    assert (spec.kind, spec.shape, spec.classes) == ("discrete", (12,), (29,) * 12)
    row = make_vector(config(), seed=0, num_envs=4).reset()
    assert row["obs/mission"].shape == (4, 12)
    assert row["obs/mission"].dtype == np.int64
    env = make_env(config())
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)


def test_tokens_of_characters() -> None:
    space = spaces.Text(4, charset="cab")
    assert tokens_of("cab", space) == [4, 2, 3, 0]  # a, b, c are 2, 3, 4; 0 is padding
    assert tokens_of("ax", space) == [2, 1, 0, 0]  # 1 is unknown
    assert tokens_of("abcabc", space, length=3) == [2, 3, 4]


def test_tokens_of_words() -> None:
    space = spaces.Text(9, charset="abcdefghijklmnopqrstuvwxyz ")
    assert tokens_of("go Left", space, vocabulary=("left", "Go")) == [2, 3, 0, 0, 0]
    assert tokens_of("go away left", space, vocabulary=("left", "go"), length=2) == [2, 1]


def test_texts_of_other_packages_are_texts() -> None:
    class MissionSpace(spaces.Space[str]):
        def __init__(self) -> None:
            super().__init__(dtype=str)

    assert has_text(spaces.Tuple([spaces.Discrete(2), MissionSpace()]))
    assert len(tokens_of("get the ball", MissionSpace())) == 64
    assert not has_text(spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.MultiBinary(3)}))
    assert not has_text(None)


def test_tokens_do_not_depend_on_the_process() -> None:
    """Sets of characters have another order under another hash seed."""
    code = (
        "from gymnasium import spaces; import gymnasium as gym; from reverie.envs.wrappers.text import TextTokens\n"
        "env = gym.Env(); env.observation_space = spaces.Text(30); env.action_space = spaces.Discrete(2)\n"
        "wrapper = TextTokens(env, TextTokens.Config())\n"
        "print(wrapper.change('Fetch42', env.observation_space, 'obs').tolist())"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert outputs[0] == outputs[1] != ""


def test_an_env_with_text_passes_the_check() -> None:
    assert [finding for finding in check_env(config()) if finding.severity == "error"] == []


def test_ppo_learns_what_a_text_says(tmp_path: Path) -> None:
    overrides = {"env.num_envs": 8, "env.vector": "sync", "phases.learn.collect.rows": 256}
    run = api.train(Mission, algorithm="ppo", overrides=overrides, steps=4000, seed=1, runs_dir=tmp_path)
    assert api.evaluate(run, episodes=40, runs_dir=tmp_path)["return_mean"] > 0.9  # guessing earns 0.5


def test_keys_are_selected_and_dropped() -> None:
    selected = wrap(Mission(), "select_keys", keys=("noise",))
    assert list(selected.observation_space.spaces) == list(selected.reset(seed=0)[0]) == ["noise"]  # type: ignore[attr-defined]
    dropped = wrap(Mission(), "drop_keys", keys=("noise",))
    assert list(dropped.observation_space.spaces) == list(dropped.step(0)[0]) == ["mission"]  # type: ignore[attr-defined]
    specs = make_specs(config({"kind": "drop_keys", "keys": ["mission"]}))
    assert set(specs.observations) == {"obs/noise"}


@pytest.mark.parametrize("kind", ["select_keys", "drop_keys"])
def test_wrong_keys_are_explained(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}: the observation has no key 'misson'") as caught:
        wrap(Mission(), kind, keys=("noise", "misson"))
    assert "'mission'" in caught.value.fix
    with pytest.raises(ConfigError, match="needs a Dict observation"):
        wrap(gym.make("CartPole-v1"), kind, keys=("position",))


def test_not_all_keys_can_be_dropped() -> None:
    with pytest.raises(ConfigError, match="every key"):
        wrap(Mission(), "drop_keys", keys=("noise", "mission"))


def test_snapshots_know_these_wrappers() -> None:
    assert {registry.load("wrapper", kind) for kind in ("select_keys", "drop_keys", "text_tokens")} <= set(_WRAPPERS)
