"""Arrays of an .npz file, read within bounds and without pickles."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from socsched.bounded import check_archive, open_file
from socsched.errors import InputError
from socsched.text import one_line

MOST_ARRAYS = 20_000
_KINDS = "biuf"
"""Accepted dtype kinds: booleans, integers and real numbers."""


Arrays = dict[str, npt.NDArray[Any]]


def read_npz(
    path: str | Path,
    what: str = "arrays",
    hint: str = "write it with numpy.savez",
    wanted: Collection[str] | None = None,
    most: int | None = None,
) -> Arrays:
    """Return the arrays of an .npz file by name, only `wanted` ones if given.

    `most`: bytes that they may expand to, if not the allowance of the file's size.  Raises InputError for anything but
    numeric arrays of a sensible size.
    """
    with _entries(path, what, hint, most) as (archive, entries):
        chosen = entries if wanted is None else {name: entries[name] for name in wanted if name in entries}
        return {name: _array(archive.read(entry), name) for name, entry in chosen.items()}


def read_shapes(path: str | Path, what: str, hint: str, most: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type of every array of an .npz file, without reading the arrays; InputError as `read_npz`."""
    shapes = {}
    with _entries(path, what, hint, most) as (archive, entries):
        for name, entry in entries.items():
            with archive.open(entry) as stream:
                shape, _, dtype = _header(stream, name)
            shapes[name] = shape, dtype.name
    return shapes


@contextmanager
def _entries(
    path: str | Path, what: str, hint: str, most: int | None
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Yield an archive and its entries by the names of their arrays; InputError for whatever reading them raises."""
    try:
        with open_file(path, f"{what} file", hint) as file, zipfile.ZipFile(file) as archive:
            size = file.seek(0, 2)
            check_archive(archive, size, most)
            entries: dict[str, zipfile.ZipInfo] = {}
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if name in entries:
                    raise ValueError(f"two arrays are called {name!r}")
                entries[name] = entry
            if len(entries) > MOST_ARRAYS:
                raise ValueError(f"{len(entries)} arrays, expected at most {MOST_ARRAYS}")
            yield archive, entries
    except OSError as error:
        raise InputError(f"{path}: not a readable {what} file: {error.strerror or error}", "check the path") from None
    except InputError:
        raise
    except Exception as error:  # zipfile raises a dozen types for a damaged archive, numpy's header reader any
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a readable {what} file: {one_line(reason):.300}", hint) from None


def _array(raw: bytes, name: str) -> npt.NDArray[Any]:
    """Return the array of an .npy file; its header is trusted only as far as the data bytes support it."""
    file = io.BytesIO(raw)
    shape, transposed, dtype = _header(file, name)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"{name}: expected numbers, got {dtype}")
    rest = len(raw) - file.tell()
    needed = math.prod(shape) * dtype.itemsize
    if needed != rest:
        raise ValueError(f"{name}: shape {shape} of {dtype} needs {needed} bytes, not {rest}")
    flat = np.frombuffer(raw, dtype, offset=file.tell()) if rest else np.zeros(0, dtype)
    return np.array(flat.reshape(shape, order="F" if transposed else "C"))


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    readers: Mapping[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{name}: unknown version {version} of the npy format")
    shape, transposed, dtype = readers[version](file)
    if any(side < 0 for side in shape) or len(shape) > 32:
        raise ValueError(f"{name}: not the shape of an array: {shape}")
    return shape, transposed, dtype
