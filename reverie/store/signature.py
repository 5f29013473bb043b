"""Signs run configs: an HMAC of each config, with a key that only this user can read.

The HMACs are stored in the run folder, one per line. Nobody else can sign an edited config. The signature covers the
config only, not the other files of the run.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from reverie.store import documents

FILE = "config.hmac"
_KEY_BYTES = 32


def sign_config(run: Path, *configs: str) -> None:
    """Sign configs (as YAML). Does nothing if the key cannot be stored."""
    key = _load_key()
    if key is not None:
        with open(run / FILE, "a", encoding="ascii") as file:
            file.writelines(f"{_digest(key, config.encode())}\n" for config in configs)


def signed_configs(run: Path) -> dict[str, bytes]:
    """The signed ones of config.yaml and the configs that resumes replaced, by file name."""
    try:
        signatures = documents.read_bytes(run / FILE).split()
    except (OSError, ValueError):
        return {}
    key = _load_key() if signatures else None
    if key is None:
        return {}
    signed = {}
    for path in (run / "config.yaml", *sorted(run.glob("config-before-resume-*.yaml"))):
        with suppress(OSError, ValueError):
            data = documents.read_bytes(path)
            digest = _digest(key, data).encode()
            if any(hmac.compare_digest(digest, line) for line in signatures):
                signed[path.name] = data
    return signed


def _digest(key: bytes, data: bytes) -> str:
    return hmac.new(key, data, sha256).hexdigest()


def _load_key() -> bytes | None:
    """The user's key, created at first use. None if it cannot be stored."""
    try:
        path = _key_path()
        return _read_key(path) or _make_key(path)
    except (OSError, RuntimeError):  # no home folder, or it is not writable
        return None


def _key_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "reverie" / "key"


def _read_key(path: Path) -> bytes | None:
    """The key in a file. None if it is missing, invalid, or accessible to other users."""
    try:
        with documents.open_file(path, follow_links=True) as file:
            status = os.fstat(file.fileno())
            key = file.read(_KEY_BYTES + 1)
    except (FileNotFoundError, documents.Unreadable):
        return None
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    is_private = not stat.S_IMODE(status.st_mode) & 0o077
    return key if is_private and len(key) == _KEY_BYTES else None


def _make_key(path: Path) -> bytes | None:
    """Create a key, replacing an invalid one. Processes that do so at the same time all use the first key."""
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
