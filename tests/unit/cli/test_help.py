"""Help pages, the version and what both start with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import reverie
from reverie.cli.main import app
from reverie.cli.names import preset_names
from reverie.config import presets


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = list(commands(typer.main.get_command(app)))


def type_words(*words: str) -> str:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    return done.output


def test_every_command_is_looked_at() -> None:
    assert {("train",), ("config", "show"), ("envs", "list")} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_names_no_python_types(words: tuple[str, ...]) -> None:
    text = type_words(*words, "-h")
    assert text == type_words(*words, "--help")
    assert "Usage:" in text
    for kind in ("<bool>", "<str>", "<int", "<float", "<path>", "list["):
        assert kind not in text


def test_options_say_what_they_take() -> None:
    lines = {line.split()[1]: line.split()[2] for line in type_words("train", "-h").splitlines() if "│ --" in line}
    assert (lines["--jobs"], lines["--seed"], lines["--runs-dir"]) == ("NUMBER", "N[,N...]", "PATH")
    assert (lines["--quiet"], lines["--dry-run"]) == ("Print", "Print")


def test_help_of_train_leads_on() -> None:
    text = " ".join(type_words("train", "-h").split())
    for words in ("reverie envs list", "reverie config explain", "reverie config show", "size12m", "offline"):
        assert words in text


def test_preset_names_are_those_of_the_config() -> None:
    assert preset_names() == sorted({name.partition("/")[2] for name in presets.preset_names()})


def test_version() -> None:
    assert type_words("--version") == f"reverie {reverie.__version__}\n"
