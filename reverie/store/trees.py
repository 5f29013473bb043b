"""Nested states on disk without pickle: arrays in ``<name>.safetensors``, everything else in ``<name>.json``.

In the JSON an array is a reference ``{"__array__": key}``. Arrays that never change again
(:class:`reverie.core.types.Sealed`) are references ``{"__sealed__": file}`` into a store that checkpoints share.
Reading a tree cannot run code.
"""

from __future__ import annotations

import json
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from reverie.core.errors import RunError
from reverie.core.types import Array, Row, Sealed, State, digest_arrays
from reverie.store import documents
from reverie.store.files import sync_folder, write_bytes, write_pieces

ARRAY, SEALED = "__array__", "__sealed__"
SEALED_FILE = re.compile(r"[A-Za-z0-9_-]+\.[0-9a-f]{32}")
DTYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64", "float32": "F32", "uint32": "U32",
    "int32": "I32", "float16": "F16", "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Names of dtypes in safetensors files. Arrays are stored in this order, which aligns them."""


class SealedStore:
    """A folder of arrays that are written once, in files named after their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds(self, sealed: Sealed) -> bool:
        """Whether the store has these arrays."""
        return self.path(_file_name(sealed)).exists()

    def put(self, sealed: Sealed) -> str:
        """Write the arrays unless the store has them. Returns their name."""
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
                temporary.unlink(missing_ok=True)  # an incomplete file would only fill the disk
                raise
            sync_folder(self.folder)
        return name

    def get(self, name: str) -> SavedArrays:
        """Stored arrays, which are read on demand."""
        return SavedArrays(self.path(name))

    def check(self, name: str) -> None:
        """Raise RunError if the arrays are missing or damaged."""
        try:
            self.get(name).arrays  # noqa: B018 - reading verifies the hash
        except ValueError as error:
            raise RunError(f"The checkpoint is damaged: {error}") from error

    def delete(self, name: str) -> None:
        """Delete arrays that no checkpoint refers to."""
        self.path(name).unlink(missing_ok=True)

    def delete_except(self, names: set[str]) -> None:
        """Delete all other arrays, and incomplete files that a crash left."""
        for leftover in self.folder.glob("*.new"):
            leftover.unlink(missing_ok=True)
        for path in self.folder.glob("*.safetensors"):
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """The file of the arrays with this name."""
        if not SEALED_FILE.fullmatch(name):
            raise ValueError(f"'{name}' is not the name of saved arrays")
        return self.folder / f"{name}.safetensors"


class SavedArrays(Sealed):
    """Arrays in a file. They are read and verified at every access and not kept, so that loading a buffer never needs
    more than one chunk of extra memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name.partition(".")[0], {})
        self.path = path
        vars(self)["digest"] = path.stem.partition(".")[2]

    @property
    def arrays(self) -> Row:
        """Raises RunError if the content does not match the hash in the file name."""
        try:
            with documents.open_file(self.path) as file:
                arrays: Row = load(file.read())
            if digest_arrays(arrays) == self.digest:
                return arrays
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is missing.") from error
        except (ValueError, TypeError, KeyError, OSError, SafetensorError) as error:
            raise RunError(f"{self.path} is damaged: {error}") from error
        raise RunError(f"{self.path} is damaged: its content does not match the hash in its name.")


def write_tree(path: Path, tree: State, store: SealedStore | None = None) -> list[str]:
    """Write ``path.json`` and, if there are arrays, ``path.safetensors``. Returns the names of its sealed arrays."""
    writer = _Writer(store)
    plain = writer.split(tree, "")
    if writer.arrays:
        write_arrays(_named(path, "safetensors"), writer.arrays)
    write_bytes(_named(path, "json"), json.dumps(plain).encode())
    return writer.sealed


def read_tree(path: Path, store: SealedStore | None = None) -> State:
    """Read what ``write_tree`` wrote."""
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


def write_arrays(path: Path, arrays: Row) -> None:
    """Write a safetensors file, with the same bytes as the library but without a second copy of all arrays."""
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
    write_pieces(path, chain([len(text).to_bytes(8, "little"), text], numbers))


class _Writer:
    """Replaces the arrays of a tree by references and collects them."""

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
        if hasattr(node, "detach"):  # a tensor, for example in a carry; this package does not import torch
            node = node.detach().cpu().numpy()
        if isinstance(node, np.ndarray):
            while path in self.arrays:  # keys may contain slashes, so two paths may be equal
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
                raise ValueError("it refers to sealed arrays, which belong to checkpoints only")
            return store.get(node[SEALED])
        return {key: _join(value, arrays, store) for key, value in node.items()}
    return [_join(value, arrays, store) for value in node] if isinstance(node, list) else node


def _file_name(sealed: Sealed) -> str:
    return f"{sealed.name}.{sealed.digest}"


def _read_arrays(path: Path) -> Row:
    """Read writable arrays, one at a time, so that a large file is never in memory twice."""
    if not os.path.lexists(path):
        return {}
    documents.open_file(path).close()  # refuses links and pipes
    with safe_open(path, "numpy") as file:
        return {key: np.require(file.get_tensor(key), requirements="W") for key in file.keys()}  # noqa: SIM118


def _link(source: Path, path: Path) -> bool:
    """Hard-link a file to a second name. Returns False if that is impossible, as between disks."""
    try:
        path.unlink(missing_ok=True)
        os.link(source, path)
    except OSError:
        return False
    return True


def _plain(array: Array) -> Array:
    """The array as files store it: contiguous and little-endian."""
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _named(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")
