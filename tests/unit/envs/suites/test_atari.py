"""Atari: names of games, forms of observation, preprocessing, lives, and snapshots with the emulator's generator."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reverie.api import make_config
from reverie.core.errors import ConfigError
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.envs.accelerators import find_accelerator
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs, make_vector
from reverie.envs.snapshot import probe_snapshot
from reverie.envs.snapshot_cache import SnapshotVerdict
from reverie.envs.wrappers.atari_start import AtariStart

pytestmark = pytest.mark.needs("atari")
STICKY = {"repeat_action_probability": 0.25}


def game(env_id: str = "ALE/Pong-v5", obs: str = "gray", **settings: Any) -> EnvConfig:
    return EnvConfig.model_validate({"id": env_id, "obs": obs, "kwargs": STICKY, **settings})


def prepared(env_id: str = "ALE/Pong-v5", obs: str = "gray", **settings: Any) -> EnvConfig:
    return game(env_id, obs, wrappers=[{"kind": "atari", **settings}])


def check_same(one: Row, other: Row) -> None:
    for key in one:
        assert one[key].tobytes() == other[key].tobytes(), key


def test_the_short_name_is_the_same_game() -> None:
    short, long = (make_env(prepared(env_id)) for env_id in ("atari/space_invaders", "ALE/SpaceInvaders-v5"))
    np.testing.assert_array_equal(short.reset(seed=1)[0], long.reset(seed=1)[0])
    for _ in range(20):
        np.testing.assert_array_equal(short.step(1)[0], long.step(1)[0])


@pytest.mark.parametrize(
    ("env_id", "near"), [("atari/pogn", "pong"), ("ALE/Braekout-v5", "breakout"), ("atari/Pong", "pong")]
)
def test_an_unknown_game_is_answered_with_a_near_one(env_id: str, near: str) -> None:
    with pytest.raises(ConfigError, match="no Atari game called") as caught:
        make_env(EnvConfig(id=env_id))
    assert f"'{near}'" in caught.value.fix


@pytest.mark.parametrize(
    ("obs", "shape", "kind"),
    [("gray", (84, 84, 1), "image"), ("rgb", (84, 84, 3), "image"), ("ram", (128,), "vector")],
)
def test_forms_of_the_observation(obs: str, shape: tuple[int, ...], kind: str) -> None:
    specs = make_specs(prepared(obs=obs))
    assert (specs.observations["obs"].shape, specs.observations["obs"].kind) == (shape, kind)
    assert (specs.action.classes, specs.max_episode_steps) == ((6,), 27_000)
    env = make_env(prepared(obs=obs))
    assert env.observation_space.contains(env.reset(seed=0)[0])
    assert env.observation_space.contains(env.step(0)[0])


@pytest.mark.parametrize("frameskip", [4, (2, 5)])
def test_resets_from_a_saved_state_start_the_games_of_ale_py(frameskip: Any) -> None:
    env = make_env(game("ALE/Breakout-v5", kwargs={**STICKY, "frameskip": frameskip}))
    raw: Any = gym.make("ALE/Breakout-v5", obs_type="grayscale", **STICKY, frameskip=frameskip).unwrapped
    starts = [found for found in wrappers_of(env) if isinstance(found, AtariStart)]
    assert [found.is_fast for found in starts] == [True]
    for seed in (1, 2, 7):
        one, other = env.reset(seed=seed), raw.reset(seed=seed)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1] == other[1]
        for action in make_generator("games").integers(0, 4, 100).tolist():
            one, other = env.step(action), raw.step(action)
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1:] == other[1:]


def wrappers_of(env: Any) -> list[Any]:
    return [env, *wrappers_of(env.env)] if isinstance(env, gym.Wrapper) else []


def test_an_observation_is_the_maximum_of_the_last_two_of_four_frames() -> None:
    kwargs = {"frameskip": 1, "repeat_action_probability": 0.0}
    single = make_env(game(kwargs=kwargs))
    env = make_env(
        game(kwargs={**kwargs, "frameskip": 4}, wrappers=[{"kind": "atari", "height": 210, "width": 160, "noops": 0}])
    )
    single.reset(seed=1)
    env.reset(seed=1)
    differing = 0
    for action in make_generator("atari").integers(0, 6, 150).tolist():
        frames = [single.step(action) for _ in range(4)]
        observation, reward, *_, info = env.step(action)
        np.testing.assert_array_equal(observation[..., 0], np.maximum(frames[2][0], frames[3][0]))
        assert reward == sum(frame[1] for frame in frames)
        assert info["episode_frame_number"] == frames[-1][-1]["episode_frame_number"]
        differing += bool((frames[2][0] != frames[3][0]).any())
    assert differing > 10  # otherwise the maximum is not tested


def test_games_start_after_a_random_number_of_frames_that_the_seed_decides() -> None:
    env = make_env(prepared(noops=30))
    starts = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(20)]
    assert starts == [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(20)]
    assert len(set(starts)) > 5
    assert 1 <= min(starts) <= max(starts) <= 30
    assert make_env(prepared(noops=0)).reset(seed=1)[1]["episode_frame_number"] == 0
    assert make_env(prepared("ALE/Breakout-v5", noops=0, fire=True)).reset(seed=1)[1]["episode_frame_number"] == 1


def test_a_saved_state_knows_the_action_that_a_sticky_one_repeats() -> None:
    """With half of all actions sticky, a state without it goes wrong in every other try."""
    config = prepared("ALE/Breakout-v5").model_copy(update={"kwargs": {"repeat_action_probability": 0.5}})
    for seed in range(6):
        env, restored = make_env(config), make_env(config)
        chain, other = find_accelerator(env), find_accelerator(restored)
        assert chain is not None
        assert other is not None
        for made in (env, restored):
            made.reset(seed=seed)
        for action in (1, 2, 3, 2):
            env.step(action)
        other.load(chain.save())
        for action in (3, 2, 3):
            np.testing.assert_array_equal(env.step(action)[0], restored.step(action)[0])


def lives_of_episodes(**settings: Any) -> list[list[int]]:
    """The lives at the steps of each episode of a random Breakout player."""
    env = make_env(prepared("ALE/Breakout-v5", **settings))
    rng, found = make_generator("lives"), []
    for seed in range(8):
        lives, is_over = [env.reset(seed=seed)[1]["lives"]], False
        while not is_over:
            *_, terminated, truncated, info = env.step(int(rng.integers(4)))
            lives.append(info["lives"])
            is_over = terminated or truncated
        found.append(lives)
    return found


def test_a_lost_life_ends_the_episode_and_the_next_one_continues_the_game() -> None:
    episodes = lives_of_episodes(life_loss=True)
    assert [(lives[0], lives[-1]) for lives in episodes[:6]] == [(5, 4), (4, 3), (3, 2), (2, 1), (1, 0), (5, 4)]
    assert all(lives[-2] == lives[0] for lives in episodes)


def test_without_it_an_episode_is_a_whole_game() -> None:
    assert {(lives[0], lives[-1]) for lives in lives_of_episodes()} == {(5, 0)}


@pytest.mark.parametrize("life_loss", [False, True])
def test_snapshots_are_exact(life_loss: bool) -> None:
    verdict = probe_snapshot(prepared("ALE/Breakout-v5", life_loss=life_loss, fire=True))
    assert verdict == SnapshotVerdict("exact", "", "replay+state")


@pytest.mark.parametrize("kind", ["sync", "process"])
@pytest.mark.parametrize("moment", [70, 131])
def test_vectors_continue_bit_for_bit_in_the_middle_of_a_game(kind: str, moment: int) -> None:
    """With sticky actions, whose generator is in the emulator, and across lost lives."""
    config = prepared("ALE/Breakout-v5", life_loss=True).model_copy(update={"vector": kind, "num_envs": 2})
    saved, restored = make_vector(config, seed=1), make_vector(config, seed=1)
    actions = saved.specs.action.sample(make_generator("vector"), 2 * 300).reshape(300, 2)
    saved.reset()
    for action in actions[:moment]:
        now = saved.step(action)
    restored.load_state(saved.state())
    assert restored.check_restored(now) == 0
    ends = 0
    for action in actions[moment:]:
        row = saved.step(action)
        check_same(row, restored.step(action))
        ends += int(row["terminated"].sum())
    assert ends > 3
    saved.close()
    restored.close()


def test_a_snapshot_that_is_due_for_a_reset_continues_the_game() -> None:
    config = prepared("ALE/Breakout-v5", life_loss=True).model_copy(update={"vector": "sync"})
    saved, restored = make_vector(config, seed=1), make_vector(config, seed=1)
    saved.reset()
    while not (now := saved.step(np.array([1])))["terminated"][0]:
        pass
    restored.load_state(saved.state())
    assert restored.check_restored(now) == 0
    for _ in range(100):
        check_same(saved.step(np.array([1])), restored.step(np.array([1])))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "CartPole-v1", "wrappers": ["atari"]}, "needs an Atari game"),
        ({"id": "CartPole-v1", "wrappers": ["atari_objects"]}, "needs an Atari game"),
        ({"id": "ALE/Pong-v5", "kwargs": {"frameskip": (2, 5)}, "wrappers": ["atari"]}, "fixed frame skip"),
        ({"id": "ALE/Pong-v5", "kwargs": {"sound_obs": True}, "wrappers": ["atari"]}, "no form for sound"),
    ],
)
def test_what_the_wrappers_cannot_do_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(EnvConfig.model_validate(settings))


def test_objects_without_ocatari_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ocatari", None)
    with pytest.raises(ConfigError, match="need OCAtari") as caught:
        make_env(prepared(obs="objects"))
    assert "atari-objects" in caught.value.fix
    assert "pip install --no-deps ocatari" in caught.value.fix


@pytest.mark.needs("atari-objects")
def test_objects_are_boxes_in_fixed_slots() -> None:
    env = make_env(prepared(obs="objects"))
    env.reset(seed=1)
    boxes = [env.step(2)[0].reshape(3, 4) for _ in range(60)]
    player, ball, enemy = np.moveaxis(np.array(boxes), 1, 0)
    assert np.ptp(player[:, 1]) > 0.1  # it moves up and down only
    assert np.ptp(player[:, 0]) == 0
    assert not enemy[0].any()  # absent at first
    assert np.ptp(ball[:, 0]) > 0.1
    np.testing.assert_allclose(player[0, 2:], [4 / 160, 15 / 210], rtol=1e-6)


@pytest.mark.needs("atari-objects")
def test_a_game_whose_objects_are_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not know the objects of 'et'"):
        make_env(prepared("atari/et", obs="objects"))


def test_the_presets_store_single_frames() -> None:
    config: Any = make_config("atari/pong:dqn", [], seed=0)
    assert make_specs(config.env).observations["obs"].shape == (84, 84, 4)
    assert config.buffers["main"].stacked_frames == 4
    assert config.env.kwargs == {"repeat_action_probability": 0.0, "full_action_space": False}


@pytest.mark.parametrize("config", [game(max_episode_steps=5), game(max_episode_steps=5, wrappers=[{"kind": "atari"}])])
def test_a_time_limit_counts_the_steps_of_the_agent_in_every_episode(config: EnvConfig) -> None:
    vector = make_vector(config.model_copy(update={"vector": "sync"}), 0)
    vector.reset()
    ends = [bool(vector.step(np.zeros(1, np.int64))["truncated"][0]) for _ in range(17)]
    assert [step for step, is_end in enumerate(ends, 1) if is_end] == [5, 11, 17]
