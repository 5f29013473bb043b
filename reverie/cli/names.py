"""Names for help pages and shell completion, found without heavy imports, because completion must be fast.

Bash splits words at colons: ``CartPole-v1:p`` arrives as three words, and only the text after the colon is completed.
Other shells pass the whole word.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import typer

PACKAGE_PRESETS = Path(__file__).parent.parent / "presets"
SPEC_FOLDERS = ("env", "suite", "algo")


def preset_names() -> list[str]:
    """Presets that may follow ENV:VARIANT, without their folders."""
    folders = [folder for root in _roots() for folder in root.iterdir() if folder.name not in SPEC_FOLDERS]
    return sorted({name for folder in folders for path in folder.glob("*.yaml") for name in _presets_in(path)})


def _presets_in(path: Path) -> list[str]:
    """The presets of a file: those below ``presets:``, else the file's own name. Found without reading it as YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    family = re.search(r"^presets: *\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)
    if family is None:
        return [path.stem]
    names = re.findall(r"^( +)([\w.-]+): *$", family[1], re.MULTILINE)
    return [name for indent, name in names if indent == names[0][0]]


def preset_help() -> str:
    """The line about presets in the help of ``train``."""
    return f"Presets that may follow ENV:VARIANT: {', '.join(preset_names())}, or your own YAML file."


def env_names() -> list[str]:
    """Environments that have a preset file."""
    return sorted({name for root in _roots() for name in _below(root / "env")})


def variant_names(env: str) -> list[str]:
    """The variants in the preset file of the env or its suite. All algorithms if there is none."""
    import yaml

    path = _spec_file("env", env) or _spec_file("suite", _suite_of(env))
    if path is not None:
        try:
            body = yaml.safe_load(path.read_text(encoding="utf-8"))
            return sorted(body["variants"])
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
            pass
    return sorted({name for root in _roots() for name in _below(root / "algo")})


def _spec_file(folder: str, name: str) -> Path | None:
    paths = [root / folder / f"{name}.yaml" for root in _roots()]
    return next((path for path in paths if path.is_file()), None)


def _suite_of(env: str) -> str:
    from reverie.envs.suites import find_suite

    suite = find_suite(env)
    return suite.name if suite is not None else ""


def run_names(runs_dir: Path) -> list[str]:
    return [path.parent.name for path in sorted(runs_dir.glob("*/manifest.json"))]


def complete_spec(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete ENV:VARIANT. Other Gymnasium ids are searched only if no preset matches."""
    env, colon, variant = incomplete.rpartition(":")
    if colon and env:
        return [f"{env}:{name}" for name in variant_names(env) if name.startswith(variant)]
    envs = complete_env(ctx, incomplete)
    return envs if _is_bash() else [f"{name}:" for name in envs]


def complete_env(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in env_names() if name.startswith(incomplete)] or _registered(incomplete)


class _AfterColon(str):
    """A variant. Typer drops names that do not start with the current word, which in bash is the colon before it."""

    def startswith(self, *parts: Any) -> bool:
        return True


def complete_word(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a preset after ENV:VARIANT. In bash the word may still be the variant, without its colon."""
    before = [str(word) for word in [ctx.params.get("spec") or "", *(ctx.params.get("words") or ())]]
    if _is_bash() and (incomplete == ":" or before[-1] == ":"):
        env = before[0]
        return [_AfterColon(name) for name in variant_names(env) if name.startswith(incomplete.removeprefix(":"))]
    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a run in the folder of an earlier ``--runs-dir``."""
    runs_dir = Path(ctx.params.get("runs_dir") or "runs")
    return [name for name in ("@last", "@best", *run_names(runs_dir)) if name.startswith(incomplete)]


def complete_run_or_env(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete_run(ctx, incomplete) or complete_env(ctx, incomplete)


def complete_run_or_spec(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete_run(ctx, incomplete) or complete_spec(ctx, incomplete)


def _is_bash() -> bool:
    return "COMP_WORDS" in os.environ


def _registered(incomplete: str) -> list[str]:
    if not incomplete:
        return []
    import gymnasium

    return sorted(name for name in gymnasium.registry if name.startswith(incomplete))


def _below(folder: Path) -> list[str]:
    """Names of the YAML files below a folder, with subfolders."""
    return [path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")]


def _roots() -> list[Path]:
    return [root for root in (Path("presets"), PACKAGE_PRESETS) if root.is_dir()]
