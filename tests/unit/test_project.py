"""What the project says about itself is true: links, quoted commands, make targets, pinned versions."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reverie.cli.main import app
from reverie.config.phases import Hook, Phase, Until
from reverie.config.schema import RunConfig
from reverie.core.config import Config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
SHELL_WORDS = ("|", "||", "&&", ";", ">", ">>", "&")


def text_of(page: Path) -> str:
    return page.read_text() if page.exists() else ""


def links_of(text: str) -> list[str]:
    """Relative link targets of a page; what stands in code is not a link."""
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))
    targets = [first or second for first, second in LINK.findall(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:|#", target)]


def quoted_lines(text: str) -> Iterator[str]:
    """The lines of a page's shell blocks, continued lines joined, prompts removed."""
    for language, block in FENCED.findall(text):
        if language in ("", "bash", "sh", "shell", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                yield line.strip().removeprefix("$ ")


def commands_of(text: str) -> list[list[str]]:
    """The arguments of every ``reverie ...`` command quoted on a page."""
    commands = []
    for line in quoted_lines(text):
        if line.startswith("reverie "):
            words = shlex.split(line, comments=True)[1:]
            end = next((i for i, word in enumerate(words) if word in SHELL_WORDS), len(words))
            commands.append(words[:end])
    return commands


def parse_command(command: Any, arguments: list[str]) -> None:
    """Read the arguments as the command line would, without running anything; wrong ones raise."""
    while getattr(command, "commands", None) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        assert name in command.commands, f"there is no command '{name}'"
        command = command.commands[name]
    with contextlib.suppress(typer.Exit):  # --help and --version leave at once
        command.make_context(command.name, list(arguments))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_links_and_commands_are_found_in_a_page() -> None:
    page = "[a](docs/a.md) [b](https://x.org) `[c](no.md)`\n```sh\n$ reverie train X \\\n  seed=1 # so\n```\n"
    assert links_of(page) == ["docs/a.md"]
    assert commands_of(page) == [["train", "X", "seed=1"]]


def test_a_wrong_command_does_not_parse() -> None:
    example = typer.Typer()
    example.command("train")(lambda: None)
    example.command("other")(lambda: None)
    command = typer.main.get_command(example)
    parse_command(command, ["train"])
    with pytest.raises(AssertionError, match="no command 'trian'"):
        parse_command(command, ["trian"])
    with pytest.raises(Exception, match="--sede"):
        parse_command(command, ["train", "--sede", "1"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = links_of(page.read_text())
    assert [target for target in targets if not (page.parent / target.partition("#")[0]).exists()] == []


def test_readme_quotes_commands() -> None:
    assert commands_of((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_commands_parse(page: Path) -> None:
    command = typer.main.get_command(app)
    for arguments in commands_of(page.read_text()):
        parse_command(command, arguments)


def test_quoted_make_targets_exist() -> None:
    texts = ["\n".join(quoted_lines(text_of(page))) for page in PAGES]
    texts += [path.read_text() for path in [ROOT / ".ci" / "run", *WORKFLOWS]]
    called = re.compile(r"^ *(?:- run: )?make ([a-z-]+)", re.MULTILINE)
    named = {name for text in texts for name in called.findall(text)}
    assert {"test", "lint"} <= named
    assert named - make_targets() == set()


def test_ci_is_executable() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_only_read_and_pin_their_actions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(re.search(r"@v\d+$", step["uses"]) for step in steps if "uses" in step)


@pytest.mark.parametrize(
    ("page", "config"),
    [("phases.md", Phase), ("phases.md", Hook), ("phases.md", Until), ("config.md", RunConfig)],
)
def test_docs_name_every_key(page: str, config: type[Config]) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert [key for key in config.model_fields if f"`{key}`" not in text] == []


def test_phases_in_the_docs_are_valid() -> None:
    blocks = [block for language, block in FENCED.findall(text_of(ROOT / "docs/phases.md")) if language == "yaml"]
    assert blocks
    for block in blocks:
        for phase in yaml.safe_load(block)["phases"]:
            Phase.model_validate(phase)


def test_version_is_the_newest_in_the_changelog() -> None:
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == settings()["project"]["version"]


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    project = settings()["project"]
    extras = project["optional-dependencies"]
    pins = pinned_versions()
    for text in [*project["dependencies"], *extras["dev"], *extras["box2d"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def test_torch_is_pinned_without_a_build() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", pinned_versions()["torch"])


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = settings()["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def commands_of_target(target: str, folder: Path) -> str:
    """What ``make`` would run for a target on a fresh machine."""
    command = ["make", "-n", target, f"VENV={folder / 'venv'}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_only_developers_wait_for_development_tools(tmp_path: Path) -> None:
    assert "video]" in commands_of_target("train", tmp_path)
    assert "[dev" not in commands_of_target("train", tmp_path)
    for target in ("lint", "format", "test"):
        assert "[dev]" in commands_of_target(target, tmp_path)
