"""Which run folders the user made here: an HMAC of each config, with a key that only they can read.

A config may name code by dotted paths and servers to send to. Of a run that was made here they are the user's own
choice. The HMACs lie in the run folder, one per line; whoever edits a config cannot make a new one. They say nothing
about the other files of the run, so only names that a signed config holds are trusted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from reverie import documents
from reverie.config.tree import Tree, join_path, leaves
from reverie.config.yaml_text import load_yaml
from reverie.core.errors import ConfigError
from reverie.envs.make import is_dotted

FILE = "config.hmac"
NAMES_CODE = ("kind", "controller")
_KEY_BYTES = 32


def sign_config(run: Path, *configs: str) -> None:
    """Say of configs (as YAML) that they are the user's own. Where no key can be kept, nothing is said."""
    key = _load_key()
    if key is not None:
        with open(run / FILE, "a", encoding="ascii") as file:
            file.writelines(f"{_digest(key, config.encode())}\n" for config in configs)


def is_made_here(run: Path) -> bool:
    """Whether the run's config is as the user made it."""
    return "config.yaml" in _signed_configs(run) and not _is_inside(run)


def own_names(run: Path) -> frozenset[str] | None:
    """The names outside of Reverie in the configs that the user made here; None if the run's config is another's."""
    configs = _signed_configs(run)
    if "config.yaml" not in configs or _is_inside(run):
        return None
    return frozenset().union(*map(_names_in, configs.values()))


@lru_cache(maxsize=128)
def _names_in(data: bytes) -> frozenset[str]:
    """The names in one config. Remembered: every resume keeps the config before it, and parsing one takes 50 ms."""
    with suppress(ConfigError, UnicodeDecodeError):  # whoever reads it will say so
        tree = load_yaml(data.decode(), "config.yaml")
        return foreign_names(tree) if isinstance(tree, dict) else frozenset()
    return frozenset()


def _is_inside(run: Path) -> bool:
    """Whether the current folder is in the run: then names could lead to modules in there, which nobody signed."""
    try:
        return Path.cwd().resolve().is_relative_to(run.resolve())
    except OSError:  # the current folder is gone
        return False


def foreign_names(tree: Tree) -> frozenset[str]:
    """The classes and envs in a config that are outside of Reverie, in components, controllers and phases."""
    return frozenset(_foreign_names(tree))


def _foreign_names(tree: Tree) -> Iterator[str]:
    for path, value in leaves(tree):
        key = join_path(path)
        if not isinstance(value, str) or key.startswith("env.kwargs."):
            continue
        is_env = key.endswith("env.id") and (":" in value or is_dotted(value))
        if is_env or (key.rpartition(".")[2] in NAMES_CODE and "." in value):
            yield value


def _signed_configs(run: Path) -> dict[str, bytes]:
    """The content of config.yaml, and of those that resumes have replaced, as far as they are signed."""
    try:
        known = documents.read_bytes(run / FILE).split()
    except (OSError, ValueError):
        return {}
    key = _load_key() if known else None
    if key is None:
        return {}
    found = {}
    for path in (run / "config.yaml", *sorted(run.glob("config-before-resume-*.yaml"))):
        with suppress(OSError, ValueError):
            data = documents.read_bytes(path)
            digest = _digest(key, data).encode()
            if any(hmac.compare_digest(digest, line) for line in known):
                found[path.name] = data
    return found


def _digest(key: bytes, data: bytes) -> str:
    return hmac.new(key, data, sha256).hexdigest()


def _load_key() -> bytes | None:
    """The user's key, made when it is first needed; None where it cannot be kept."""
    try:
        path = _key_path()
        return _read_key(path) or _make_key(path)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return None


def _key_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "reverie" / "key"


def _read_key(path: Path) -> bytes | None:
    """The key in a file; one that others may have read or written counts as none."""
    try:
        with documents.open_file(path, follow_links=True) as file:
            about = os.fstat(file.fileno())
            key = file.read(_KEY_BYTES + 1)
    except (FileNotFoundError, documents.Unreadable):
        return None
    if about.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    is_private = not stat.S_IMODE(about.st_mode) & 0o077
    return key if is_private and len(key) == _KEY_BYTES else None


def _make_key(path: Path) -> bytes | None:
    """A new key in place of none or a spoilt one; of processes that make one at once, all take the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".key-{secrets.token_hex(8)}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        if os.path.lexists(path) and _read_key(path) is None:
            path.unlink()
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    return _read_key(path)
