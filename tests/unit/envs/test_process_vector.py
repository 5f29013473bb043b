"""Worker processes: what happens when they die, and what they need to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import WrapperSpec

from reverie.core.errors import ConfigError, TrainingError
from reverie.core.rng import derive_seed
from reverie.core.signals import STOP_SIGNALS
from reverie.envs import process_vector
from reverie.envs.config import EnvConfig
from reverie.envs.process_vector import ProcessVector
from reverie.envs.suites.reverie.counting import EPISODE, STEP, episode_name, read_counting
from reverie.envs.vector import SyncVector
from reverie.envs.worker import describe_env
from reverie.machine.denormals import are_flushed, flush_denormals

pytestmark = pytest.mark.measure_processes

Make = Callable[..., ProcessVector]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Builds process vectors that are closed when the test ends."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    built: list[ProcessVector] = []

    def build(env_id: str, num_envs: int, workers: int, **settings: Any) -> ProcessVector:
        config = EnvConfig(id=env_id, workers=workers, **settings)
        built.append(ProcessVector(config, 0, "collect", num_envs))
        return built[-1]

    yield build
    for vector in built:
        vector.close()


def _name(place: int, number: int, num_envs: int) -> int:
    return episode_name(derive_seed(0, "collect", place + number * num_envs))


def _zeros(vector: ProcessVector) -> Any:
    return vector.specs.action.zeros(vector.num_envs)


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; waits for it up to ten seconds."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_killed_worker_gives_final_rows_then_the_next_episode(make: Make) -> None:
    vector = make("Reverie/Counting-v0", 3, 2, kwargs={"length": 50}, log_keys=("steps",))
    vector.reset()
    before = [vector.step(_zeros(vector)) for _ in range(4)][-1]
    os.kill(vector.worker_pids[0], signal.SIGKILL)
    row = vector.step(_zeros(vector))
    assert row["truncated"].tolist() == [True, True, False]
    assert not row["terminated"].any()
    assert not row["is_first"].any()
    assert row["reward"].tolist() == [0, 0, 5]
    assert row["log/steps"].tolist() == [0, 0, 5]
    assert row["obs"][:2].tolist() == before["obs"][:2].tolist()
    row = vector.step(_zeros(vector))
    assert row["is_first"].tolist() == [True, True, False]
    numbers = read_counting(row)
    assert numbers[:, EPISODE].tolist() == [_name(0, 1, 3), _name(1, 1, 3), _name(2, 0, 3)]
    assert numbers[:, STEP].tolist() == [0, 0, 6]
    assert vector.crashes == 1


def test_an_env_that_was_due_for_a_reset_gets_it_in_spite_of_a_crash(make: Make) -> None:
    vector = make("Reverie/Counting-v0", 1, 1, kwargs={"length": 2})
    vector.reset()
    vector.step(_zeros(vector))
    assert vector.step(_zeros(vector))["terminated"].all()
    os.kill(vector.worker_pids[0], signal.SIGKILL)
    row = vector.step(_zeros(vector))
    assert row["is_first"].all()
    assert read_counting(row)[0, EPISODE] == _name(0, 1, 1)


def test_the_state_after_a_crash_continues_alike(make: Make) -> None:
    vector = make("Reverie/Counting-v0", 2, 2, kwargs={"length": 9})
    vector.reset()
    vector.step(_zeros(vector))
    os.kill(vector.worker_pids[1], signal.SIGKILL)
    vector.step(_zeros(vector))
    other = make("Reverie/Counting-v0", 2, 1, kwargs={"length": 9})
    other.load_state(vector.state())
    for _ in range(20):
        one, two = vector.step(_zeros(vector)), other.step(_zeros(other))
        assert all(one[key].tobytes() == two[key].tobytes() for key in one)


def test_a_worker_that_dies_before_a_save_does_not_end_the_run(make: Make) -> None:
    """What is saved goes on as the run does: with a final row for each episode under way."""
    vector = make("Reverie/Counting-v0", 2, 2, kwargs={"length": 9})
    vector.reset()
    now = vector.step(_zeros(vector))
    os.kill(vector.worker_pids[1], signal.SIGKILL)
    state = vector.state()
    assert [bool(state[env].get("lost")) for env in ("0", "1")] == [False, True]
    assert vector.crashes == 1
    other = SyncVector(EnvConfig(id="Reverie/Counting-v0", kwargs={"length": 9}), 0, "collect", 2)
    other.load_state(state)
    assert other.check_restored(now) == 1
    for step in range(20):
        one, two = vector.step(_zeros(vector)), other.step(_zeros(vector))
        assert all(one[key].tobytes() == two[key].tobytes() for key in one)
        if step == 0:
            assert one["truncated"].tolist() == [False, True]
            assert one["obs"][1].tolist() == now["obs"][1].tolist()


def test_an_env_that_kills_its_worker_when_it_is_restored_begins_anew(make: Make) -> None:
    vector = make("broken_envs.FailingAt", 1, 1, kwargs={"at": 2, "exits": True})
    row = vector.reset()
    vector.load_state({"0": {"episode": 5, "pending": False, "actions": np.zeros(3, np.int64)}})
    assert vector.check_restored(row) == 1
    assert vector.step(_zeros(vector))["truncated"].all()
    assert vector.step(_zeros(vector))["is_first"].all()
    assert vector.state()["0"]["episode"] == 6


def test_a_restored_vector_repeats_the_right_observation_when_it_crashes(make: Make) -> None:
    vector = make("Reverie/Counting-v0", 1, 1)
    vector.reset()
    row = vector.step(_zeros(vector))
    other = make("Reverie/Counting-v0", 1, 1)
    other.load_state(vector.state())
    os.kill(other.worker_pids[0], signal.SIGKILL)
    assert other.step(_zeros(other))["obs"].tolist() == row["obs"].tolist()


def test_an_env_whose_process_dies_is_restarted_each_time(make: Make) -> None:
    vector = make("broken_envs.FailingAt", 1, 1, kwargs={"at": 3, "exits": True})
    vector.reset()
    rows = [vector.step(_zeros(vector)) for _ in range(8)]
    assert [bool(row["truncated"][0]) for row in rows] == [False, False, True, False, False, False, True, False]
    assert vector.crashes == 2


def test_the_same_exception_twice_in_a_row_stops_the_run(make: Make) -> None:
    """However many steps went well in between: it is a mistake in the env, not bad luck."""
    vector = make("broken_envs.FailingAt", 1, 1, kwargs={"at": 3})
    vector.reset()
    rows = [vector.step(_zeros(vector)) for _ in range(6)]
    assert [bool(row["truncated"][0]) for row in rows] == [False, False, True, False, False, False]
    with pytest.raises(TrainingError, match=r"twice in the same way.*the wheel came off again") as caught:
        vector.step(_zeros(vector))
    assert 'raise RuntimeError("the wheel came off again")' in caught.value.message
    assert "worker.py" not in caught.value.message, "the env's own lines only"
    assert "broken_envs.py, line " in caught.value.fix
    assert vector.crashes == 2


def test_two_exceptions_at_once_are_twice_the_same(make: Make) -> None:
    vector = make("broken_envs.FailingStep", 2, 2)
    vector.reset()
    with pytest.raises(TrainingError, match="the wheel came off"):
        vector.step(_zeros(vector))


def test_too_many_crashes_stop_the_run(make: Make) -> None:
    vector = make("broken_envs.FailingAt", 1, 1, kwargs={"at": 2, "exits": True}, max_crashes=1)
    vector.reset()
    rows = [vector.step(_zeros(vector)) for _ in range(4)]
    assert [bool(row["truncated"][0]) for row in rows] == [False, True, False, False]
    with pytest.raises(TrainingError, match=r"failed 2 times.*exit code 3") as caught:
        vector.step(_zeros(vector))
    assert "env.max_crashes=4" in caught.value.fix


def test_an_env_that_never_works_stops_the_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_vector, "_MAX_CRASHES_IN_A_ROW", 2)
    vector = make("broken_envs.FailingAt", 1, 1, kwargs={"at": 1, "exits": True})
    vector.reset()
    with pytest.raises(TrainingError, match="exit code 3"):
        [vector.step(_zeros(vector)) for _ in range(50)]
    assert vector.crashes == 3


def test_a_failing_reset_is_tried_again_in_a_fresh_worker(make: Make) -> None:
    vector = make("broken_envs.FailingReset", 1, 1)
    vector.reset()
    rows = [vector.step(_zeros(vector)) for _ in range(6)]
    assert rows[4]["terminated"].all()
    assert rows[5]["is_first"].all()
    assert vector.crashes == 1


def test_an_env_that_cannot_be_made_in_a_worker_is_a_config_error(make: Make) -> None:
    with pytest.raises(ConfigError, match="no licence for a second process"):
        make("broken_envs.FailsInWorkers", 1, 1, kwargs={"parent": os.getpid()})


def test_an_env_that_is_registered_only_here_reaches_the_workers(make: Make) -> None:
    gym.register("Here/Sound-v0", "broken_envs:Sound", max_episode_steps=3)
    try:
        vector = make("Here/Sound-v0", 1, 1)
        vector.reset()
        assert [bool(vector.step(_zeros(vector))["truncated"][0]) for _ in range(3)] == [False, False, True]
    finally:
        del gym.registry["Here/Sound-v0"]


def _wrapped(kwargs: dict[str, Any] | None) -> WrapperSpec:
    return WrapperSpec("Tenfold", "broken_envs:Tenfold", kwargs)


@pytest.mark.parametrize("env_id", ["Here/Wrapped-v0", "CartPole-v1"])
def test_wrappers_of_a_registration_reach_the_workers(make: Make, env_id: str) -> None:
    """Also where the script has replaced an id that the worker knows otherwise."""
    before = gym.registry.pop(env_id, None)
    gym.register(env_id, "broken_envs:Sound", max_episode_steps=3, additional_wrappers=(_wrapped({"factor": 10.0}),))
    try:
        vector = make(env_id, 1, 1)
        vector.reset()
        assert vector.step(_zeros(vector))["reward"].tolist() == [10.0]
    finally:
        del gym.registry[env_id]
        if before is not None:
            gym.registry[env_id] = before


def test_a_wrapper_whose_arguments_are_unknown_is_refused_in_workers() -> None:
    gym.register("Here/Wrapped-v0", "broken_envs:Sound", max_episode_steps=3, additional_wrappers=(_wrapped(None),))
    try:
        with pytest.raises(ConfigError, match="Tenfold") as caught:
            describe_env(EnvConfig(id="Here/Wrapped-v0"))
        assert "env.vector=sync" in str(caught.value)
    finally:
        del gym.registry["Here/Wrapped-v0"]


def test_what_workers_cannot_import_or_read_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="has no environment 'NoSuchEnv'"):
        make("__main__.NoSuchEnv", 1, 1)
    gym.register("Here/Local-v0", lambda: gym.make("CartPole-v1"))
    try:
        with pytest.raises(ConfigError, match="another module"):
            make("Here/Local-v0", 1, 1)
    finally:
        del gym.registry["Here/Local-v0"]


def test_close_ends_the_workers_and_can_be_repeated(make: Make) -> None:
    vector = make("CartPole-v1", 2, 2)
    pids = vector.worker_pids
    vector.close()
    vector.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


SCRIPT = """
import sys, time
from reverie.envs.config import EnvConfig
from reverie.envs.process_vector import ProcessVector

vector = ProcessVector(EnvConfig(id="script_env.Sound", workers=2), 0, "collect", 2)
vector.reset()
print(*vector.worker_pids, flush=True)
time.sleep(60)
"""


def _start_script(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A script without a __main__ guard, whose env lies beside it, run from another folder."""
    (folder / "script_env.py").write_text(Path(__file__).with_name("broken_envs.py").read_text())
    (folder / "script.py").write_text(SCRIPT)
    script = subprocess.Popen(
        [sys.executable, str(folder / "script.py")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert script.stdout is not None
    return script, [int(pid) for pid in script.stdout.readline().split()]


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script, pids = _start_script(tmp_path)
    assert len(pids) == 2
    with script:
        script.kill()
    assert all(_is_gone(pid) for pid in pids)


def test_workers_leave_signals_to_their_parent(make: Make) -> None:
    """Terminals, batch systems and supervisors send them to the whole group."""
    vector = make("CartPole-v1", 2, 2)
    vector.reset()
    for pid in vector.worker_pids:
        for number in STOP_SIGNALS:
            os.kill(pid, number)
    assert np.isfinite(vector.step(_zeros(vector))["obs"]).all()
    assert vector.crashes == 0


def test_a_worker_does_not_load_torch() -> None:
    program = "import sys, reverie.envs.worker, reverie.envs.process_vector; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("is_on", [True, False])
def test_workers_flush_denormals_as_the_process_that_started_them(make: Make, is_on: bool) -> None:
    before = are_flushed()
    try:
        flush_denormals(is_on)
        vector = make("broken_envs.Underflow", num_envs=2, workers=1)
        vector.reset()
        reward = vector.step(np.zeros(2, np.int64))["reward"]
        assert bool(reward.view(np.uint32).any()) is not is_on
    finally:
        flush_denormals(before)
