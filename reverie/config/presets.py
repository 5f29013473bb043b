"""Where presets lie and how they are found: the package's own, and a ``presets`` folder where you work.

``env/`` and ``algo/`` are chosen by ``<env>:<variant>``; files of every other folder (``size/``, ``phases/``)
are presets that you name after it. A file of yours goes before one of ours with the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reverie.config.tree import Tree
from reverie.config.yaml_text import load_yaml
from reverie.core import registry
from reverie.core.errors import ConfigError, nearest
from reverie.store import documents

PACKAGE_PRESETS = Path(__file__).parent.parent / "presets"
SPEC_FOLDERS = ("env", "algo")


@dataclass(frozen=True)
class Preset:
    """One YAML file and the name under which sources mention it."""

    label: str
    body: Tree


def preset_roots() -> list[Path]:
    """The folders that hold presets, the user's first."""
    own = Path.cwd() / "presets"
    return [root for root in (own, PACKAGE_PRESETS) if root.is_dir()]


def read_preset(path: Path, label: str) -> Preset:
    try:
        text = documents.read_text(path, follow_links=True)  # the user's own, wherever they keep it
    except ValueError as error:
        raise ConfigError(f"Cannot read the preset file '{path}': {error}.", "It should be plain YAML.") from error
    except OSError as error:
        fix = "Check its name and permissions."
        raise ConfigError(f"Cannot read the preset file '{path}': {error.strerror}.", fix) from error
    body = load_yaml(text, label)
    if body is not None and not isinstance(body, dict):
        raise ConfigError(f"{label} must hold keys and values, like 'seed: 1'.", "Correct the file.")
    return Preset(label, body or {})


def find_in_folder(folder: str, name: str) -> Preset | None:
    """The file ``<folder>/<name>.yaml``, or None."""
    for root in preset_roots():
        path = root / folder / f"{name}.yaml"
        if documents.is_file(path):
            shown = f"presets/{folder}/{name}.yaml"
            return read_preset(path, shown if root == PACKAGE_PRESETS else f"./{shown}")
    return None


def find_preset(name: str) -> Preset:
    """A preset named on the command line: a path to a YAML file, ``small`` or ``size/small``."""
    if name.endswith((".yaml", ".yml")):
        return read_preset(Path(name), name)
    found = [known for known in preset_names() if name in (known, known.partition("/")[2])]
    if len(found) == 1:
        folder, _, file_name = found[0].partition("/")
        preset = find_in_folder(folder, file_name)
        assert preset is not None
        return Preset(f"preset {name}", preset.body)
    if found:
        raise ConfigError(f"The preset '{name}' is not unique.", f"Write {' or '.join(found)}.")
    short = [known.partition("/")[2] for known in preset_names()]
    raise ConfigError(
        f"There is no preset called '{name}'.",
        f"{nearest(name, short)} Settings are written key=value, your own files with .yaml.".strip(),
    )


def preset_names() -> list[str]:
    """All presets that may follow ``<env>:<variant>``, as folder/name."""
    return sorted(
        {
            f"{folder.name}/{name}"
            for root in preset_roots()
            for folder in root.iterdir()
            if folder.is_dir() and folder.name not in SPEC_FOLDERS
            for name in _file_names(folder)
        }
    )


def env_names() -> list[str]:
    """The environments with a preset of their own."""
    return sorted({name for root in preset_roots() for name in _file_names(root / "env")})


def algorithm_names() -> list[str]:
    """The algorithms that an environment without tuned values can be given."""
    files = {name for root in preset_roots() for name in _file_names(root / "algo")}
    return sorted(files | set(registry.kinds("algorithm")))


def variant_names(env: str) -> list[str]:
    """The variants of an environment: the tuned ones of its file, else every algorithm."""
    preset = find_in_folder("env", env)
    return sorted(take_variants(dict(preset.body), env) if preset else ()) or algorithm_names()


def take_variants(body: Tree, env: str) -> dict[str, Tree]:
    """Remove the variants from the contents of an env's file and return them by name."""
    variants = body.pop("variants", None) or {}
    if not isinstance(variants, dict) or not all(isinstance(v, dict | None) for v in variants.values()):
        raise ConfigError(
            f"'variants' in the preset of {env} must map names to settings.",
            "Write 'variants: {ppo: {seed: 1}}'.",
        )
    return {name: values or {} for name, values in variants.items()}


def _file_names(folder: Path) -> list[str]:
    """Names of YAML files below a folder, with the folders between (``ALE/Pong-v5``)."""
    return [path.relative_to(folder).with_suffix("").as_posix() for path in sorted(folder.rglob("*.yaml"))]
