"""What a run list needs of a config.yaml: env, algorithm, seed and a hash, without parsing all of it.

Parsing a config takes 2-4 ms, so reading ten thousand runs would take half a minute. Files as Reverie writes them are
read by their lines; all others are parsed and written in that form first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from reverie.store import documents

LARGEST_CONFIG = 256 << 10
LONGEST_LABEL = 200
_SEED = re.compile(r"^seed: (\d{1,18})$", re.MULTILINE)
_ENV = re.compile(r"^env:\n  id: ([\w./-]+(?::[\w./-]+)?)$", re.MULTILINE)
_ALGORITHM = re.compile(r"^algorithm:\n  kind: ([\w.-]+)$", re.MULTILINE)
_NOT_A_DIFFERENCE = re.compile(
    r"^(?:seed|schema_version|log|checkpoint):.*\n(?:[ -].*\n)*|^  (?:engine|(?:numpy_)?matmul):.*\n"
    r"|^    (?:random|reference):.*\n",
    re.MULTILINE,
)
"""Lines that do not make runs different experiments."""


@dataclass(frozen=True)
class ConfigFacts:
    """Env id, algorithm and seed of a run, and a hash that is equal for runs that differ only in their seed."""

    env: str = ""
    algorithm: str = ""
    seed: int | None = None
    hash: str = ""


def read_config_facts(path: Path) -> ConfigFacts:
    """The facts of a config.yaml. OSError or ValueError if it cannot be read."""
    text = documents.read_text(path, LARGEST_CONFIG)
    return _facts_of_lines(text) or _facts_of_tree(text)


def _facts_of_lines(text: str) -> ConfigFacts | None:
    """None for a file in another form than the one that Reverie writes."""
    if not text.startswith("schema_version: "):
        return None
    seed, env, algorithm = (pattern.search(text) for pattern in (_SEED, _ENV, _ALGORITHM))
    if seed is None or env is None or algorithm is None:
        return None
    return ConfigFacts(env[1][:LONGEST_LABEL], algorithm[1][:LONGEST_LABEL], int(seed[1]), _hash(text))


def _facts_of_tree(text: str) -> ConfigFacts:
    from reverie.config.yaml_text import dump_yaml, load_yaml
    from reverie.core.errors import ConfigError

    try:
        tree = load_yaml(text, "config.yaml")
    except ConfigError as error:
        raise ValueError(error.message) from error
    if not isinstance(tree, dict):
        raise ValueError("it holds no settings")
    seed = tree.get("seed")
    env, algorithm = _text(tree.get("env"), "id"), _text(tree.get("algorithm"), "kind")
    return ConfigFacts(env, algorithm, seed if type(seed) is int else None, _hash(dump_yaml(tree)))


def _text(section: Any, key: str) -> str:
    value = section.get(key) if isinstance(section, dict) else None
    return str(value)[:LONGEST_LABEL] if isinstance(value, str) else ""


def _hash(text: str) -> str:
    return blake2b(_NOT_A_DIFFERENCE.sub("", text).encode(), digest_size=6).hexdigest()
