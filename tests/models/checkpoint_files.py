"""A zip checkpoint as PyTorch writes it, made without PyTorch."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np


class _Global:
    def __init__(self, name: str) -> None:
        self.name = name


class _Pickler(pickle._Pickler):  # the Python one, whose dispatch can be extended
    """Writes arrays as torch._utils._rebuild_tensor_v2 over persistent storages."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 2)
        self.storages: list[bytes] = []

    def _name(self, module: str, name: str) -> None:
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def _tensor(self, array: np.ndarray) -> None:
        kind = {"f": "FloatStorage", "i": "LongStorage"}[array.dtype.kind]
        array = np.ascontiguousarray(array, "<f4" if array.dtype.kind == "f" else "<i8")
        self._name("torch._utils", "_rebuild_tensor_v2")
        self.write(pickle.MARK + pickle.MARK)
        self.save("storage")
        self._name("torch", kind)
        for value in (str(len(self.storages)), "cpu", array.size):
            self.save(value)
        self.write(pickle.TUPLE + pickle.BINPERSID)
        self.storages.append(array.tobytes())
        strides = tuple(step // array.itemsize for step in array.strides)
        for value in (0, array.shape, strides, False, OrderedDict()):
            self.save(value)
        self.write(pickle.TUPLE + pickle.REDUCE)

    dispatch[np.ndarray] = _tensor


def save(path: Path, content: Any) -> Path:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", file.getvalue())
        archive.writestr("archive/byteorder", "little")
        for number, data in enumerate(pickler.storages):
            archive.writestr(f"archive/data/{number}", data)
        archive.writestr("archive/version", "3\n")
    return path
