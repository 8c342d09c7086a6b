"""Arrays of an .npz file, read within bounds and without pickles."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.bounded import check_archive
from socsched.errors import InputError

MOST_ARRAYS = 20_000
_KINDS = "biuf"
"""Accepted dtype kinds: booleans, integers and real numbers."""


Arrays = dict[str, npt.NDArray[Any]]


def read_npz(path: str | Path, what: str = "arrays", hint: str = "write it with numpy.savez") -> Arrays:
    """Return the arrays of an .npz file by name; InputError for anything but numeric arrays of a sensible size."""
    found: Arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = Path(path).stat().st_size
            check_archive(archive, size)
            entries = archive.infolist()
            if len(entries) > MOST_ARRAYS:
                raise ValueError(f"{len(entries)} arrays, expected at most {MOST_ARRAYS}")
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"two arrays are called {name!r}")
                found[name] = _array(archive.read(entry), name)
    except OSError as error:
        raise InputError(f"{path}: not a readable {what} file: {error.strerror or error}", "check the path") from None
    except InputError:
        raise
    except Exception as error:  # zipfile raises a dozen types for a damaged archive, numpy's header reader any
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a readable {what} file: {reason:.300}", hint) from None
    return found


def _array(raw: bytes, name: str) -> npt.NDArray[Any]:
    """Return the array of an .npy file; its header is trusted only as far as the data bytes support it."""
    file = io.BytesIO(raw)
    version = np.lib.format.read_magic(file)
    readers: Mapping[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{name}: unknown version {version} of the npy format")
    shape, transposed, dtype = readers[version](file)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"{name}: expected numbers, got {dtype}")
    if any(side < 0 for side in shape) or len(shape) > 32:
        raise ValueError(f"{name}: not the shape of an array: {shape}")
    rest = len(raw) - file.tell()
    needed = math.prod(shape) * dtype.itemsize
    if needed != rest:
        raise ValueError(f"{name}: shape {shape} of {dtype} needs {needed} bytes, not {rest}")
    flat = np.frombuffer(raw, dtype, offset=file.tell()) if rest else np.zeros(0, dtype)
    return np.array(flat.reshape(shape, order="F" if transposed else "C"))
