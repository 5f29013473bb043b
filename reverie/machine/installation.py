"""How this copy of Reverie was installed, so that messages name a command that works here.

``pip install "reverie[video]"`` asks a package index, which has nothing for a copy that was installed from a checkout.
"""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import reverie


def install_command(extra: str) -> str:
    """The command that installs an extra of Reverie."""
    checkout = Path(reverie.__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        where = "." if Path.cwd() == checkout else str(checkout)
        return f"pip install -e {_quoted(f'{where}[{extra}]')}"
    return f"pip install {_quoted(_source(extra))}"


def _source(extra: str) -> str:
    """What pip was given for Reverie, with the extra: a folder, a repository or the name."""
    try:
        recorded = json.loads(metadata.distribution("reverie").read_text("direct_url.json") or "{}")
        url = str(recorded.get("url", ""))
        system = str(recorded.get("vcs_info", {}).get("vcs", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return f"reverie[{extra}]"
    if url.startswith("file:") and "dir_info" in recorded:
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    return f"reverie[{extra}] @ {system}+{url}" if system else f"reverie[{extra}]"


def _quoted(text: str) -> str:
    """In double quotes, which all shells accept, if the text allows it."""
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)
