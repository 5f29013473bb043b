"""The user's cache: files that can be deleted at any time. ``REVERIE_CACHE`` names another folder."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from reverie.store import documents


def cache_folder(kind: str) -> Path:
    """Where files of one kind are kept. RuntimeError if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    default = (Path(base) if base else Path.home() / ".cache") / "reverie"
    return Path(os.environ.get("REVERIE_CACHE") or default) / kind


def read_entry(kind: str, key: str) -> Any:
    """A cached value, or None."""
    try:
        return documents.read_json(cache_folder(kind) / f"{key}.json")
    except (OSError, RuntimeError, ValueError):
        return None


def write_entry(kind: str, key: str, value: Any, replaces: bool = True) -> None:
    """Cache a value, if possible. Otherwise it is only computed again. Without ``replaces`` the first writer wins."""
    with suppress(OSError, RuntimeError):
        path = cache_folder(kind) / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
            json.dump(value, file)
        if replaces:
            os.replace(file.name, path)
            return
        try:
            os.link(file.name, path)
        finally:
            os.unlink(file.name)
