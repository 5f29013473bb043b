"""Trees on disk without pickle: arrays go to ``<name>.safetensors``, everything else to ``<name>.json``.

In the JSON an array is a reference ``{"__array__": key}``, and arrays that never change again
(:class:`reverie.core.types.Sealed`) are references ``{"__sealed__": file}`` into a store that checkpoints share.
Nothing that is read can run code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from reverie.core.errors import RunError
from reverie.core.types import Array, Row, Sealed, State, digest_arrays
from reverie.store import documents

ARRAY, SEALED = "__array__", "__sealed__"
SEALED_FILE = re.compile(r"[A-Za-z0-9_-]+\.[0-9a-f]{32}")
DTYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64", "float32": "F32", "uint32": "U32",
    "int32": "I32", "float16": "F16", "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Types by their names in safetensors files, in the order in which arrays lie there: so each is aligned."""

WRITE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EEXIST,
    errno.ENOTDIR, errno.ENOTEMPTY,
}  # fmt: skip


class SealedStore:
    """A folder of arrays that are written once, named after their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds(self, sealed: Sealed) -> bool:
        """Whether the same arrays were put in before."""
        return self.path(_file_name(sealed)).exists()

    def put(self, sealed: Sealed) -> str:
        """Write the arrays if they are not there yet; the name to ask for."""
        name = _file_name(sealed)
        path = self.path(name)
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".new")
            try:
                if not (isinstance(sealed, SavedArrays) and _link(sealed.path, temporary)):
                    write_arrays(temporary, sealed.arrays)
                os.replace(temporary, path)
            except OSError:
                temporary.unlink(missing_ok=True)  # half of it would only fill the disk further
                raise
            sync_folder(self.folder)
        return name

    def get(self, name: str) -> SavedArrays:
        """Arrays that were put in, to be read when they are asked for."""
        return SavedArrays(self.path(name))

    def check(self, name: str) -> None:
        """The arrays are there and are what was saved; RunError otherwise."""
        try:
            self.get(name).arrays  # noqa: B018 - reading them is what tells
        except ValueError as error:
            raise RunError(f"What was saved is damaged: {error}") from error

    def delete(self, name: str) -> None:
        """Delete arrays that no checkpoint names."""
        self.path(name).unlink(missing_ok=True)

    def delete_except(self, names: set[str]) -> None:
        """Delete what is not named, and what a crash left half written."""
        for leftover in self.folder.glob("*.new"):
            leftover.unlink(missing_ok=True)
        for path in self.folder.glob("*.safetensors"):
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """The file of these arrays."""
        if not SEALED_FILE.fullmatch(name):
            raise ValueError(f"'{name}' is not the name of saved arrays")
        return self.folder / f"{name}.safetensors"


class SavedArrays(Sealed):
    """Arrays in a file. They are read, and compared with their hash, each time: who loads a buffer of many of them
    never holds more than one beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name.partition(".")[0], {})
        self.path = path
        vars(self)["digest"] = path.stem.partition(".")[2]

    @property
    def arrays(self) -> Row:
        """RunError if the file does not hold what its name says."""
        try:
            with documents.open_file(self.path) as file:
                arrays: Row = load(file.read())
            if digest_arrays(arrays) == self.digest:
                return arrays
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is missing.") from error
        except (ValueError, TypeError, KeyError, OSError, SafetensorError) as error:
            raise RunError(f"{self.path} is damaged: {error}") from error
        raise RunError(f"{self.path} is damaged: its hash differs.")


def write_tree(path: Path, tree: State, store: SealedStore | None = None) -> list[str]:
    """Write ``path.json`` and, if there are arrays, ``path.safetensors``; the names of sealed arrays it uses."""
    writer = _Writer(store)
    plain = writer.split(tree, "")
    if writer.arrays:
        write_arrays(_named(path, "safetensors"), writer.arrays)
    write_bytes(_named(path, "json"), json.dumps(plain).encode())
    return writer.sealed


def read_tree(path: Path, store: SealedStore | None = None) -> State:
    """What ``write_tree`` wrote."""
    try:
        plain = documents.read_json(_named(path, "json"), documents.LARGEST_STATE)
        tree = _join(plain, _read_arrays(_named(path, "safetensors")), store)
    except FileNotFoundError as error:
        raise RunError(f"{error.filename} is missing.") from error
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(tree, dict):
        raise RunError(f"{path}.json is damaged: not a mapping.")
    return tree


@contextmanager
def explain_write_errors(run: Path, go_on: str) -> Iterator[None]:
    """Turn a disk that is full or cannot be written to into one message that says how to go on, with ``go_on``."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and not run.exists():
            fix = "It was moved or deleted in mid-run. Put it back and resume it, or start a new run."
            raise RunError(f"The folder of the run, '{run}', is gone.", fix) from error
        if error.errno not in WRITE_ERRORS and not _is_missing_inside(run, error):
            raise
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise RunError(
            f"'{error.filename or run}' could not be written: {reason}.",
            f"Earlier checkpoints are untouched. Make room or mend the permissions, then: {go_on}",
        ) from error


def _is_missing_inside(run: Path, error: OSError) -> bool:
    """Whether a part of the run's folder was deleted; a file of the env's that is missing is another matter."""
    is_named = error.errno == errno.ENOENT and isinstance(error.filename, str)
    return is_named and Path(error.filename).absolute().is_relative_to(run.absolute())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file and make sure that it is on the disk."""
    _write_pieces(path, [data])


def write_arrays(path: Path, arrays: Row) -> None:
    """Write a safetensors file, byte for byte as its library would, but never with a second copy of all arrays."""
    order = list(DTYPES)
    keys = sorted(arrays, key=lambda key: (order.index(arrays[key].dtype.name), key))
    table, end = {}, 0
    for key in keys:
        array, begin = arrays[key], end
        end += array.nbytes
        table[key] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    numbers = (_plain(arrays[key]).data for key in keys)
    _write_pieces(path, chain([len(text).to_bytes(8, "little"), text], numbers))


def _write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def install_folder(temporary: Path, path: Path) -> None:
    """Rename a finished folder to where it belongs; one that is there already makes way as a whole.

    So a crash leaves the old one, the new one or none, but never a mixture, and nothing is written through links
    that lie in the old one.
    """
    sync_folder(temporary)
    former = path.with_name(f".{path.name}.old")
    delete_any(former)
    if os.path.lexists(path):
        os.rename(path, former)
    os.rename(temporary, path)
    sync_folder(path.parent)
    delete_any(former)


def delete_any(path: Path) -> None:
    """Delete a folder, a file or a link (not what it leads to), if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def digest_files(folder: Path) -> dict[str, str]:
    """A hash of each file in a folder."""
    return {file.name: _digest_file(file) for file in sorted(folder.iterdir())}


def check_file(path: Path, digest: str) -> None:
    """The file is there with the content that was saved; RunError otherwise."""
    if not path.is_file():
        raise RunError(f"{path} is missing.")
    try:
        is_saved = _digest_file(path) == digest
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not is_saved:
        raise RunError(f"{path} is damaged: its hash is not the saved one.")


def digest_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _digest_file(path: Path) -> str:
    """The same of a file, which is read piece by piece."""
    with documents.open_file(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class _Writer:
    """Takes a tree apart: arrays and sealed arrays to their places, the rest stays."""

    def __init__(self, store: SealedStore | None) -> None:
        self.store = store
        self.arrays: Row = {}
        self.sealed: list[str] = []

    def split(self, node: Any, path: str) -> Any:
        if isinstance(node, dict):
            return {str(key): self.split(value, f"{path}/{key}") for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [self.split(value, f"{path}/{i}") for i, value in enumerate(node)]
        if isinstance(node, Sealed):
            if self.store is None:
                return self.split(node.arrays, path)
            self.sealed.append(self.store.put(node))
            return {SEALED: self.sealed[-1]}
        if hasattr(node, "detach"):  # a tensor, e.g. in a carry; this package does not import torch
            node = node.detach().cpu().numpy()
        if isinstance(node, np.ndarray):
            while path in self.arrays:  # keys may hold slashes, so two paths may look the same
                path += "+"
            self.arrays[path] = node
            return {ARRAY: path}
        return node.item() if isinstance(node, np.generic) else node


def _join(node: Any, arrays: Row, store: SealedStore | None) -> Any:
    if isinstance(node, dict):
        if set(node) == {ARRAY}:
            return arrays[node[ARRAY]]
        if set(node) == {SEALED}:
            if store is None:
                raise ValueError("it refers to saved arrays outside of itself")
            return store.get(node[SEALED])
        return {key: _join(value, arrays, store) for key, value in node.items()}
    return [_join(value, arrays, store) for value in node] if isinstance(node, list) else node


def _file_name(sealed: Sealed) -> str:
    return f"{sealed.name}.{sealed.digest}"


def _read_arrays(path: Path) -> Row:
    """One array after the other, so that a big file is never in memory twice; each can be written to."""
    if not os.path.lexists(path):
        return {}
    documents.open_file(path).close()  # refuses links and pipes
    with safe_open(path, "numpy") as file:
        return {key: np.require(file.get_tensor(key), requirements="W") for key in file.keys()}  # noqa: SIM118


def _link(source: Path, path: Path) -> bool:
    """Whether a file could be had under a second name, on the same disk, without a copy."""
    try:
        path.unlink(missing_ok=True)
        os.link(source, path)
    except OSError:
        return False
    return True


def _plain(array: Array) -> Array:
    """As it must lie in a file: in one stretch, the lowest byte of each number first."""
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _named(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")
