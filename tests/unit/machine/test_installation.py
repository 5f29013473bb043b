"""The command that installs an extra works for the copy of Reverie that names it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import reverie
from reverie.machine import installation
from reverie.machine.installation import install_command

ROOT = Path(reverie.__file__).resolve().parents[1]


def install_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: str | None) -> None:
    """Pretend that the package lies in site-packages, where pip recorded its source."""
    package = SimpleNamespace(__file__=str(tmp_path / "site-packages" / "reverie" / "__init__.py"))
    monkeypatch.setattr(installation, "reverie", package)
    record = SimpleNamespace(read_text=lambda name: recorded)
    monkeypatch.setattr(installation.metadata, "distribution", lambda name: record)


def test_a_checkout_is_installed_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("video") == 'pip install -e ".[video]"'
    monkeypatch.chdir(tmp_path)
    assert install_command("video") == f'pip install -e "{ROOT}[video]"'


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        (None, 'pip install "reverie[video]"'),
        ("damaged", 'pip install "reverie[video]"'),
        (json.dumps({"url": "file:///a%20b/rev", "dir_info": {}}), 'pip install "/a b/rev[video]"'),
        (json.dumps({"url": "file:///wheels/reverie.whl", "archive_info": {}}), 'pip install "reverie[video]"'),
        (json.dumps({"url": "https://host/r", "vcs_info": {"vcs": "git"}}),
         'pip install "reverie[video] @ git+https://host/r"'),
        (json.dumps({"url": "file:///a$b", "dir_info": {}}), "pip install '/a$b[video]'"),
    ],
)  # fmt: skip
def test_an_installed_copy_is_installed_from_its_source(
    recorded: str | None, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_from(monkeypatch, tmp_path, recorded)
    assert install_command("video") == command
