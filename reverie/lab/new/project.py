"""``reverie new``: a small project of the user's own around an env, an algorithm or a network, which runs at once."""

from __future__ import annotations

import keyword
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from reverie.core.errors import ConfigError, RunError, nearest

TEMPLATES = Path(__file__).parent / "templates"
KINDS = ("env", "algorithm", "network")
FILES = {
    "module.py": "{name}.py", "test.py": "test_{name}.py", "README.md": "README.md", "Makefile": "Makefile",
    "preset.yaml": "{name}.yaml",
}  # fmt: skip
"""Where each template goes."""
ENV_PRESET = "presets/env/{name}.yaml"


def create_project(kind: str, name: str, folder: Path | None = None) -> list[Path]:
    """Write the files of a new project into ``folder`` (default: one named after it). Returns their paths."""
    if kind not in KINDS:
        raise ConfigError(f"Reverie can make a new env, algorithm or network, not '{kind}'.", nearest(kind, KINDS))
    module = module_name(name)
    target = folder or Path(module)
    _check_free(module, target)
    try:
        return _write_files(kind, module, target)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)  # it was new or empty
        raise RunError(
            f"'{target}' cannot be written: {error.strerror}.", "Choose another folder with --out."
        ) from error


def _write_files(kind: str, module: str, target: Path) -> list[Path]:
    words = {"@NAME@": module, "@CLASS@": class_name(module)}
    written = []
    for source, place in FILES.items():
        place = ENV_PRESET if (kind, source) == ("env", "preset.yaml") else place
        path = target / place.format(name=module)
        text = (TEMPLATES / kind / f"{source}.template").read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def module_name(name: str) -> str:
    """``my_walk`` for MyWalk, my-walk or "my walk". ConfigError if it cannot be a module."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    module = re.sub(r"[\s\-.]+", "_", words).lower()
    if not module.isidentifier() or keyword.iskeyword(module) or module.startswith("test_"):
        fix = "Use letters and digits, such as my_walk."
        raise ConfigError(f"'{name}' cannot be the name of a Python module.", fix)
    return module


def class_name(module: str) -> str:
    return "".join(word.capitalize() for word in module.split("_"))


def _check_free(module: str, target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        fix = "Choose another name, or another folder with --out."
        raise RunError(f"'{target}' exists already and is not empty.", fix)
    try:
        is_taken = find_spec(module) is not None
    except (ImportError, ValueError):
        is_taken = True
    if is_taken:
        fix = f"Choose another name, such as my_{module}."
        raise ConfigError(f"There is already an installed module '{module}', which would be found first.", fix)
