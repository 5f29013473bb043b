"""The commands: what they do, print and return."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reverie import api
from reverie.core.errors import ReverieError
from reverie.log.sinks import read_jsonl
from reverie.runs.policies import PolicyShelf
from reverie.store.lock import lock_run
from tests.e2e.conftest import BARE, SMALL, Command, run_in_process
from tests.resume.pieces import assert_equal_runs

STEPS = ("--steps", "600")


def test_train_fills_a_run_folder(reverie: Command, tmp_path: Path) -> None:
    done = reverie("train", *SMALL, *STEPS, "--seed", "4")
    assert done.code == 0
    assert done.out.startswith("CartPole-v1-ppo-s4-1  finished  best ")
    assert "env steps" in done.err
    assert all(len(line) <= 80 for line in (done.out + done.err).splitlines())
    run = tmp_path / "runs" / "CartPole-v1-ppo-s4-1"
    for name in ("config.yaml", "manifest.json", "metrics.jsonl", "scores.jsonl", "machine.jsonl", "status.json"):
        assert (run / name).stat().st_size > 0
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "finished"
    assert 600 <= status["env_steps"] < 664
    assert (run / "policies" / "final" / "policy.json").exists()
    assert (run / "policies" / status["best_policy"] / "policy.json").exists()
    assert "Finished after" in (run / "run.log").read_text()


def test_quiet_prints_only_the_result(reverie: Command) -> None:
    done = reverie("train", *SMALL, *STEPS, "--quiet")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == 1


def test_json_is_one_object(reverie: Command, tmp_path: Path) -> None:
    done = reverie("train", *SMALL, *STEPS, "--seed", "2", "--runs-dir", "elsewhere", "--json")
    result = json.loads(done.out)
    assert result["run"] == "CartPole-v1-ppo-s2-1"
    assert (tmp_path / result["path"]).resolve() == tmp_path / "elsewhere" / result["run"]
    assert result["state"] == "finished"
    assert isinstance(result["best_score"], float)
    assert isinstance(result["final_score"], float)


def test_several_seeds_give_the_same_runs_as_separate_ones(reverie: Command, tmp_path: Path, trained: api.Run) -> None:
    done = reverie("train", *BARE, *STEPS, "--seed", "1,2", "--jobs", "2", "--json")
    assert (done.code, done.err) == (0, "")
    assert [result["run"] for result in json.loads(done.out)] == ["CartPole-v1-ppo-s1-1", "CartPole-v1-ppo-s2-1"]
    first, second = (tmp_path / "runs" / f"CartPole-v1-ppo-s{seed}-1" for seed in (1, 2))
    assert_equal_runs(first, trained.path)
    assert_equal_runs(second, api.train(*BARE, seed=2, steps=600, runs_dir=tmp_path / "alone").path)
    assert (second / "scores.jsonl").read_bytes() != (trained.path / "scores.jsonl").read_bytes()


def test_lines_of_several_seeds_are_prefixed(reverie: Command) -> None:
    done = reverie("train", *BARE, "--steps", "64", "--seed", "1,2", "--jobs", "2")
    lines = done.err.splitlines()
    assert [line for line in lines if " | " not in line] == ["seed 1: started", "seed 2: started"]
    for seed in (1, 2):
        own = [line for line in lines if line.startswith(f"seed {seed} | ")]
        assert any("env steps     updates    return" in line for line in own)
        assert any("Finished after" in line for line in own)
    assert sorted(line.split()[:2] for line in done.out.splitlines()) == [
        [f"CartPole-v1-ppo-s{seed}-1", "finished"] for seed in (1, 2)
    ]


def test_a_signal_stops_all_seeds(tmp_path: Path) -> None:
    words = [*BARE, "checkpoint.every_steps=200", "--steps", "1e8", "--seed", "1,2,3", "--jobs", "2", "--json"]
    command = [sys.executable, "-m", "reverie", "train", *words]
    runs = [tmp_path / "runs" / f"CartPole-v1-ppo-s{seed}-1" for seed in (1, 2)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        while not all((run / "checkpoints" / "latest.json").exists() for run in runs):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    results = json.loads(printed)
    assert [result["state"] for result in results] == ["stopped", "stopped", "not started"]
    assert [result.get("run") for result in results] == [run.name for run in runs] + [None]
    for run in runs:
        with lock_run(run):  # nobody trains it any more
            assert "Stopped and saved" in (run / "run.log").read_text()


def test_failure_after_an_evaluation_repeats_no_line(
    trained: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PolicyShelf.end_evaluation
    failures = iter([OSError("no space left")])

    def fail_once(*arguments: Any) -> None:
        for failure in failures:
            raise failure
        save(*arguments)

    monkeypatch.setattr(PolicyShelf, "end_evaluation", fail_once)
    with pytest.raises((OSError, ReverieError)):
        api.train(*SMALL, "checkpoint.every_steps=100", seed=1, steps=600, runs_dir=tmp_path)
    resumed = api.resume("@last", runs_dir=tmp_path)
    assert resumed.state == "finished"
    assert resumed.metrics() == trained.metrics()


def test_a_seed_that_fails_is_named(reverie: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")  # the config is fine, but no folder can be made here
    done = reverie("train", *BARE, *STEPS, "--seed", "1,2", "--jobs", "2", "--runs-dir", "taken", "--quiet")
    assert done.code == 1
    assert "Seeds 1, 2 did not finish" in done.err
    assert "started" not in done.err  # --quiet


def test_dry_run_trains_nothing(reverie: Command, tmp_path: Path) -> None:
    done = reverie("train", *SMALL, *STEPS, "--seed", "3", "--dry-run")
    assert done.code == 0
    assert "CartPole-v1 with ppo, seed 3" in done.out
    assert "learn (online): 600 env steps, about 10 cycles" in done.out
    plan = json.loads(reverie("train", *SMALL, *STEPS, "--dry-run", "--json").out)
    assert (plan["env_steps"], plan["num_envs"], len(plan["phases"])) == (600, 8, 1)
    assert not (tmp_path / "runs").exists()


def test_budget_rounded_up_to_whole_cycles_is_reported(reverie: Command) -> None:
    text = "about 64 env steps (10 rounded up to whole cycles)"
    words = ("train", *SMALL, "--steps", "10", "preflight.probe=false", "evaluate.final_episodes=0")
    assert text in reverie(*words, "--dry-run").out
    first = " ".join(reverie(*words).err.split())
    assert f"CartPole-v1 with ppo, seed 0, {text}" in first


def test_budget_without_an_update_is_reported(reverie: Command, tmp_path: Path) -> None:
    words = ("train", "CartPole-v1:dqn", "env.vector=sync", "evaluate.final_episodes=0", "--steps", "100")
    warning = "nothing is learnt: if --steps is too small, raise it"
    planned = reverie(*words, "--dry-run")
    assert (planned.code, warning in " ".join(planned.out.split())) == (0, True)
    done = reverie(*words, "preflight.probe=false")
    assert (done.code, warning in " ".join(done.err.split())) == (0, True)
    assert "Nothing was learnt" in done.err
    assert "nothing is learnt" not in reverie(*words[:-1], "20000", "--dry-run").out


def test_dry_run_plans_every_seed(reverie: Command) -> None:
    words = ("train", *SMALL, "--steps", "6e2", "--seed", "3,4", "--dry-run")
    text = reverie(*words).out
    assert "CartPole-v1 with ppo, seed 3" in text
    assert "CartPole-v1 with ppo, seed 4" in text
    plans = json.loads(reverie(*words, "--json").out)
    assert [(plan["seed"], plan["env_steps"]) for plan in plans] == [(3, 600), (4, 600)]


def test_eval_reproduces_the_final_evaluation(reverie: Command, trained: api.Run) -> None:
    words = ("eval", str(trained.path), "--policy", "final", "--episodes", "3", "--json")
    result = json.loads(reverie(*words).out)
    assert result["return_mean"] == trained.status["final_score"]  # the same three episodes
    expected = {"run", "policy", "seed", "episodes", "return_mean", "return_std", "return_iqm", "return_min",
                "return_max", "return_low", "return_high", "length_mean", "returns", "lengths", "sample"}  # fmt: skip
    assert set(result) == expected
    assert (result["run"], result["policy"], result["seed"], result["episodes"]) == (trained.name, "final", 1, 3)
    other = json.loads(reverie(*words, "--seed", "77").out)
    assert other["seed"] == 77
    assert other["return_mean"] != result["return_mean"]
    sampled = json.loads(reverie(*words, "--sample").out)
    assert sampled["return_mean"] != result["return_mean"]


def test_eval_uses_the_policy_of_a_checkpoint(reverie: Command, trained: api.Run) -> None:
    checkpoint = str(max(int(path.name.split("-")[0]) for path in (trained.path / "checkpoints").glob("*-*")))
    words = ("eval", str(trained.path), "--episodes", "3")
    result = json.loads(reverie(*words, "--policy", checkpoint, "--json").out)
    final = json.loads(reverie(*words, "--policy", "final", "--json").out)
    assert (result["policy"], result["return_mean"]) == (checkpoint, final["return_mean"])
    assert f"(policy of step {checkpoint}), 3 episodes" in reverie(*words, "--policy", checkpoint).out
    refused = reverie(*words, "--policy", "worst")
    assert (refused.code, "Use best, final or the env steps" in refused.err) == (1, True)


def test_a_run_without_a_policy_suggests_its_checkpoint(reverie: Command, trained: api.Run, tmp_path: Path) -> None:
    run = tmp_path / "runs" / trained.name
    shutil.copytree(trained.path, run)
    shutil.rmtree(run / "policies")
    error = " ".join(reverie("eval", trained.name).err.split())
    assert f"reverie resume {trained.name}. Or let eval, play" in error
    steps = error.rpartition("--policy ")[2].removesuffix(".")
    assert reverie("eval", trained.name, "--policy", steps, "--episodes", "1").code == 0


def test_advice_includes_the_runs_folder(reverie: Command) -> None:
    words = ("--runs-dir", "my runs")
    assert reverie("train", *SMALL, "--steps", "64", "--quiet", *words).code == 0
    error = reverie("resume", "@last", *words).err
    assert "reverie resume CartPole-v1-ppo-s0-1 --runs-dir 'my runs' --steps" in " ".join(error.split())


def test_eval_as_text(reverie: Command, trained: api.Run) -> None:
    lines = reverie(
        "eval", trained.name[:8], "--episodes", "4", "--runs-dir", str(trained.path.parent)
    ).out.splitlines()
    assert lines[0] == f"{trained.name} (best policy), 4 episodes"
    assert re.fullmatch(r"return: mean [\d.]+, std [\d.]+, 95% interval of the mean [\d.]+ to [\d.]+", lines[1])
    assert lines[2].startswith("interquartile mean ")


def test_one_episode_has_no_interval(reverie: Command, trained: api.Run) -> None:
    line = reverie("eval", str(trained.path), "--episodes", "1").out.splitlines()[1]
    assert re.fullmatch(r"return: mean \d+\.\d\d", line)


def test_eval_shows_the_logs_of_the_env(reverie: Command) -> None:
    words = ("Reverie/Counting-v0:ppo", "env.log_keys=[success]", "env.vector=sync", "env.num_envs=2")
    words += ("phases.learn.collect.rows=32", "algorithm.epochs=1", "evaluate.final_episodes=2")
    assert reverie("train", *words, "--steps", "60", "--quiet").code == 0
    assert reverie("eval", "--episodes", "2").out.splitlines()[-1] == "success 1.0000"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("train", "CartPole-v1:ppo", "algorithm.gama=0.9"), "'gamma'"),
        (("train", "CartPole-v1:ppo", "algorithm.gamma=2"), "algorithm.gamma"),
        (("train", "CartPole-v1:pppo"), "'ppo'"),
        (("train", "CartPol-v1:ppo"), "'CartPole-v1'"),
        (("train", "CartPole-v1:ppo", "smal"), "'small'"),
        (("train", "CartPole-v1:ppo", "phases.learn.collect.rows=63"), "Write 56 or 64"),
        (("train", "CartPole-v1:ppo", "--seed", "one"), "--seed 1,2,3"),
        (("train", "CartPole-v1:ppo", "--seed", ""), '--seed "" is not a number'),
        (("train", "CartPole-v1:ppo", "--seed", "1,2,1"), "names a seed twice"),
        (("train", "CartPole-v1:ppo", "--steps", "1.5"), "whole number"),
        (("train", "CartPole-v1:ppo", "--steps", "0"), "whole number"),
        (("train", "CartPole-v1:ppo", "--steps", "inf"), "whole number"),
        (("train", "CartPole-v1:ppo", "algorithm.learning_rate=.inf"), "must be a finite number"),
        (("train", "CartPole-v1:ppo", "algorithm.learning_rate=-1e-3"), "must not be negative"),
        (
            ("train", "CartPole-v1:dqn", "algorithm.epsilon=2"),
            "algorithm.epsilon = 2 (command line): must be between 0 and 1",
        ),
        (
            ("train", "Taxi-v4:qlearning", "algorithm.exploration={kind: epsilon, epsilon: 3}"),
            "algorithm.exploration.epsilon = 3 (command line): must be between 0 and 1",
        ),
        (
            ("train", "Taxi-v4:qlearning", "algorithm.learning_rate=5"),
            "algorithm.learning_rate = 5 (command line): must be between 0 and 1 or",
        ),
        (("train", "CartPole-v1:ppo", "algorithm.batch_size=64.5"), "whole number of rows"),
        (("train", ":ppo"), "Write CartPole-v1:ppo"),
        (
            ("train", "CartPole-v1:tests.checking.CheckingAlgorithm"),
            "reverie train CartPole-v1:ppo algorithm.kind=tests.checking.CheckingAlgorithm",
        ),
        (
            ("train", "reverie.envs.suites.reverie.counting.CountingEnv:ppo", "env.kwargs.length=2000"),
            "env.max_episode_steps=1000",
        ),
        (("train", "CartPole-v1:ppo", "seed=-1"), "seed"),
        (("train", "no_such_module.Env:ppo"), "no_such_module"),
        (("train", "CartPole-v1:ppo", "backend.device=cuda:9"), "'cuda:9' is not available here"),
        (("train", "CartPole-v1:ppo", "backend.device=cuda:9", "--dry-run"), "'cuda:9' is not available here"),
        (("train", "CartPole-v1:ppo", "backend.device=cuda:x", "--dry-run"), "'cuda:x' is not the name of a device"),
        (("train", "Pendulum-v1:dqn", "--dry-run"), "discrete actions"),
        (("train", "CartPole-v1:qlearning", "--dry-run"), "discrete observations"),
        (("train", "CartPole-v1:dqn", "algorithm.network.kind=nature", "--dry-run"), "needs an image"),
        (("train", "CartPole-v1:dqn", "algorithm.network.kind=nature", "--seed", "1,2"), "needs an image"),
        (("train", "CartPole-v1:dqn", "buffers.main.kind=rollout", "--dry-run"), "Set buffers.main.kind=replay."),
        (("train", "Taxi-v4:qlearning", "buffers.main.kind=replay", "--dry-run"), "Set buffers.main.kind=rollout."),
        (("train", "CartPole-v1:ppo", "--stpes", "5"), "--stpes"),
        (("train", "--lr", "0.1"), "algorithm.learning_rate=0.1"),
        (("train",), "reverie envs list"),
        (("train", "ppo", "CartPole-v1"), "The env comes first: CartPole-v1:ppo."),
        (("train", "CartPole-v1:PPO"), "Did you mean 'ppo'?"),
        (("train", "NoSuchEnv-v0:ppo"), "reverie envs list"),
        (("train", "Taxi-v3:ppo"), "Did you mean 'Taxi-v4'?"),
        (("train", "CartPole-v1:ppo", "algorithm.network.units=64"), "Write 'algorithm.network.units=[64,64]'"),
        (("config", "show", "CartPole-v1:ppo", "env.num_env=3"), "'num_envs'"),
    ],
)
def test_config_errors_suggest_the_right_word(
    reverie: Command, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    done = reverie(*words)
    assert done.code == 2
    assert expected in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [("CartPole-v1:dqn", "buffers.main.kind=rollout"), ("Pendulum-v1:dqn",)])
def test_incompatible_agent_creates_no_run(reverie: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = reverie("train", *words)
    assert done.code == 2
    assert "reverie resume" not in done.err
    assert not (tmp_path / "runs").exists()


def test_config_error_during_a_run_does_not_advise_a_resume(reverie: Command) -> None:
    done = reverie("train", *SMALL, *STEPS, "phases.learn.update.train_ratio=32")
    assert done.code == 2
    assert "train_ratio has no meaning" in done.err
    assert "reverie resume" not in done.out + done.err


def test_error_message_and_exit_code_of_a_real_process(tmp_path: Path) -> None:
    done = run_in_process("train", "CartPole-v1:ppo", "algorithm.gama=0.9", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    assert "'gamma'" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["eval", "resume", "verify"])
def test_commands_without_a_run_explain_how_to_train_one(reverie: Command, command: str) -> None:
    done = reverie(command)
    assert done.code == 1
    assert "There are no runs in 'runs'" in done.err
    assert "reverie train" in done.err


def test_foreign_code_is_not_loaded_without_trust(reverie: Command, tmp_path: Path) -> None:
    own = "import gymnasium as gym\n\n\nclass Own(gym.envs.classic_control.CartPoleEnv):\n    pass\n"
    (tmp_path / "own_cartpole.py").write_text(own)
    words = ("own_cartpole.Own:ppo", *SMALL[1:4], "env.max_episode_steps=20", "evaluate.final_episodes=1")
    assert reverie("train", *words, "--steps", "64", "--quiet").code == 0
    assert reverie("eval", "--episodes", "1").code == 0
    (signature,) = tmp_path.glob("runs/*/config.hmac")
    signature.unlink()  # as if the run had been made elsewhere
    for command in (
        ("eval", "--episodes", "1"),
        ("record",),
        ("play", "--gif"),
        ("resume", "--steps", "500"),
        ("verify",),
    ):
        refused = reverie(*command)
        assert refused.code == 2
        assert "add --trust" in refused.err
    assert reverie("eval", "--episodes", "1", "--trust").code == 0
    sys.modules.pop("own_cartpole")


def test_interrupt_saves_and_explains_how_to_resume(reverie: Command, tmp_path: Path) -> None:
    words = [*BARE, "checkpoint.every_steps=200", "--steps", "1000000", "--seed", "1"]
    command = [sys.executable, "-m", "reverie", "train", *words]
    run = tmp_path / "runs" / "CartPole-v1-ppo-s1-1"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        while not (run / "checkpoints" / "latest.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Stopped and saved at env step" in printed
    assert f"reverie resume {run.name}" in printed
    assert "Traceback" not in printed
    steps = api.find(runs_dir=tmp_path / "runs").status["env_steps"]

    done = reverie("resume", run.name, "--steps", str(steps + 200), "--json")
    assert (done.code, json.loads(done.out)["state"]) == (0, "finished")
    whole = api.train(*words[:-4], "phases.learn.duration_steps=1000000", "horizon_steps=1000000", seed=1,
                      steps=steps + 200, runs_dir=tmp_path / "whole")  # fmt: skip
    assert read_jsonl(run / "scores.jsonl") == whole.scores()


def test_a_loss_that_is_not_finite_ends_the_run(reverie: Command, tmp_path: Path) -> None:
    done = reverie("train", *SMALL, "algorithm.learning_rate=1e30", "algorithm.max_grad_norm=null", *STEPS, "--quiet")
    assert done.code == 1
    assert "Lower the learning rate" in done.err
    assert api.find(runs_dir=tmp_path / "runs").state == "failed"
    log = next((tmp_path / "runs").glob("*/run.log")).read_text()
    assert re.search(r"in 'update' in phase 'learn', at update [\d,]+: training has diverged", log)
    assert "No checkpoint was saved. Start over with: reverie resume" in log
