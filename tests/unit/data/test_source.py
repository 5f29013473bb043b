"""Datasets of ours and of Minari's: rows come back as they were, and fill buffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.errors import ConfigError, RunError
from reverie.core.reads import Window
from reverie.core.rng import make_generator
from reverie.core.types import Row
from reverie.data.dataset import read_dataset, write_dataset
from reverie.data.episodes import EpisodeSplitter
from reverie.data.replay import ReplayBuffer
from reverie.data.source import check_fits, check_holdout, is_held_out, open_source, read_episodes
from reverie.envs.config import EnvConfig
from reverie.envs.make import make_env, make_specs
from reverie.runs.datasets import EpisodeRecorder, describe

ENVS: dict[str, dict[str, Any]] = {
    "vector, discrete": {"id": "CartPole-v1"},
    "vector, continuous": {"id": "Pendulum-v1", "max_episode_steps": 12},
    "dict": {"id": "Reverie/Counting-v0", "kwargs": {"observation": "dict", "varied": True, "length": 6}},
    "discrete": {"id": "FrozenLake-v1"},
    "frames": {"id": "Reverie/Motion-v0", "max_episode_steps": 9, "wrappers": [{"kind": "frame_stack", "frames": 3}]},
}


def make_player(kind: str) -> EpisodeRecorder:
    return EpisodeRecorder.of_random_play(EnvConfig.model_validate(ENVS[kind]))


def episodes_of(kind: str, count: int = 5) -> list[Row]:
    """Random play, with an extra and a logged number."""
    return [
        {**episode, "value": np.sqrt(np.arange(len(episode["reward"]))), "log/x": episode["reward"] * 2}
        for episode in make_player(kind).play(count, 1)
    ]


def assert_same_episodes(found: list[Row], expected: list[Row]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            assert one[key].dtype == other[key].dtype, key
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.mark.parametrize("kind", ENVS)
def test_our_own_files_give_back_every_bit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.data.dataset.CHUNK_ROWS", 16)
    player, episodes = make_player(kind), episodes_of(kind)
    stacked = {"obs": 3} if kind == "frames" else {}
    write_dataset(tmp_path, iter(episodes), player.specs, player.env.model_dump(mode="json"), "test", stacked)
    dataset = read_dataset(tmp_path)
    assert len(dataset.chunks) > 1
    assert_same_episodes(list(dataset.episodes()), episodes)
    assert dataset.summary["rows"] == sum(len(episode["reward"]) for episode in episodes)
    assert dataset.specs.observations == player.specs.observations
    check_fits(open_source(str(tmp_path)), player.specs, "")


@pytest.mark.needs("minari")
@pytest.mark.parametrize("kind", ENVS)
def test_minari_gives_back_every_bit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minari

    from reverie.data.minari_format import minari_name, write_minari

    player, episodes = make_player(kind), episodes_of(kind)
    env, name = make_env(player.env), minari_name(player.env.id, "a run-v0")
    monkeypatch.chdir(tmp_path)
    path = write_minari(Path(), name, iter(episodes), env, "test")
    assert_same_episodes([_ordered(e, episodes[0]) for e in open_source(str(path)).episodes()], episodes)
    check_fits(open_source(str(path)), player.specs, "")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    source = open_source(f"minari:{name}")
    assert len(list(source.episodes())) == source.num_episodes == len(episodes)
    theirs = next(minari.load_dataset(name).iterate_episodes())
    assert len(theirs.rewards) == len(episodes[0]["reward"]) - 1
    assert all(env.action_space.contains(_scalar(action)) for action in theirs.actions)
    assert describe(str(path))["episodes"] == len(episodes)
    with pytest.raises(RunError, match="already"):
        write_minari(tmp_path, name, iter(episodes), env, "test")
    with pytest.raises(RunError, match="no complete episodes"):
        write_minari(tmp_path, "none-v0", iter(()), env, "test")
    assert not (tmp_path / "none-v0").exists()


def _ordered(episode: Row, like: Row) -> Row:
    return {key: episode[key] for key in like}


def _scalar(action: Any) -> Any:
    return int(action) if np.ndim(action) == 0 else action


@pytest.mark.needs("minari")
def test_a_minari_dataset_of_somebody_else(tmp_path: Path) -> None:
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    env = make_env(EnvConfig(id="Pendulum-v1"))
    folder = tmp_path / "data"
    folder.mkdir()
    storage = MinariStorage.new(folder, env.observation_space, env.action_space)
    observations = np.arange(12, dtype=np.float32).reshape(4, 3)
    storage.update_episodes([EpisodeBuffer(
        id=0, observations=observations, actions=np.array([[-2.0], [1.0], [2.0]], np.float32),
        rewards=np.array([1.0, 2.0, 3.0]), terminations=np.zeros(3, bool), truncations=np.zeros(3, bool), infos={},
    )])  # fmt: skip
    storage.update_metadata({"dataset_id": "theirs-v0", "minari_version": minari.__version__})
    (episode,) = open_source(str(tmp_path)).episodes()
    assert episode["action"].tolist() == [[-1.0], [0.5], [1.0], [0.0]]
    assert episode["reward"].tolist() == [0, 1, 2, 3]
    assert episode["truncated"].tolist() == [False, False, False, True]  # nothing ended it, but the data end
    np.testing.assert_array_equal(episode["obs"], observations)
    about = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(about.replace(minari.__version__, "9.9"))
    with pytest.raises(RunError, match="does not support"):
        open_source(str(tmp_path))


@pytest.mark.needs("minari")
def test_minari_is_not_let_to_make_an_env(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"data_format": "hdf5", "env_spec": "{}"}')
    with pytest.raises(RunError, match="spaces"):
        open_source(str(tmp_path))


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not contain a dataset"):
        open_source(str(tmp_path / "nowhere"))
    (tmp_path / "dataset.json").write_text("[]")
    with pytest.raises(RunError, match="cannot be read"):
        open_source(str(tmp_path))
    with pytest.raises(RunError, match="already"):
        write_dataset(tmp_path, [], make_player("discrete").specs, {}, "", {})
    with pytest.raises(RunError, match="no complete episodes"):
        write_dataset(tmp_path / "empty", [], make_player("discrete").specs, {}, "", {})


def test_data_of_another_env_are_refused(tmp_path: Path) -> None:
    player = make_player("vector, discrete")
    player.record(2, 0, tmp_path / "data")
    with pytest.raises(ConfigError, match="'obs' is float32 of shape"):
        list(read_episodes(str(tmp_path / "data"), make_specs(EnvConfig(id="Pendulum-v1")), 0, False))


def make_filled(folder: Path, num_envs: int, **settings: Any) -> tuple[ReplayBuffer, list[Row]]:
    player = make_player("dict")
    player.record(60, 0, folder)
    config = ReplayBuffer.Config(**{"capacity": 1000, "source": str(folder), **settings})
    buffer = ReplayBuffer(config, player.specs, num_envs)
    return buffer, list(buffer.fill())


def stored(buffer: ReplayBuffer) -> list[Row]:
    splitter = EpisodeSplitter(buffer.num_envs)
    return [*splitter.split(buffer.rows.gather(buffer.rows.ids)), *splitter.finish()]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_source_fills_a_buffer_and_keeps_some_episodes_from_it(num_envs: int, tmp_path: Path) -> None:
    buffer, rows = make_filled(tmp_path / "data", num_envs, holdout=0.25)
    assert buffer.holdout is not None
    every = list(read_dataset(tmp_path / "data").episodes())
    kept, held_out = (sorted(e["obs/numbers"].tobytes() for e in stored(b)) for b in (buffer, buffer.holdout))
    wanted: tuple[list[bytes], list[bytes]] = ([], [])
    for number, episode in enumerate(every):
        wanted[is_held_out(number, 0.25)].append(episode["obs/numbers"].tobytes())
    assert (kept, held_out) == (sorted(wanted[0]), sorted(wanted[1]))
    assert 5 <= len(held_out) <= 25
    assert sum(int(row["valid"].sum()) for row in rows) == sum(len(e["reward"]) for e in stored(buffer))
    assert list(buffer.fill()) == []  # once is enough
    copy = ReplayBuffer(buffer.config, buffer.specs, num_envs)
    copy.load_state(buffer.state())
    assert list(copy.fill()) == []
    assert copy.holdout is not None
    batch, other = (b.sample(Window(8, 3), {}, make_generator(1)) for b in (buffer.holdout, copy.holdout))
    np.testing.assert_array_equal(batch["id"], other["id"])


def test_more_data_than_room_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        make_filled(tmp_path / "data", 1, capacity=50)


def test_held_out_episodes_are_about_the_share_asked_for() -> None:
    for share in (0.1, 0.5):
        assert abs(np.mean([is_held_out(number, share) for number in range(4000)]) - share) < 0.03
    assert not any(is_held_out(number, 0) for number in range(100))


@pytest.mark.parametrize(("share", "caught"), [(0.05, 0), (0.99, 4)])
def test_a_share_that_leaves_nothing_on_one_side_is_refused(tmp_path: Path, share: float, caught: int) -> None:
    make_player("dict").record(4, 0, tmp_path / "data")
    source = open_source(str(tmp_path / "data"))
    assert sum(is_held_out(number, share) for number in range(4)) == caught
    with pytest.raises(ConfigError, match=f"{caught} of 4 episodes are held out with buffers.main.holdout") as refused:
        check_holdout(source, share, "buffers.main.holdout")
    proposed = float(refused.value.fix.partition("=")[2].split()[0])
    assert 0 < sum(is_held_out(number, proposed) for number in range(4)) < 4
    check_holdout(source, proposed, "buffers.main.holdout")


def test_one_episode_cannot_be_shared(tmp_path: Path) -> None:
    make_player("dict").record(1, 0, tmp_path / "data")
    with pytest.raises(ConfigError, match="of 1 episodes are held out") as refused:
        check_holdout(open_source(str(tmp_path / "data")), 0.5, "holdout")
    assert refused.value.fix == "Store more episodes."
