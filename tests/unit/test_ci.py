"""The checks of ``.ci``: licences of runtime packages, and the coverage of single modules."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES

CHECKS = Path(__file__).resolve().parents[2] / ".ci"


def load_check(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CHECKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licences, module_coverage, suite_extras = map(load_check, ("licences", "module_coverage", "suite_extras"))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, with ``lab`` that needs ``child``, and more with its extras."""
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "lab", "MIT", "Provides-Extra: dev", "Provides-Extra: plots", "Requires-Dist: child[fast]>=1")
    return tmp_path


def install(folder: Path, name: str, licence: str, *fields: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", f"License-Expression: {licence}", *fields]
    (info / "METADATA").write_text("\n".join(line for line in lines if not line.endswith(": ")) + "\n")


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "MIT AND LGPL-2.1-or-later", "MPL-2.0", "AGPL-3.0-only", ""])
def test_copyleft_is_refused(packages: Path, licence: str, capsys: pytest.CaptureFixture[str]) -> None:
    install(packages, "child", licence)
    assert licences.main("lab") == 1
    assert f"child: {licence or 'no licence stated'}." in capsys.readouterr().out


@pytest.mark.parametrize("licence", ["MIT", "Apache-2.0 WITH LLVM-exception", "GPL-3.0-only OR BSD-3-Clause"])
def test_permissive_licences_are_accepted(packages: Path, licence: str) -> None:
    install(packages, "child", licence)
    assert licences.main("lab") == 0


def test_copyleft_is_found_behind_extras_and_in_old_fields(packages: Path) -> None:
    install(packages, "child", "MIT", "Provides-Extra: fast", 'Requires-Dist: deep; extra == "fast"')
    assert licences.main("lab") == 0  # what is not installed has no licence to read
    install(packages, "deep", "", "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)")
    assert licences.main("lab") == 1


def test_development_tools_may_have_any_licence(packages: Path) -> None:
    install(packages, "tool", "GPL-3.0-only")
    install(packages, "child", "MIT")
    with (packages / "lab-1.0.dist-info" / "METADATA").open("a") as file:
        file.write('Requires-Dist: tool; extra == "dev"\n')
    assert licences.main("lab") == 0
    with (packages / "lab-1.0.dist-info" / "METADATA").open("a") as file:
        file.write('Requires-Dist: tool; extra == "plots"\n')
    assert licences.main("lab") == 1


def test_what_is_installed_here_passes() -> None:
    assert licences.main() == 0


def test_a_module_below_the_floor_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "coverage.json"
    covered = {"a.py": 79.9, "b.py": 80.0, "c.py": 12.5}
    path.write_text(json.dumps({"files": {name: {"summary": {"percent_covered": p}} for name, p in covered.items()}}))
    assert module_coverage.main(str(path), "80") == 1
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["c.py", "a.py"]
    assert module_coverage.main(str(path), "12") == 0


def test_suites_that_are_not_installed_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": {"reverie/envs/suites/toy.py": {"summary": {"percent_covered": 30}}}}))
    for package, code in (("no_such_package", 0), ("numpy", 1)):
        monkeypatch.setattr(module_coverage, "SUITES", [Suite("toy", "toys", packages={package: "it"})])
        assert module_coverage.main(str(path), "80") == code


def test_modules_of_missing_packages_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": {"reverie/some.py": {"summary": {"percent_covered": 30}}}}))
    for package, code in (("no_such_package", 0), ("numpy", 1)):
        monkeypatch.setattr(module_coverage, "NEEDED", {"reverie/some.py": package})
        assert module_coverage.main(str(path), "80") == code
    assert all((Path(__file__).parents[2] / name).exists() for name in load_check("module_coverage").NEEDED)


def test_a_report_without_modules_fails(tmp_path: Path) -> None:
    path = tmp_path / "coverage.json"
    path.write_text('{"files": {}}')
    assert module_coverage.main(str(path), "80") == 1


def printed(what: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    suite_extras.main(what)
    return capsys.readouterr().out.replace(",", "\n").split()


def test_the_extras_of_all_suites_are_installed_in_one_of_two_environments(capsys: pytest.CaptureFixture[str]) -> None:
    together = set(printed("extras", capsys))
    assert {suite.extra for suite in SUITES if suite.extra} <= together | set(suite_extras.SEPARATE)
    assert not together & set(suite_extras.SEPARATE)
    known = tomllib.loads(suite_extras.PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert together <= set(known)
    assert "metaworld==3.1.1" in printed("bare", capsys)


def test_the_environment_with_pygame_has_no_pygame_ce(capsys: pytest.CaptureFixture[str]) -> None:
    base = printed("base", capsys)
    assert any(line.startswith("gymnasium>") for line in base)
    assert not [
        line for line in [*base, *printed("separate", capsys)] if "classic-control" in line or "pygame-ce" in line
    ]
