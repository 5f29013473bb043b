"""What ``reverie doctor`` finds out, and when it calls something broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reverie import doctor
from reverie.cli.main import app
from reverie.doctor import EXTRAS, Finding, examine, required_packages
from reverie.machine.installation import install_command
from tests.conftest import EXTRAS as EXTRAS_OF_TESTS
from tests.unit.test_project import settings


def type_doctor(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words], env={"COLUMNS": "100", "TERM": "dumb"})


def found(topic: str, runs_dir: Path = Path("runs")) -> Finding:
    (finding,) = [finding for finding in examine(runs_dir) if finding.topic == topic]
    return finding


def test_a_machine_that_runs_these_tests_is_well() -> None:
    done = type_doctor()
    assert done.exit_code == 0
    assert "This machine has everything that a run needs." in done.output
    for topic in ("python", "torch", "threads", "blas", "device", "extra box2d", "screen", "gl", "memory", "disk"):
        assert f"  {topic} " in done.output


def test_as_json() -> None:
    entries = json.loads(type_doctor("--json").stdout)
    assert all(set(entry) == {"topic", "state", "text", "fix"} for entry in entries)
    assert {"reverie", "numpy"} <= {entry["topic"] for entry in entries}


def test_it_knows_every_extra_and_every_requirement() -> None:
    project = settings()["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev"}
    assert all(EXTRAS[extra][0] == module for extra, module in EXTRAS_OF_TESTS.items() if extra in EXTRAS)
    names = {line.split("[")[0].split(">")[0] for line in project["dependencies"]}
    assert set(required_packages()) == names


def test_a_package_that_cannot_be_loaded_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    finding = found("safetensors")
    assert (finding.state, finding.fix) == ("broken", "pip install --force-reinstall safetensors")
    done = type_doctor()
    assert (done.exit_code, "Broken: safetensors." in done.output) == (1, True)


def test_a_missing_extra_is_a_hint_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "atari", ("no_such_module", "Atari games"))
    finding = found("extra atari")
    assert (finding.state, finding.fix) == ("hint", install_command("atari"))


def test_runs_need_a_place_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("disk", tmp_path / "runs").state == "ok"
    monkeypatch.setattr(doctor, "LITTLE_DISK", 10**18)
    assert "Delete old runs" in found("disk", tmp_path).fix
    monkeypatch.setattr(doctor, "_is_writable", lambda folder: False)
    finding = found("disk", tmp_path)
    assert (finding.state, "--runs-dir" in finding.fix) == ("broken", True)


def test_a_folder_is_tried_by_writing(tmp_path: Path) -> None:
    assert doctor._is_writable(tmp_path)
    assert not doctor._is_writable(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_little_memory_and_no_way_to_draw_are_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LITTLE_MEMORY", 10**18)
    monkeypatch.setattr("reverie.envs.gl.BACKENDS", ())
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert "buffers.main.capacity" in found("memory").fix
    assert found("gl").fix == "sudo apt-get install libegl1 (or libosmesa6)"


def test_an_old_python_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOWEST_PYTHON", (9, 0))
    finding = found("python")
    assert (finding.state, finding.fix) == ("broken", "Install Python 9.0 or newer.")


def test_a_look_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def _extras() -> Iterator[Finding]:
        raise OSError("no such table")
        yield

    monkeypatch.setattr(doctor, "_extras", _extras)
    assert found("extras") == Finding("extras", "hint", "OSError: no such table")
    assert found("disk").state in ("ok", "hint")
