"""Where presets are and how they are found: the package's own, and a ``presets`` folder where you work.

``env/``, ``suite/`` and ``algo/`` are chosen by ``<env>:<variant>``; ``suite/`` is for envs without their own file.
Files of every other folder (``size/``, ``dreamer/``) hold the presets that you name after it: one, called like the
file, or a family of them under ``presets:``, which may be for some ``algorithms:`` only. So ``size1m`` means the chosen
algorithm's own size. A file of yours goes before one of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reverie.config.tree import Tree
from reverie.config.yaml_text import load_yaml
from reverie.core import registry
from reverie.core.errors import ConfigError, nearest
from reverie.store import documents

PACKAGE_PRESETS = Path(__file__).parent.parent / "presets"
SPEC_FOLDERS = ("env", "suite", "algo")


@dataclass(frozen=True)
class Preset:
    """The values of a preset, its label in sources, and the algorithms that it is for (empty: any)."""

    label: str
    body: Tree
    algorithms: tuple[str, ...] = ()


def preset_roots() -> list[Path]:
    """The folders that hold presets, the user's first."""
    own = Path.cwd() / "presets"
    return [root for root in (own, PACKAGE_PRESETS) if root.is_dir()]


def read_preset(path: Path, label: str) -> Preset:
    try:
        text = documents.read_text(path, follow_links=True)  # a link is fine: users choose the file
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
    """The user's or our file ``<folder>/<name>.yaml``, or None."""
    return next((found for root in preset_roots() if (found := _read_from(root, folder, name))), None)


def find_env_preset(env: str) -> Preset | None:
    """The file of an env, else that of its suite (``suite/atari.yaml``), or None."""
    from reverie.envs.suites import find_suite  # imports gymnasium

    own = find_in_folder("env", env)
    suite = find_suite(env) if own is None else None
    return own if suite is None else find_in_folder("suite", suite.name)


def _read_from(root: Path, folder: str, name: str) -> Preset | None:
    path = root / folder / f"{name}.yaml"
    if not documents.is_file(path):
        return None
    shown = f"presets/{folder}/{name}.yaml"
    return read_preset(path, shown if root == PACKAGE_PRESETS else f"./{shown}")


def find_presets(name: str) -> list[Preset]:
    """The presets that a word on the command line may name: a path to a YAML file, ``small`` or ``size/small``.

    There is one for each family of algorithms that has a preset of this name, the user's first.
    """
    if name.endswith((".yaml", ".yml")):
        return [read_preset(Path(name), name)]
    found = [known for known in preset_names() if name in (known, known.partition("/")[2])]
    if len(found) == 1:
        label = f"preset {name}"
        return [replace(preset, label=label) for known, preset in _named_presets() if known == found[0]]
    if found:
        raise ConfigError(f"The preset '{name}' is not unique.", f"Write {' or '.join(found)}.")
    short = [known.partition("/")[2] for known in preset_names()]
    raise ConfigError(
        f"There is no preset called '{name}'.",
        f"{nearest(name, short)} Settings are written key=value, your own files with .yaml.".strip(),
    )


def preset_for(name: str, presets: list[Preset], algorithm: str) -> Preset:
    """The preset for an algorithm among those found. If none fits, ConfigError lists the algorithm's own.

    A class of the user's own counts as the registered algorithm that it is derived from, and takes any preset if it is
    derived from none.
    """
    parent = registry.parent_kind("algorithm", algorithm) if "." in algorithm else algorithm
    fitting = [preset for preset in presets if parent is None or not preset.algorithms or parent in preset.algorithms]
    if fitting:
        return fitting[0]
    group = next(known for known in preset_names() if name in (known, known.partition("/")[2])).partition("/")[0]
    members = [known.partition("/") for known, preset in _named_presets() if parent in preset.algorithms]
    names = ", ".join(dict.fromkeys(member for folder, _, member in members if folder == group))
    meant = ", ".join(dict.fromkeys(kind for preset in presets for kind in preset.algorithms))
    raise ConfigError(
        f"The preset '{name}' is for {meant}, not for {algorithm}.",
        f"Presets of {group}/ for {algorithm}: {names}." if names else f"{group}/ has none for {algorithm}.",
    )


def preset_names() -> list[str]:
    """All presets that may follow ``<env>:<variant>``, as folder/name."""
    return sorted({name for name, _ in _named_presets()})


def _named_presets() -> Iterator[tuple[str, Preset]]:
    """Every preset of every family, with its folder and name."""
    for root in preset_roots():
        for folder in sorted(root.iterdir()):
            if not folder.is_dir() or folder.name in SPEC_FOLDERS:
                continue
            for file_name in _file_names(folder):
                preset = _read_from(root, folder.name, file_name)
                assert preset is not None
                for name, member in _members(file_name, preset):
                    yield f"{folder.name}/{name}", member


def _members(file_name: str, file: Preset) -> Iterator[tuple[str, Preset]]:
    """The presets in a file, by name."""
    if "presets" not in file.body:
        yield file_name, file
        return
    family, algorithms = file.body["presets"], file.body.get("algorithms", [])
    is_family = isinstance(family, dict) and all(isinstance(body, dict) for body in family.values())
    if not is_family or not isinstance(algorithms, list) or set(file.body) - {"presets", "algorithms"}:
        raise ConfigError(
            f"{file.label} must hold nothing but 'presets', which map names to settings, and a list of 'algorithms'.",
            "Write 'algorithms: [ppo]' and 'presets: {small: {seed: 1}}'.",
        )
    for name, body in family.items():
        yield name, Preset(file.label, dict(body), tuple(algorithms))


def env_names() -> list[str]:
    """The environments with a preset of their own."""
    return sorted({name for root in preset_roots() for name in _file_names(root / "env")})


def algorithm_names() -> list[str]:
    """The algorithms for environments without tuned values."""
    files = {name for root in preset_roots() for name in _file_names(root / "algo")}
    return sorted(files | set(registry.kinds("algorithm")))


def variant_names(env: str) -> list[str]:
    """The variants of an environment: those in its file or that of its suite, or every algorithm."""
    preset = find_env_preset(env)
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
