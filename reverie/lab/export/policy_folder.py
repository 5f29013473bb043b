"""A policy without the rest of its run, as a folder or a zip file: small enough to send, complete enough to act.

The folder is a run with one policy and no checkpoints, metrics or logs, so ``reverie eval``, ``play``, ``record`` and
``reverie.load`` take it like any other run.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reverie.config.secrets import hide_in_tree
from reverie.config.yaml_text import dump_yaml, load_yaml
from reverie.policy import read_bundle
from reverie.runs.policies import policy_folder
from reverie.store import documents
from reverie.store.files import delete_any, install_folder
from reverie.store.run_folder import RunFolder
from reverie.store.signature import FILE as SIGNATURE

SENT = ("spec", "seed", "created", "versions", "git")
"""What is kept of the manifest. The command line and the machine stay private."""
README = """# {spec}

A policy trained with Reverie, from run `{run}`. Unpack it and type, in the folder above:

    reverie eval ./{name}
    reverie play ./{name}

Or in Python: `reverie.load("./{name}").act(observation)`.
"""


def write_policy_folder(run: Path, which: str, out: Path) -> None:
    """Write the folder. It is complete or absent."""
    temporary = out.with_name(f".{out.name}.new")
    delete_any(temporary)
    try:
        for name, data in _files(run, which, out.name):
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        install_folder(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def zip_policy(run: Path, which: str, name: str) -> bytes:
    """The same folder as a zip file that unpacks to a folder ``name``. Equal policies give equal files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in _files(run, which, name):
            archive.writestr(zipfile.ZipInfo(f"{name}/{path}"), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _files(run: Path, which: str, name: str) -> Iterator[tuple[str, bytes]]:
    """The files of the folder, by their paths in it."""
    folder = RunFolder(run)
    policy = policy_folder(run, which)
    read_bundle(policy)  # raises if it is damaged
    manifest = {key: value for key, value in folder.manifest().items() if key in SENT}
    yield "README.md", README.format(spec=manifest.get("spec", ""), run=folder.name, name=name).encode()
    yield from _config_files(run)
    yield "manifest.json", _as_json(manifest)
    status = {key: value for key, value in folder.status().items() if key != "best_policy"}
    best = {"best_policy": policy.name} if policy.name.startswith("best-") else {}
    yield "status.json", _as_json({**status, **best})
    for path in sorted(policy.iterdir()):
        yield f"policies/{policy.name}/{path.name}", documents.read_bytes(path, documents.LARGEST_STATE)


def _config_files(run: Path) -> Iterator[tuple[str, bytes]]:
    """The config, and its signature, so that this user's own classes still load here. Without secrets."""
    data = documents.read_bytes(run / "config.yaml")
    tree = load_yaml(data.decode(), "config.yaml")
    shown = hide_in_tree(tree)
    if shown is not tree:
        data = dump_yaml(shown).encode()
    elif (run / SIGNATURE).is_file():
        yield SIGNATURE, documents.read_bytes(run / SIGNATURE)
    yield "config.yaml", data


def _as_json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
