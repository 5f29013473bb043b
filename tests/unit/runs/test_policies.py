"""The policies that a run keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from reverie.agent import Agent
from reverie.backend import Backend
from reverie.config.files import config_to_yaml
from reverie.config.schema import RunConfig
from reverie.core.counters import Counters
from reverie.core.errors import ReverieError, RunError
from reverie.envs.episode import make_action_map
from reverie.envs.make import make_env
from reverie.policy import Policy
from reverie.runs.datasets import EpisodeRecorder
from reverie.runs.evaluate import evaluate_policy
from reverie.runs.policies import PolicyShelf, load_policy, policy_folder
from reverie.runs.record import Cast
from reverie.store.run_folder import RunFolder, create_run
from reverie.training.session import Session
from tests.sessions import checking_config, finished, started

LEARN: dict[str, Any] = {"hooks": [{"collect": {"rows": 24}}, {"update": {}}], "duration_cycles": 2}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path, "Reverie/Counting-v0:checking", 1, "", [])


@pytest.fixture
def session() -> Any:
    with finished(checking_config(LEARN)) as run:
        yield run.session


def evaluate(shelf: PolicyShelf, session: Session, steps: int, score: float, updates: int | None = None) -> None:
    session.counters.env_steps = steps
    session.counters.updates = session.counters.updates if updates is None else updates
    shelf.end_evaluation(session, {"return_mean": score})


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in (folder.path / "policies").iterdir())


def test_a_policy_that_is_no_worse_replaces_the_best(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    for steps, score in [(10, -5.0), (20, -7.0), (30, -5.0), (40, 1.0), (50, 0.0)]:
        evaluate(shelf, session, steps, score)
    assert names(folder) == ["best-10", "best-30", "best-40"]
    assert folder.status() == {"state": "created", "best_score": 1.0, "best_policy": "best-40"}
    assert policy_folder(folder.path, "best").name == "best-40"


def test_former_best_policies_go_unless_a_checkpoint_needs_them(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    for steps in (10, 20, 30):
        evaluate(shelf, session, steps, steps)
    shelf.save(session, "final")
    shelf.tidy({"best-20", "None"})
    assert names(folder) == ["best-20", "best-30", "final"]


def test_a_policy_that_could_not_be_saved_is_not_the_best(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 10, 5.0)
    with mock.patch("reverie.policy.write_tree", fail), pytest.raises(OSError, match="full"):
        evaluate(shelf, session, 20, 9.0)
    assert shelf.state() == {"best_score": 5.0, "best_name": "best-10"}
    evaluate(shelf, session, 30, 7.0)
    assert folder.status()["best_policy"] == "best-30"


def fail(*arguments: Any) -> None:
    raise OSError("the disk is full")


def test_a_failed_save_leaves_the_former_policy(tmp_path: Path, session: Session) -> None:
    session.policy.save(tmp_path / "bundle", {"env_steps": 1})
    with mock.patch("reverie.policy.write_tree", fail), pytest.raises(OSError, match="full"):
        session.policy.save(tmp_path / "bundle", {"env_steps": 2})
    assert Policy.load(tmp_path / "bundle")[1] == {"env_steps": 1}
    session.policy.save(tmp_path / "bundle", {"env_steps": 3})
    assert Policy.load(tmp_path / "bundle")[1] == {"env_steps": 3}
    assert [path.name for path in tmp_path.glob("*bundle*")] == ["bundle"]


@pytest.mark.parametrize("name", ["policy.json", "digests.json"])
@pytest.mark.parametrize("spoil", [lambda p: p.write_text(p.read_text().replace("1", "2", 1)), Path.unlink])
def test_a_damaged_bundle_is_told(tmp_path: Path, session: Session, name: str, spoil: Any) -> None:
    session.policy.save(tmp_path / "bundle", {"env_steps": 1})
    (tmp_path / "bundle" / "digests.json").write_text((tmp_path / "bundle" / "digests.json").read_text() + " ")
    Policy.load(tmp_path / "bundle")
    path = tmp_path / "bundle" / name
    before = path.read_text()
    spoil(path)
    assert not path.exists() or path.read_text() != before
    with pytest.raises(RunError, match=r"is damaged|is missing"):
        Policy.load(tmp_path / "bundle")


def test_of_two_policies_the_whole_one_is_named(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    shelf.save(session, "final")
    (folder.path / "policies" / "final" / "policy.json").write_text("{")
    with pytest.raises(RunError) as alone:
        load_policy(folder.path, "final")
    assert "--policy" not in str(alone.value)
    evaluate(shelf, session, 10, 5.0)
    with pytest.raises(RunError, match=r"damaged(.|\n)*--policy best"):
        load_policy(folder.path, "final")


def test_what_a_crash_left_is_deleted(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    shelf.save(session, "final")
    (folder.path / "policies" / ".best-5.new").mkdir()
    shelf.tidy(set())
    assert names(folder) == ["final"]


def test_a_restored_shelf_knows_the_best_so_far(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 10, 5.0)
    saved = shelf.state()
    evaluate(shelf, session, 20, 9.0)
    shelf.end_cycle(session)

    restored = PolicyShelf(folder)
    restored.load_state(saved)
    assert folder.status()["best_policy"] == "best-10"
    evaluate(restored, session, 30, 4.0)
    assert folder.status()["best_score"] == 5.0


@pytest.mark.parametrize(
    ("where", "score", "kept"), [(20, 9.0, "best-20"), (30, 9.0, "best-20"), (20, 4.0, "best-10"), (15, 9.0, "best-10")]
)
def test_the_best_of_the_evaluation_that_ended_a_run_outlives_going_on(
    folder: RunFolder, session: Session, where: int, score: float, kept: str
) -> None:
    """The last checkpoint was made before that evaluation. What was found at later steps will be found again, and
    checkpoints know nothing of it: they are those of a run that never ended."""
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 10, 5.0)
    saved = shelf.state()
    evaluate(shelf, session, 20, score)

    restored = PolicyShelf(folder)
    restored.load_state(saved, (where, session.counters.updates))
    restored.tidy(set())
    assert folder.status()["best_policy"] == kept
    assert kept in names(folder)
    assert restored.state() == saved
    evaluate(restored, session, 40, 8.0)
    restored.tidy(set())
    best = "best-20" if kept == "best-20" else "best-40"
    assert folder.status()["best_policy"] == best
    assert names(folder) == sorted({best, "best-40"})


def test_of_equal_scores_the_latest_stays_the_best_when_a_run_goes_on(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 10, 5.0)
    saved = shelf.state()
    evaluate(shelf, session, 20, 5.0)
    assert folder.status()["best_policy"] == "best-20"
    restored = PolicyShelf(folder)
    restored.load_state(saved, (20, session.counters.updates))
    assert restored.best == (5.0, "best-20")
    assert folder.status()["best_policy"] == "best-20"
    evaluate(restored, session, 30, 5.0)
    assert folder.status()["best_policy"] == "best-30"


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_no_number_is_not_the_best(folder: RunFolder, session: Session, score: float) -> None:
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 10, score)
    assert shelf.best == (None, None)
    evaluate(shelf, session, 20, -5.0)
    evaluate(shelf, session, 30, score)
    assert folder.status()["best_policy"] == "best-20"
    restored = PolicyShelf(folder)
    restored.load_state({"best_score": score, "best_name": "best-10"})  # as saved when such scores counted
    evaluate(restored, session, 40, -7.0)
    assert folder.status()["best_policy"] == "best-40"


def test_best_policies_of_a_run_without_env_steps_do_not_replace_each_other(
    folder: RunFolder, session: Session
) -> None:
    """A checkpoint at update 10 needs the best policy of then."""
    shelf = PolicyShelf(folder)
    evaluate(shelf, session, 0, 1.0, updates=10)
    saved = shelf.state()
    evaluate(shelf, session, 0, 2.0, updates=20)
    assert names(folder) == ["best-0", "best-0-20"]
    assert policy_folder(folder.path).name == "best-0-20"
    restored = PolicyShelf(folder)
    restored.load_state(saved, (0, 10))
    assert restored.best == (1.0, "best-0")
    assert load_policy(folder.path)[1]["updates"] == 10


@pytest.mark.parametrize(("place", "is_kept"), [((20, 9), True), ((20, 8), False), ((10, 9), False), ((30, 0), True)])
def test_the_final_policy_goes_if_the_run_goes_on_from_before_it(
    folder: RunFolder, session: Session, place: tuple[int, int], is_kept: bool
) -> None:
    shelf = PolicyShelf(folder)
    shelf.drop_final_after(place)  # nothing there yet
    session.counters.env_steps, session.counters.updates = 20, 9
    shelf.save(session, "final")
    shelf.drop_final_after(place)
    assert names(folder) == (["final"] if is_kept else [])


def test_a_best_policy_that_is_gone_is_not_taken_up_again(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    saved = shelf.state()
    evaluate(shelf, session, 20, 9.0)
    (folder.path / "policies" / "best-20" / "policy.json").unlink()
    shelf.load_state(saved, (20, session.counters.updates))
    assert folder.status()["best_policy"] is None


def test_whichever_policy_there_is_is_found(folder: RunFolder, session: Session) -> None:
    with pytest.raises(RunError, match=rf"has no policy yet(.|\n)*reverie resume {folder.name}") as caught:
        policy_folder(folder.path)
    assert "--policy" not in caught.value.fix  # there is no checkpoint either
    shelf = PolicyShelf(folder)
    shelf.save(session, "final")
    assert policy_folder(folder.path, "best").name == "final"
    evaluate(shelf, session, 10, 5.0)
    assert policy_folder(folder.path, "best").name == "best-10"
    assert policy_folder(folder.path, "final").name == "final"
    with pytest.raises(RunError, match="not 'middle'"):
        policy_folder(folder.path, "middle")


def test_policies_are_found_without_a_status_that_can_be_read(folder: RunFolder, session: Session) -> None:
    shelf = PolicyShelf(folder)
    for steps in (90, 100):
        evaluate(shelf, session, steps, 5.0)
    (folder.path / "status.json").write_text("{")
    assert policy_folder(folder.path, "best").name == "best-100"
    with pytest.raises(RunError, match=rf"status\.json cannot be read.*\n.*reverie resume {folder.name}"):
        folder.status()


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp", ".", 5, ["best-1"]])
def test_a_policy_lies_inside_of_its_run(folder: RunFolder, session: Session, name: Any) -> None:
    session.policy.save(folder.path / "elsewhere", {})
    folder.write_status(best_policy=name)
    with pytest.raises(RunError, match="has no policy yet"):
        policy_folder(folder.path)


def test_a_bundle_comes_back_with_what_acting_needs(tmp_path: Path, session: Session) -> None:
    session.policy.save(tmp_path / "bundle", {"env_steps": 7})
    policy, about = Policy.load(tmp_path / "bundle")
    assert about == {"env_steps": 7}
    assert policy.specs == session.policy.specs
    assert policy.algorithm.policy_state() == session.algorithm.policy_state() != {"acts": 0}
    assert policy.algorithm.config == session.algorithm.config


def test_the_normaliser_is_part_of_the_bundle(tmp_path: Path) -> None:
    collect: dict[str, Any] = {"hooks": [{"collect": {"rows": 12}}], "duration_cycles": 2}
    with started(checking_config(collect, normaliser={"reward": True})) as run:
        run.orchestrator.run()
        policy = run.session.policy
        policy.save(tmp_path / "bundle", {})
        found, _ = Policy.load(tmp_path / "bundle")
        rewards = run.session.collector.now["reward"] + 1
        assert found.normaliser.config == policy.normaliser.config
        assert (
            found.normaliser.normalise_reward(rewards).tolist() == policy.normaliser.normalise_reward(rewards).tolist()
        )
        assert found.normaliser.normalise_reward(rewards).tolist() != rewards.tolist()


def test_an_agent_follows_one_episode_after_the_other(session: Session) -> None:
    """The checking agent complains if it is not told what came first and what was done before."""
    env = make_env(session.config.env)
    agent = Agent(
        session.policy, {}, env.observation_space, make_action_map(session.policy.specs.action, env.action_space)
    )
    for episode in range(4):
        observation, _ = env.reset(seed=episode)
        agent.reset()
        ended = False
        while not ended:
            observation, _, ended, _, _ = env.step(agent.act(observation))
    with pytest.raises(ReverieError, match="of 1 env, but got 3 observations"):
        agent.act(np.stack([observation] * 3))
    with pytest.raises(AssertionError, match="another number of rows"):
        agent.act(env.reset(seed=5)[0])  # without a reset of the agent


def test_a_bundle_of_another_format_is_refused(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.policy.BUNDLE_VERSION", 99)
    session.policy.save(tmp_path / "bundle", {})
    monkeypatch.undo()
    with pytest.raises(RunError, match="format 99"):
        Policy.load(tmp_path / "bundle")


def test_a_policy_keeps_the_counters_of_its_moment(folder: RunFolder, session: Session) -> None:
    PolicyShelf(folder).save(session, "final")
    _, about = load_policy(folder.path, "final")
    assert Counters.saved_in(about) == session.counters
    assert session.counters.cycles == 2


def test_a_policy_without_counters_takes_the_horizon_of_its_run(folder: RunFolder, session: Session) -> None:
    """As older versions wrote it: env steps alone. A config that cannot be read leaves the rest at 0."""
    about = {"env": session.config.env.model_dump(mode="json"), "seed": 1, "env_steps": 70, "score": None}
    session.policy.save(folder.path / "policies" / "final", about)
    _, loaded = load_policy(folder.path)
    assert Counters.saved_in(loaded) == Counters(env_steps=70)
    folder.config_path.write_text(config_to_yaml(session.config.model_copy(update={"horizon_steps": 900})))
    _, loaded = load_policy(folder.path)
    assert Counters.saved_in(loaded) == Counters(env_steps=70, horizon_steps=900)


def with_backend(config: RunConfig, **changed: Any) -> RunConfig:
    return config.model_copy(update={"backend": config.backend.model_copy(update=changed)})


def test_a_policy_computes_as_its_run_did(folder: RunFolder, session: Session) -> None:
    session.config = with_backend(session.config, engine="torch", precision="bfloat16", threads=2)
    PolicyShelf(folder).save(session, "final")
    folder.config_path.write_text(config_to_yaml(with_backend(session.config, precision="float32")))
    before = torch.get_num_threads()
    try:
        policy, _ = load_policy(folder.path, "final")
        assert policy.backend == policy.copy().backend == Backend(engine="torch", precision="bfloat16")
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        policy, _ = load_policy(folder.path, "final", session.policy.backend)
        assert policy.backend is session.policy.backend
        assert torch.get_num_threads() == 1  # within a run the process stays as it is
    finally:
        torch.set_num_threads(before)


def test_a_policy_of_before_takes_the_backend_of_its_run(folder: RunFolder, session: Session) -> None:
    about = {"env": session.config.env.model_dump(mode="json"), "seed": 1, "env_steps": 70, "score": None}
    session.policy.save(folder.path / "policies" / "final", about)
    assert load_policy(folder.path)[0].backend == Backend()  # config.yaml cannot be read
    folder.config_path.write_text(config_to_yaml(with_backend(session.config, engine="torch")))
    assert load_policy(folder.path)[0].backend == Backend(engine="torch")


def test_a_machine_without_the_device_of_the_run_computes_on_the_cpu(
    folder: RunFolder, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.config = with_backend(session.config, device="cuda:77", engine="torch", precision="bfloat16")
    PolicyShelf(folder).save(session, "final")
    assert load_policy(folder.path)[0].backend == Backend(engine="torch")
    printed = capsys.readouterr().err
    assert (
        printed == "Note: backend.device 'cuda:77' is not available here. The policy computes on the CPU in float32.\n"
    )


def test_a_policy_is_played_with_its_own_settings(folder: RunFolder, session: Session) -> None:
    """An edit of config.yaml after the policy was saved changes no way of playing it."""
    PolicyShelf(folder).save(session, "final")
    edited = {
        "env": session.config.env.model_copy(update={"kwargs": {"length": 99}}), "seed": 77, "horizon_steps": 9,
        "evaluate": session.config.evaluate.model_copy(update={"num_envs": 13, "sample": True}),
    }  # fmt: skip
    folder.config_path.write_text(config_to_yaml(session.config.model_copy(update=edited)))
    policy, about = load_policy(folder.path, "final")
    own = session.config
    assert (about["env"], about["seed"]) == (own.env.model_dump(mode="json"), own.seed)
    assert (about["evaluate"], about["horizon_steps"]) == (own.evaluate.model_dump(mode="json"), own.horizon_steps)
    evaluated = evaluate_policy(policy, about, 3)
    assert (evaluated["seed"], evaluated["sample"]) == (own.seed, own.evaluate.sample)
    cast = Cast.of_run(folder.path, "final")
    assert (cast.env, cast.seed) == (own.env, own.seed)
    assert EpisodeRecorder.of_run(folder.path, "final", sample=False).env == own.env
