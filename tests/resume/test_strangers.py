"""Loading a stranger's run runs no code, reads nothing outside of it and writes nothing outside of it."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reverie import api
from reverie.cli.main import app
from reverie.core import registry
from reverie.core.errors import ReverieError
from reverie.runs.trust import is_made_here, own_names
from reverie.store.signature import FILE
from tests.resume import damage
from tests.resume.pieces import CHECKING, PPO, stopping_after, train

COMMANDS: dict[str, Callable[[Path], Any]] = {
    "eval": lambda run: api.evaluate(str(run), episodes=1),
    "load": lambda run: api.load(str(run)),
    "resume": lambda run: api.resume(str(run)),
    "verify": lambda run: api.verify(str(run)),
}
READS_POLICY, READS_CHECKPOINT = ("eval", "load"), ("resume", "verify")


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was evaluated and stopped: it has a best policy, checkpoints and something left to do."""
    return damage.make_stopped_run(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return damage.copy_run(honest, tmp_path)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where code that ran would leave its mark."""
    return tmp_path / "mark"


@pytest.fixture
def evil_module(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported, and tells when it is."""
    (tmp_path / "stranger_code.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger_code", raising=False)
    return "stranger_code"


def policies(run: Path, name: str) -> list[Path]:
    return list(run.glob(f"policies/*/{name}"))


def refused(command: str, run: Path) -> str:
    with pytest.raises(ReverieError) as caught:
        COMMANDS[command](run)
    return str(caught.value)


def test_the_honest_run_can_be_loaded(run: Path) -> None:
    """Else the refusals below would show nothing."""
    for command in ("eval", "load", "verify", "resume"):
        COMMANDS[command](run)


@pytest.mark.parametrize("name", ["policy.safetensors", "policy.json"])
@pytest.mark.parametrize("command", READS_POLICY)
def test_a_pickle_in_a_policy(command: str, name: str, run: Path, mark: Path) -> None:
    for path in policies(run, name):
        path.write_bytes(pickle.dumps(Bomb(mark)))
    damage.reseal_policies(run)
    assert "damaged" in refused(command, run)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["algorithm.safetensors", "scheduler.json"])
@pytest.mark.parametrize("command", READS_CHECKPOINT)
def test_a_pickle_in_a_checkpoint_whose_hashes_fit(command: str, name: str, run: Path, mark: Path) -> None:
    for checkpoint in run.glob("checkpoints/0*"):
        (checkpoint / name).write_bytes(pickle.dumps(Bomb(mark)))
        damage.reseal(checkpoint)
    assert "damaged" in refused(command, run)
    assert not mark.exists()


def test_a_pickle_would_leave_its_mark(mark: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()


@pytest.mark.parametrize("command", READS_CHECKPOINT)
@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"../../config.yaml": "0" * 32}},
        {"files": {"/etc/passwd": "0" * 32}},
        {"parts": ["../../manifest"]},
        {"parts": "counters"},
        {"sealed": ["../../../manifest.json"]},
        {"logs": {"metrics": -5, "scores": 0, "machine": 0}},
        {"counters": {"env_steps": "many", "updates": 0, "cycles": 0}},
    ],
    ids=str,
)
def test_a_summary_that_leads_astray(command: str, changes: dict[str, Any], run: Path) -> None:
    for checkpoint in run.glob("checkpoints/0*"):
        damage.reseal(checkpoint, **changes)
    refused(command, run)


@pytest.mark.parametrize("command", READS_CHECKPOINT)
@pytest.mark.parametrize("name", ["../../../secret", "x.0123", "/etc/passwd", 7])
def test_a_reference_out_of_the_sealed_arrays(command: str, name: Any, run: Path) -> None:
    for checkpoint in run.glob("checkpoints/0*"):
        damage.change_json(checkpoint / "normaliser.json", lambda state: state.update(returns={"__sealed__": name}))
        damage.reseal(checkpoint)
    assert "damaged" in refused(command, run)


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp", "..", 5, None, ["final"]])
def test_a_best_policy_outside_of_the_run(name: Any, run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in run.glob("policies/*/*"):
        (elsewhere / path.name).write_bytes(path.read_bytes())
    damage.change_json(run / "status.json", lambda status: status.update(best_policy=name))
    assert "has no policy yet" in refused("load", run)


def huge_header(shape: list[int]) -> bytes:
    header = json.dumps({"/x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0\0\0\0"


@pytest.mark.parametrize(
    "data",
    [huge_header([2**40]), huge_header([2**40, 2**40]), huge_header([0, 2**62]), struct.pack("<Q", 2**62), b""],
    ids=["a terabyte", "overflow", "zero times much", "a huge header", "nothing"],
)
def test_sizes_that_are_not_there(data: bytes, run: Path) -> None:
    for path in policies(run, "policy.safetensors"):
        path.write_bytes(data)
    damage.reseal_policies(run)
    assert "damaged" in refused("load", run)
    for checkpoint in run.glob("checkpoints/0*"):
        (checkpoint / "algorithm.safetensors").write_bytes(data)
        damage.reseal(checkpoint)
    assert "damaged" in refused("resume", run)


def test_json_that_is_nested_too_deeply(run: Path) -> None:
    for path in (*policies(run, "policy.json"), run / "status.json"):
        path.write_text("[" * 100_000)
    damage.reseal_policies(run)
    assert "damaged: it is nested too deeply" in refused("load", run)
    assert "status.json cannot be read" in refused("resume", run)


@pytest.mark.parametrize("command", READS_CHECKPOINT)
@pytest.mark.parametrize("tag", ["!!python/object/apply:pathlib.Path.touch", "!!python/name:os.system", "!whatever"])
def test_yaml_tags(command: str, tag: str, run: Path, mark: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("seed: 1", f"seed: {tag} ['{mark}']"))
    refused(command, run)
    assert not mark.exists()


FOREIGN = {
    "algorithm": ("kind: ppo", "kind: stranger_code.Agent"),
    "env class": ("id: CartPole-v1", "id: stranger_code.Env"),
    "env module": ("id: CartPole-v1", "id: stranger_code:Env-v0"),
    "wrapper": ("wrappers: []", "wrappers: [{kind: stranger_code.Wrapper}]"),
    "buffer": ("kind: rollout", "kind: stranger_code.Buffer"),
    "network": ("kind: mlp", "kind: stranger_code.Network"),
    "controller": ("controller: null", "controller: stranger_code.Controller"),
    "env of a phase": ("overrides: {}", "overrides: {env.id: stranger_code.Env}"),
}


@pytest.mark.parametrize("part", FOREIGN)
def test_a_config_that_names_foreign_code(part: str, run: Path, evil_module: str, mark: Path) -> None:
    config, (old, new) = (run / "config.yaml").read_text(), FOREIGN[part]
    assert old in config
    (run / "config.yaml").write_text(config.replace(old, new))
    for command in READS_CHECKPOINT:
        assert "--trust" in refused(command, run)
        assert not mark.exists()


@pytest.mark.parametrize("command", READS_POLICY)
@pytest.mark.parametrize(
    ("old", "new"),
    [('"kind": "ppo"', '"kind": "stranger_code.Agent"'), ('"kind": "mlp"', '"kind": "stranger_code.Network"'),
     ('"id": "CartPole-v1"', '"id": "stranger_code.Env"')],
)  # fmt: skip
def test_a_policy_that_names_foreign_code(
    command: str, old: str, new: str, run: Path, evil_module: str, mark: Path
) -> None:
    for path in policies(run, "policy.json"):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    damage.reseal_policies(run)
    assert "--trust" in refused(command, run)
    assert not mark.exists()


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped run of the user's own that names a class outside of Reverie."""
    with stopping_after(14):
        return train(CHECKING, tmp_path_factory.mktemp("own"), steps=300)


@pytest.fixture
def own(checking: Path, tmp_path: Path) -> Path:
    return damage.copy_run(checking, tmp_path)


def test_own_runs_need_no_trust(own: Path) -> None:
    assert api.verify(str(own))[0].is_reproduced
    assert api.resume(str(own), "algorithm.kind=tests.checking.CheckingAlgorithm").state == "finished"
    assert api.evaluate(str(own), episodes=1)["episodes"] == 1
    assert api.load(str(own)).policy.specs.action.kind == "discrete"


def test_a_resume_with_other_settings_signs_them(own: Path) -> None:
    with stopping_after(3):
        api.resume(str(own), "checkpoint.every_steps=50")
    assert is_made_here(own)
    assert own_names(own) == {"tests.checking.CheckingAlgorithm"}
    assert api.resume(str(own)).state == "finished"


def test_an_edited_config_needs_trust_and_is_signed_once_it_is_changed_on_trust(own: Path) -> None:
    config = (own / "config.yaml").read_text()
    (own / "config.yaml").write_text(config.replace("final_episodes: 2", "final_episodes: 3"))
    for command in ("eval", "resume", "verify", "load"):
        assert "add --trust" in refused(command, own)
    with stopping_after(3):
        api.resume(str(own), "checkpoint.every_steps=50", trust=True)
    assert api.resume(str(own)).state == "finished"


def test_a_strangers_run_needs_trust_each_time(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    for command in COMMANDS:
        assert "add --trust" in refused(command, own)
    for command in (lambda: api.record(str(own), out=tmp_path / "a.gif"), lambda: api.foresee(str(own))):
        with pytest.raises(ReverieError, match="add --trust"):
            command()
    assert api.resume(str(own), trust=True).state == "finished"
    assert api.evaluate(str(own), episodes=1, trust=True)["episodes"] == 1
    assert "add --trust" in refused("eval", own)


def test_a_resume_does_not_sign_what_a_stranger_wrote(run: Path, tmp_path: Path) -> None:
    """Else a webhook of theirs would be the user's own from then on."""
    (run / FILE).unlink()
    with stopping_after(3):
        api.resume(str(run), "checkpoint.every_steps=50")
    assert not is_made_here(run)


@pytest.mark.parametrize("command", READS_POLICY)
def test_an_own_run_trusts_no_other_names_in_its_policies(
    command: str, own: Path, evil_module: str, mark: Path
) -> None:
    for path in policies(own, "policy.json"):
        text = path.read_text()
        assert "tests.checking.CheckingAlgorithm" in text
        path.write_text(text.replace("tests.checking.CheckingAlgorithm", "stranger_code.Agent"))
    damage.reseal_policies(own)
    assert "stranger_code.Agent" in refused(command, own)
    assert not mark.exists()


def test_own_runs_may_send(own: Path) -> None:
    with api.trusting(False, own):
        assert registry.is_own()
    (own / FILE).unlink()
    with api.trusting(False, own):
        assert not registry.is_own()


def test_names_that_the_user_types_are_trusted() -> None:
    with api.trusting(False, typed=["algorithm.network.kind=collections.OrderedDict"]):
        assert registry.load("network", "collections.OrderedDict") is OrderedDict
        with pytest.raises(ReverieError, match="add --trust"):
            registry.load("network", "collections.Counter")


def test_a_strangers_config_is_shown_without_its_code(run: Path, evil_module: str, mark: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("kind: mlp", "kind: stranger_code.Network"))
    done = CliRunner().invoke(app, ["config", "show", str(run)])
    assert done.exit_code == 0
    assert "stranger_code.Network" in done.stdout
    assert not mark.exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.log", "status.json", "checkpoints/latest.json"])
def test_links_out_of_the_run(name: str, run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / name).unlink()
    (run / name).symlink_to(victim)
    assert "is a link" in refused("resume", run)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["policies/final/policy.json", "policies/.final.new", "checkpoints/sealed/x"])
def test_links_that_lie_deep_in_the_run(name: str, run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(victim)
    assert "is a link" in refused("resume", run)
    assert victim.read_text() == "precious"


def test_a_policy_is_not_written_through_a_link(run: Path, tmp_path: Path) -> None:
    """Also not if links are trusted: the new policy takes the place of the link."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / "policies" / "final").mkdir()
    (run / "policies" / "final" / "policy.json").symlink_to(victim)
    assert api.resume(str(run), trust=True).state == "finished"
    assert victim.read_text() == "precious"
    assert api.load(str(run), "final").about["env_steps"] > 0


PLANTED = ("safetensors", "torch", "numpy", "yaml", "rich", "gymnasium", "pydantic", "typer", "evil")
OPTIONAL = ("ipywidgets", "IPython", "triton", "torch_xla", "cupy", "email_validator", "shellingham", "orjson")
ENTRY_POINTS = "[torch.backends]\nevil = evil:main\n[pydantic]\nevil = evil:main\n[gymnasium.envs]\nevil = evil:main\n"


def test_modules_in_the_current_folder_are_not_imported_unasked(run: Path, mark: Path) -> None:
    """Neither for installed ones nor for optional ones nor as plugins that installed ones look for."""
    for name in (*PLANTED, *OPTIONAL):
        (run / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    (run / "evil-1.0.dist-info").mkdir()
    (run / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (run / "evil-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    command = [sys.executable, "-m", "reverie", "eval", ".", "--episodes", "1"]
    done = subprocess.run(command, cwd=run, capture_output=True, text=True)
    assert not mark.exists(), mark.read_text()
    assert done.returncode == 0, done.stderr


def test_a_reference_in_a_strangers_config_is_not_followed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_SECRET", "secret")
    config = (run / "config.yaml").read_text()
    assert "summary: " in config
    lines = [
        line.partition(": ")[0] + ": ${oc.env:REVERIE_SECRET}" if line.strip().startswith("summary: ") else line
        for line in config.splitlines()
    ]
    (run / "config.yaml").write_text("\n".join(lines) + "\n")
    api.resume(str(run), "algorithm.gamma=0.9")
    assert "${oc.env:REVERIE_SECRET}" in (run / "config.yaml").read_text()


def test_a_policy_that_does_not_fit_together(run: Path) -> None:
    for path in policies(run, "policy.json"):
        damage.change_json(path, lambda tree: tree["specs"].pop("action"))
    damage.reseal_policies(run)
    for command in READS_POLICY:
        assert "cannot be used" in refused(command, run)


def test_weights_from_a_stranger_run_no_code(run: Path, mark: Path) -> None:
    for path in policies(run, "policy.safetensors"):
        path.write_bytes(pickle.dumps(Bomb(mark)))
    damage.reseal_policies(run)
    with pytest.raises(ReverieError, match="damaged"):
        api.train(*PPO, runs_dir=run.parent, init_from=str(run))
    assert not mark.exists()


@pytest.mark.parametrize("key", ["env_steps", "updates", "seed"])
@pytest.mark.parametrize("value", ["Infinity", "1e400", "NaN", "[]", "9" * 5000, "[" * 90 + "]" * 90])
def test_numbers_that_are_none(key: str, value: str, run: Path) -> None:
    for path in policies(run, "policy.json"):
        tree = json.loads(path.read_text())
        tree["about"][key] = "@"
        path.write_text(json.dumps(tree).replace('"@"', value))
    damage.reseal_policies(run)
    for command in READS_POLICY:
        assert len(refused(command, run)) < 2000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id: CartPole-v1", f"id: {'x' * 5000}"),
        ("seed: 1", f"seed: {'9' * 5000}"),
        ("seed: 1", "seed: 1e400"),
        ("seed: 1", f"seed: {'[' * 100_000}"),
        ("seed: 1", f"seed: {'[' * 90}{']' * 90}"),
        ("duration_steps: 1000", "duration_steps: .inf"),
    ],
    ids=["long id", "digits", "overflow", "deep", "less deep", "infinity"],
)
@pytest.mark.parametrize("command", READS_CHECKPOINT)
def test_settings_that_are_none(command: str, old: str, new: str, run: Path) -> None:
    config = (run / "config.yaml").read_text()
    assert old in config
    (run / "config.yaml").write_text(config.replace(old, new, 1))
    assert len(refused(command, run)) < 2000


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "manifest.json", "metrics.jsonl"])
def test_pipes_in_a_run_are_not_waited_for(name: str, run: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    for read in (lambda: api.verify(str(run)), lambda: api.find(str(run)).metrics()):
        with suppress(ReverieError):
            read()
    api.report(str(run))
