"""``reverie resume``, ``reverie verify``, ``reverie train --resume`` and ``--init-from``, as they are typed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from reverie import api
from reverie.cli.main import app
from reverie.config.compose import compose
from reverie.config.files import read_config
from reverie.config.pipeline import prepare_new
from reverie.config.validate import load_config
from reverie.core.errors import ReverieError
from reverie.core.types import Clock
from reverie.log.sinks import read_jsonl
from reverie.runs.resume import change_config
from reverie.runs.resume_command import names_foreign_code, resume_command, spent_schedules, twice_the_budget
from reverie.runs.verify import surroundings
from reverie.store.lock import lock_run
from reverie.store.run_folder import RunFolder, versions
from reverie.store.signature import FILE
from reverie.store.trees import read_tree, write_tree
from tests.resume import damage
from tests.resume.pieces import CHECKING, PPO, assert_equal_runs, stopping_after, train

SPEC = PPO[0]


def reverie(*words: str) -> Result:
    """The result of a command that is expected to be accepted."""
    done = CliRunner().invoke(app, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def refusal(*words: str) -> ReverieError:
    error = CliRunner().invoke(app, list(words)).exception
    assert isinstance(error, ReverieError), error
    return error


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damage.make_stopped_run(tmp_path_factory.mktemp("stopped"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(damage.STOPPED, tmp_path_factory.mktemp("finished"), damage.STEPS)


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return damage.copy_run(stopped, tmp_path)


def env_steps(run: Path, number: int) -> int:
    return int(damage.newest(run, number).name.partition("-")[0])


def test_resume_goes_on_and_doubles_no_stretch(run: Path, finished: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 99999, "written after the checkpoint": 1}\n')
    done = reverie("resume", str(run))
    assert done.exit_code == 0
    assert f"from env step {read_start(run):,}" in done.stderr
    steps = [line["env_steps"] for line in read_jsonl(run / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert 99999 not in steps
    assert_equal_runs(run, finished)


def test_a_longer_budget_is_told_in_what_the_run_is_counted_in() -> None:
    config = api.make_config(SPEC, steps=500)
    longer = "--steps 1024 horizon_steps=1024 algorithm.learning_rate=lin_0.001 algorithm.clip=lin_0.2"
    assert twice_the_budget(config, 512) == longer
    constant = api.make_config(SPEC, ["algorithm.learning_rate=1e-3"], steps=500)
    assert twice_the_budget(constant, 512) == "--steps 1024"
    for counted in ({"duration_updates": 50}, {"duration_cycles": 50}):
        offline = config.phases[-1].model_copy(update={"duration_steps": None, **counted})
        found = twice_the_budget(config.model_copy(update={"phases": (*config.phases[:-1], offline)}), 0)
        assert found == f"phases.learn.{next(iter(counted))}=100"


def test_other_kernels_of_numpy_are_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = versions()
    monkeypatch.setattr("reverie.runs.resume.versions", lambda: {**then, "blas": "Other"})
    output = " ".join(reverie("resume", run.name, "--runs-dir", str(run.parent)).output.split())
    assert f"Versions have changed since the run was saved, so bits may differ: blas {then['blas']} -> Other" in output
    assert "OPENBLAS_CORETYPE" in output


def test_the_same_versions_are_not_told(run: Path) -> None:
    assert "Versions have changed" not in reverie("resume", run.name, "--runs-dir", str(run.parent)).output


def read_start(run: Path) -> int:
    """The env steps that the last resume began at."""
    return int(read_jsonl(run / "resumes.jsonl")[-1]["checkpoint"].partition("-")[0])


def test_the_verdict_on_the_env_is_logged_and_saved(run: Path) -> None:
    assert "snapshots" not in reverie("resume", str(run)).stderr, "that resuming is exact is what everybody expects"
    assert "env snapshots: exact (replay)" in (run / "run.log").read_text()
    summary = json.loads((damage.newest(run) / "checkpoint.json").read_text())
    assert summary["environment"] == {"kind": "exact", "reason": "", "method": "replay"}


def test_changed_settings_are_listed_and_recorded(run: Path) -> None:
    before = (run / "config.yaml").read_text()
    done = reverie("resume", str(run), "algorithm.gamma=0.9", "checkpoint.keep_last=1", "--steps", "1200")
    assert "algorithm.gamma: 0.98 -> 0.9  (no longer exact)" in done.stderr
    assert "checkpoint.keep_last: 3 -> 1  (continues bit for bit)" in done.stderr
    assert "phases.learn.duration_steps: 1000 -> 1200  (continues bit for bit)" in done.stderr
    (entry,) = read_jsonl(run / "resumes.jsonl")
    exact = {change["key"]: change["keeps_exactness"] for change in entry["changes"]}
    assert exact == {"algorithm.gamma": False, "checkpoint.keep_last": True, "phases.learn.duration_steps": True}
    assert (run / "config-before-resume-1.yaml").read_text() == before
    assert read_config(run / "config.yaml").algorithm.gamma == 0.9  # type: ignore[attr-defined]


def test_a_resume_without_changes_leaves_the_config_alone(run: Path) -> None:
    before = (run / "config.yaml").read_bytes()
    reverie("resume", str(run))
    assert (run / "config.yaml").read_bytes() == before
    assert not list(run.glob("config-before-*"))
    assert read_jsonl(run / "resumes.jsonl")[0]["changes"] == []


def test_an_earlier_checkpoint_can_be_named(run: Path, finished: Path) -> None:
    first, later = damage.newest(run, 0), damage.newest(run)
    done = reverie("resume", str(run), "--checkpoint", str(env_steps(run, 0)))
    assert later.name in done.stderr
    assert read_jsonl(run / "resumes.jsonl")[0]["checkpoint"] == first.name
    assert_equal_runs(run, finished)


def test_going_back_does_not_jump_ahead_again(run: Path, tmp_path: Path) -> None:
    """Other settings from an earlier checkpoint on, stopped and resumed: never back on the abandoned path."""
    first = env_steps(run, 0)
    twin = damage.copy_run(run, tmp_path / "twin")
    api.resume(str(twin), "algorithm.gamma=0.5", checkpoint=str(first))
    with stopping_after(3):
        api.resume(str(run), "algorithm.gamma=0.5", checkpoint=str(first))
    assert api.resume(str(run)).state == "finished"
    assert_equal_runs(run, twin)


def test_an_unknown_checkpoint(run: Path) -> None:
    error = refusal("resume", str(run), "--checkpoint", "12345")
    assert "no checkpoint '12345'" in error.message
    assert str(env_steps(run, 0)) in error.fix


def test_a_run_that_goes_on_has_no_final_score_any_more(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    assert RunFolder(run).status()["final_score"] is not None
    with stopping_after(1):
        api.resume(str(run), steps=2 * damage.STEPS)
    assert RunFolder(run).status()["final_score"] is None


def without_checkpoints(run: Path, to: Path) -> Path:
    copy = damage.copy_run(run, to)
    shutil.rmtree(copy / "checkpoints")
    return copy


def contents(run: Path) -> dict[Path, bytes]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in ("lock", "run.log")]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("state", ["finished", "stopped", "running", "failed"])
def test_a_run_whose_checkpoints_are_gone_is_left_as_it_is(finished: Path, tmp_path: Path, state: str) -> None:
    run = without_checkpoints(finished, tmp_path)
    RunFolder(run).write_status(state=state)
    before = contents(run)
    error = refusal("resume", str(run), "--steps", str(2 * damage.STEPS))
    assert "checkpoints" in error.message
    assert f"reverie train {SPEC} --init-from {run.name}" in error.fix
    assert contents(run) == before


def test_a_run_of_before_whose_checkpoints_are_gone_is_recognised(stopped: Path, tmp_path: Path) -> None:
    """Its status does not name a checkpoint; that it was stopped or resumed tells that there were some."""
    run = without_checkpoints(stopped, tmp_path)
    shutil.rmtree(run / "policies", ignore_errors=True)
    (run / "status.json").write_text('{"state": "stopped"}')
    assert refusal("resume", str(run)).fix.startswith(f"Start a new run: reverie train {SPEC}.")
    (run / "status.json").write_text('{"state": "running"}')
    resumed = {"number": 1, "checkpoint": f"{1:012d}-{1:012d}", "changes": []}
    (run / "resumes.jsonl").write_text(json.dumps(resumed) + "\n")
    assert "checkpoints" in refusal("resume", str(run)).message


def test_going_back_takes_the_final_policy_along(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    assert (run / "policies" / "final").exists()
    with stopping_after(1):
        api.resume(str(run), checkpoint=str(env_steps(run, 0)))
    assert not (run / "policies" / "final").exists()
    api.resume(str(run))
    assert (run / "policies" / "final").exists()


def test_a_finished_run_says_so(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "run.log"}
    done = reverie("resume", str(run))
    assert done.exit_code == 0
    assert "is finished" in done.stderr
    assert f"reverie resume {RunFolder(run).words} --steps" in done.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "run.log"} == before


def test_less_than_was_done_is_refused(run: Path) -> None:
    error = refusal("resume", str(run), "--steps", "100")
    assert "already has" in error.message
    assert "--checkpoint" in error.fix


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("algorithm.kind=dqn", "algorithm.kind cannot change in the middle of a run: it is ppo, not dqn"),
        ("algorithm=dqn", "algorithm.kind cannot change"),
        ("env.id=Acrobot-v1", "env.id cannot change"),
    ],
)
def test_another_task_is_refused(word: str, message: str, run: Path) -> None:
    error = refusal("resume", str(run), word)
    assert message in error.message
    assert "--init-from" in error.fix


def test_references_and_schedules_are_worked_out(run: Path) -> None:
    words = ["algorithm.epochs=${env.num_envs}", "algorithm.learning_rate=lin_3e-4", "backend.device=auto"]
    assert reverie("resume", str(run), *words, "--steps", "2000").exit_code == 0
    config: Any = read_config(run / "config.yaml")
    assert config.algorithm.epochs == 4
    assert config.horizon_steps == damage.STEPS
    assert "to: 1000" in (run / "config.yaml").read_text().partition("learning_rate:")[2][:80]
    assert config.backend.device != "auto"


PLAY = {"hooks": [{"collect": {"rows": 64}}, {"update": {}}], "duration_steps": 128}
LOOK = {"name": "look", "type": "eval_only", "hooks": [{"evaluate": {"episodes": 1}}], "duration_cycles": 1}


def test_a_budget_for_a_phase_that_is_over_is_refused(tmp_path: Path) -> None:
    run = train((*PPO, f"phases={json.dumps([{'name': 'learn', **PLAY}, LOOK])}"), tmp_path)
    error = refusal("resume", str(run), "--steps", "500")
    assert "how long the phase 'learn' lasts, which is over" in error.message
    assert "--checkpoint" in error.fix


def test_a_loop_that_gets_a_longer_budget_stays_exact(tmp_path: Path) -> None:
    loop = {"name": "loop", "repeat": 3, "phases": [{"name": "a", **PLAY}, {"name": "b", **PLAY}]}
    run = train((*PPO, f"phases={json.dumps([loop])}"), tmp_path)
    reverie("resume", str(run), "--steps", "2000")
    (entry,) = read_jsonl(run / "resumes.jsonl")
    assert [(c["key"], c["old"], c["new"], c["keeps_exactness"]) for c in entry["changes"]] == [
        ("phases.b_3.duration_steps", 128, 1360, True)
    ]


def test_a_shorter_budget_names_the_phases_that_are_left_out() -> None:
    loop = {"name": "loop", "repeat": 2, "phases": [{"name": "a", **PLAY}, {"name": "b", **PLAY}]}
    prepared = prepare_new(SPEC, [f"phases={json.dumps([loop])}"])
    _, changes = change_config(prepared, [], 300)
    assert [(c.key, c.old, c.new, c.keeps_exactness) for c in changes] == [
        ("phases.a_2.duration_steps", 128, 44, True), ("phases.b_2", "b", None, True),
    ]  # fmt: skip


def test_hints_name_trust_where_it_is_needed(run: Path, tmp_path: Path) -> None:
    with stopping_after(14):
        own = train(CHECKING, tmp_path, steps=300)
    assert f"Continue with: reverie resume {RunFolder(own).words}\n" in (own / "run.log").read_text()
    assert "--trust" not in (run / "run.log").read_text()
    (own / FILE).unlink()  # as if it had been made elsewhere
    done = reverie("resume", str(own), "--trust")
    assert done.exit_code == 0
    assert f"reverie resume {RunFolder(own).words} --trust --steps" in reverie("resume", str(own), "--trust").stderr


@pytest.mark.parametrize(
    ("word", "is_foreign"),
    [
        ("seed=1", False),
        ("env.kwargs.kind=a.b", False),
        ("phases.learn.controller=random", False),
        ("phases.learn.controller=my_module.Controller", True),
        ("phases.learn.overrides={env.id: my_module.Env}", True),
    ],
)
def test_foreign_code_is_recognised(word: str, is_foreign: bool) -> None:
    composed = compose(SPEC, [word])
    assert names_foreign_code(load_config(composed.tree, composed.sources)) is is_foreign


@pytest.mark.parametrize(
    ("words", "is_trusted"),
    [
        ((), False),
        (("log.wandb={project: poles, mode: offline}",), False),
        (("log.wandb={project: poles}",), True),
        (("monitor.webhook=env:REVERIE_HOOK",), False),
        (("monitor.webhook=https://example.org/hook",), True),
    ],
)
def test_hints_name_trust_for_runs_that_send(words: tuple[str, ...], is_trusted: bool) -> None:
    composed = compose(SPEC, words)
    config = load_config(composed.tree, composed.sources)
    assert resume_command(RunFolder(Path("runs/mine")), config) == "reverie resume mine" + (
        " --trust" if is_trusted else ""
    )


def test_a_budget_beyond_the_schedules_is_told_and_what_it_says_helps() -> None:
    prepared = prepare_new("CartPole-v1:ppo")
    assert spent_schedules(prepared.config) == []
    longer, _ = change_config(prepared, [], steps=150_000)
    (message,) = spent_schedules(longer.config)
    assert "0 after env step 100,000" in message
    stretched, _ = change_config(prepared, message.partition("add: ")[2].split(), steps=150_000)
    assert spent_schedules(stretched.config) == []
    assert stretched.config.algorithm.learning_rate.to_steps == 150_000  # type: ignore[attr-defined]


def test_the_hint_after_a_finished_run_extends_its_schedules() -> None:
    prepared = prepare_new("CartPole-v1:ppo")
    option, steps, *words = twice_the_budget(prepared.config, 100_000).split()
    assert (option, steps) == ("--steps", "200000")
    longer, _ = change_config(prepared, words, steps=200_000)
    assert spent_schedules(longer.config) == []
    assert longer.config.algorithm.learning_rate.at(Clock(env_steps=150_000)) > 0  # type: ignore[attr-defined]


def test_the_checkpoint_is_chosen_under_the_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(folder: RunFolder, name: str | None) -> Any:
        with pytest.raises(ReverieError, match="another process"), lock_run(folder.path):
            pass
        raise LookupError("locked, as it should be")

    monkeypatch.setattr("reverie.runs.resume.choose_checkpoint", choose)
    with pytest.raises(LookupError):
        api.resume(str(run))


def test_an_unknown_setting_is_refused(run: Path) -> None:
    assert "gama" in refusal("resume", str(run), "algorithm.gama=1").message


# ---------------------------------------------------------------- verify


def test_verify_reproduces_every_segment(finished: Path) -> None:
    done = reverie("verify", str(finished), "--segments", "all")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(list(finished.glob("checkpoints/0*"))) == 3
    assert all(line.endswith(": reproduced") for line in lines)
    assert lines[0].startswith("env steps 0 to")


def test_verify_reproduces_a_run_with_phases(tmp_path: Path) -> None:
    """A checkpoint at the end of a phase is met again, before the next phase begins."""
    phases = [
        {"name": name, "hooks": [{"collect": {"rows": 64}}, {"update": {}}], "duration_steps": 100} for name in "abc"
    ]
    words = (*PPO, f"phases={json.dumps(phases)}", "checkpoint.every_steps=50", "checkpoint.keep_last=20")
    run = train(words, tmp_path)
    verdicts = api.verify(str(run), "all")
    assert len(verdicts) >= 5
    assert [verdict.differences for verdict in verdicts if not verdict.is_reproduced] == []


def test_verify_names_a_tampered_metric(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    begin = env_steps(run, -2)
    place = next(i for i, line in enumerate(lines) if json.loads(line)["env_steps"] > begin and "update/loss" in line)
    record = json.loads(lines[place])
    changed = lines[place].replace('"update/loss": ', '"update/loss": 1')
    (run / "metrics.jsonl").write_text("".join([*lines[:place], changed, *lines[place + 1 :]]))
    done = reverie("verify", str(run))
    assert done.exit_code == 1
    assert "NOT reproduced" in done.stdout
    assert f"metrics: first at env step {record['env_steps']}, update {record['updates']}: update/loss 1" in done.stdout
    assert "changed since then: device cpu, threads 1" in done.stdout


def test_verify_names_a_tampered_score(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    (run / "scores.jsonl").write_bytes((run / "scores.jsonl").read_bytes().replace(b'"length": ', b'"length": 7', 1))
    (verdict,) = api.verify(str(run), "first")
    assert [line.split(":")[0] for line in verdict.differences] == ["scores"]
    assert "length" in verdict.differences[0]


def test_verify_names_a_tampered_weight(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    checkpoint = damage.newest(run)
    state = read_tree(checkpoint / "algorithm")
    name = next(name for name, value in state["model"].items() if isinstance(value, np.ndarray))
    state["model"][name].flat[0] += 1e-6
    write_tree(checkpoint / "algorithm", state)
    damage.reseal(checkpoint)
    done = reverie("verify", str(run), "--json")
    assert done.exit_code == 1
    (verdict,) = json.loads(done.stdout)
    assert not verdict["reproduced"]
    assert verdict["differences"] == [f"algorithm: differs at /model/{name}"]


def test_verify_refuses_a_damaged_checkpoint(finished: Path, tmp_path: Path) -> None:
    run = damage.copy_run(finished, tmp_path)
    damage.flip_byte(damage.newest(run) / "algorithm.safetensors")
    assert "damaged" in refusal("verify", str(run)).message


KEEP = "checkpoint.keep_last=20"


def test_verify_takes_the_settings_that_held_in_each_segment(run: Path) -> None:
    with stopping_after(8):
        api.resume(str(run), "algorithm.gamma=0.5", "algorithm.learning_rate=1e-3", KEEP)
    api.resume(str(run), "algorithm.gamma=0.7", steps=1500)
    verdicts = api.verify(str(run), "all")
    assert len(verdicts) >= 5
    assert [verdict for verdict in verdicts if not verdict.is_reproduced] == []


def test_verify_forgets_settings_of_an_abandoned_stretch(run: Path) -> None:
    first = str(env_steps(run, 0))
    with stopping_after(8):
        api.resume(str(run), "algorithm.gamma=0.5", KEEP)
    api.resume(str(run), "algorithm.gamma=0.9", checkpoint=first)
    verdicts = api.verify(str(run), "all")
    assert len(verdicts) >= 3
    assert [verdict for verdict in verdicts if not verdict.is_reproduced] == []


def test_verify_knows_of_changes_whose_checkpoint_was_tidied_away(run: Path) -> None:
    """Two changes within the one segment that is left."""
    with stopping_after(8):
        api.resume(str(run), "algorithm.gamma=0.5", "checkpoint.keep_last=1")
    with stopping_after(7):
        api.resume(str(run), "algorithm.gamma=0.7", "phases.learn.collect.rows=128")
    api.resume(str(run), steps=1500)
    (verdict,) = api.verify(str(run), "all")
    assert verdict.differences == []
    assert verdict.is_reproduced


def test_verify_says_so_if_nobody_knows_where_settings_changed(run: Path) -> None:
    with stopping_after(8):
        api.resume(str(run), "algorithm.gamma=0.5", "checkpoint.keep_last=1")
    entries = read_jsonl(run / "resumes.jsonl")
    place = entries[0]["counters"]["env_steps"]
    of_before = [{key: entry[key] for key in ("number", "checkpoint", "changes")} for entry in entries]
    (run / "resumes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in of_before))
    done = reverie("verify", str(run))
    assert done.exit_code == 1
    assert "NOT" not in done.stdout
    assert (
        f"cannot be checked: resume 1 changed algorithm.gamma, checkpoint.keep_last at env step {place:,}"
        in done.stdout
    )
    (found,) = json.loads(reverie("verify", str(run), "--json").stdout)
    assert found["reproduced"] is None


def test_verify_reproduces_a_debug_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.diagnostics.Profile", mock.Mock())  # slow, and not what is compared
    run = train((*PPO, "debug=true", "evaluate.final_episodes=0"), tmp_path, steps=128)
    assert "overfit" in (run / "alerts.jsonl").read_text()
    (verdict,) = api.verify(str(run), "first")
    assert verdict.differences == []


def test_verify_names_the_process_that_trains_the_run(run: Path) -> None:
    with lock_run(run):
        error = refusal("verify", str(run))
    assert f"is being trained by another process (pid {os.getpid()})" in error.message


def test_verify_mentions_settings_that_a_resume_changed(run: Path) -> None:
    """One line for each, where something is not reproduced."""
    api.resume(str(run), "algorithm.gamma=0.5", KEEP)
    (run / "metrics.jsonl").write_text(
        (run / "metrics.jsonl").read_text().replace('"env_steps": ', '"env_steps": 1', 1)
    )
    (verdict,) = api.verify(str(run), "first")
    assert not verdict.is_reproduced
    changed = [line for line in verdict.surroundings if "resume 1" in line]
    assert changed == ["algorithm.gamma: 0.98 -> 0.5 (resume 1)"]


def test_a_damaged_list_of_resumes_is_explained(run: Path) -> None:
    (run / "resumes.jsonl").write_text('{"number": 1}\n')
    assert "resumes.jsonl is damaged" in refusal("verify", str(run)).message


# ---------------------------------------------------------------- train --resume and --init-from


def test_train_resume_is_resume(run: Path, finished: Path) -> None:
    assert reverie("train", SPEC, "--resume", str(run), "--quiet").exit_code == 0
    assert_equal_runs(run, finished)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Acrobot-v1:ppo"], "trains CartPole-v1:ppo, not Acrobot-v1:ppo"),
        ([SPEC, "--seed", "9"], "has the seed 1, not 9"),
        ([SPEC, "small"], "preset cannot be added"),
        ([SPEC, "--seed", "1,2"], "a single run"),
        ([SPEC, "--init-from", "@last"], "a single run"),
    ],
)
def test_train_resume_must_name_that_run(words: list[str], message: str, run: Path) -> None:
    assert message in refusal("train", *words, "--resume", str(run)).message


def initial_weights(run: Path) -> dict[str, Any]:
    weights: dict[str, Any] = read_tree(run / "initial")["weights"]
    return weights


def test_weights_are_taken_over(finished: Path, tmp_path: Path) -> None:
    words = [*PPO, "algorithm.learning_rate=0", "--steps", "100", "--runs-dir", str(tmp_path)]
    done = reverie("train", *words, "--init-from", str(finished))
    assert f"Weights from {finished.name}: " in done.stderr
    assert "0 left out" in done.stderr
    new, old = api.load("@last", "final", tmp_path), api.load(str(finished))
    theirs = old.policy.algorithm.policy_state()
    for name, value in new.policy.algorithm.policy_state().items():
        np.testing.assert_array_equal(value, theirs[name])


def test_a_pattern_chooses_weights(finished: Path, tmp_path: Path) -> None:
    words = [*PPO, "algorithm.network.units=[16, 8]", "--steps", "100", "--runs-dir", str(tmp_path)]
    done = reverie("train", *words, "--init-from", str(finished), "--init-pattern", "actor*")
    assert "taken: actor_trunk.layers.0.weight (16, 4)" in done.stderr
    assert "left out: critic_trunk.layers.0.weight: does not match 'actor*'" in done.stderr
    assert "left out: actor_trunk.layers.2.weight: only in the new run" in done.stderr
    assert set(initial_weights(api.find("@last", tmp_path).path)) == {
        "actor_trunk.layers.0.weight", "actor_trunk.layers.0.bias",
    }  # fmt: skip


def test_other_shapes_are_left_out_and_named(finished: Path, tmp_path: Path) -> None:
    words = [*PPO, "algorithm.network.units=[8]", "--steps", "100", "--runs-dir", str(tmp_path)]
    done = reverie("train", *words, "--init-from", str(finished))
    assert "left out: actor_trunk.layers.0.weight: float32 (16, 4) there, float32 (8, 4) here" in done.stderr
    assert set(initial_weights(api.find("@last", tmp_path).path)) == {"action_head.output.bias", "value_head.bias"}


def test_no_match_is_an_error_and_makes_no_run(finished: Path, tmp_path: Path) -> None:
    words = [*PPO, "--steps", "100", "--runs-dir", str(tmp_path)]
    error = refusal("train", *words, "--init-from", str(finished), "--init-pattern", "nothing*")
    assert "No weight" in error.message
    assert "does not match 'nothing*'" in error.message
    assert "--init-pattern" in error.fix
    assert list(tmp_path.iterdir()) == []


def test_a_run_from_other_weights_is_exact_from_its_first_step(finished: Path, tmp_path: Path) -> None:
    """Resumed before its first checkpoint, it still begins with those weights; and it can be verified."""
    options: dict[str, Any] = {"steps": 400, "seed": 1, "init_from": str(finished), "init_pattern": "a*"}
    whole = api.train(*PPO, runs_dir=tmp_path / "whole", **options).path
    with stopping_after(2):
        pieces = api.train(*PPO, runs_dir=tmp_path / "pieces", **options).path
    damage.undo_saving(pieces)
    assert api.resume(str(pieces)).state == "finished"
    assert_equal_runs(pieces, whole)
    assert all(verdict.is_reproduced for verdict in api.verify(str(whole), "all"))
    plain = train(PPO, tmp_path / "plain", steps=400)
    with pytest.raises(AssertionError, match="differ"):
        assert_equal_runs(plain, whole)


def test_a_run_with_too_few_rows_goes_on_with_what_the_error_says(tmp_path: Path) -> None:
    words = (
        *CHECKING, "buffers.main={kind: replay, capacity: 96, min_rows: 90}", "algorithm.batch_size=2",
        "phases.learn.hooks=[{collect: {episodes: 4}}, {update_windows: {}}]",
    )  # fmt: skip
    with pytest.raises(ReverieError, match="sampling needs 90"):
        train(words, tmp_path, steps=60)
    (run,) = tmp_path.iterdir()
    (command,) = re.findall(r"with: (reverie resume .*)", (run / "run.log").read_text())
    setting = command.split()[-1]
    assert re.fullmatch(r"buffers\.main\.min_rows=\d+", setting)
    assert api.resume(str(run), setting, trust=True).state == "finished"


def test_verify_says_first_that_another_processor_computes_other_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(train(PPO, tmp_path, steps=100))
    manifest = folder.manifest()
    manifest["versions"]["blas"] = "Other"
    manifest["git"] = {"commit": "0123456", "is_clean": True}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.chdir(tmp_path)
    lines = surroundings(folder, api.make_config("CartPole-v1:ppo"))
    assert lines[0].startswith("blas: Other -> ")
    assert lines[0].endswith("(so other last bits are expected)")
    assert not any(line.startswith(("commit", "is_clean")) for line in lines)
