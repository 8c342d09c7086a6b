"""Tensors of a PyTorch checkpoint (.pth, zip format), read without executing any code it may contain.

A checkpoint is a pickle, and a pickle can call any function.  With PyTorch installed its `weights_only` reader is used;
otherwise this module's, which rebuilds tensors and plain containers and refuses every other global.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.bounded import allowance, check_archive
from socsched.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]
STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
SAVE_AGAIN = "save it again with torch.save({name: tensor for ... in model.state_dict().items()}, FILE)"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a checkpoint by name, and its plain metadata (numbers and text of `meta`)."""

    tensors: Arrays
    meta: Mapping[str, Any]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return the tensors of a .pth file: a state dict, or one under `state_dict`, `model_state` or `model`.

    Raises InputError for a file that cannot be read, is in PyTorch's pre-1.6 format, or needs anything but tensors and
    plain containers.
    """
    found = _with_torch(Path(path))
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: holds a {type(found).__name__}, not a state dict", SAVE_AGAIN)
    meta = found.get("meta")
    for key in ("state_dict", "model_state", "model"):
        if isinstance(found.get(key), Mapping):
            found = found[key]
            break
    claimed = sum(value.nelement() * value.element_size() for value in found.values() if hasattr(value, "nelement"))
    if claimed > allowance(Path(path).stat().st_size):
        raise InputError(f"{path}: its tensors are far larger than the file", SAVE_AGAIN)
    tensors = {str(name): _array(value) for name, value in found.items()}
    kept = {name: array for name, array in tensors.items() if array is not None}
    if not kept:
        raise InputError(f"{path}: holds no tensors", SAVE_AGAIN)
    return Checkpoint(kept, dict(meta) if isinstance(meta, Mapping) else {})


def _with_torch(path: Path) -> Any:
    try:
        torch = import_module("torch")
    except ImportError:
        return load(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the reader may raise anything for a hostile or broken file
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: PyTorch's weights_only reader refuses it: {text[0][:200]}", SAVE_AGAIN) from None


def _array(value: Any) -> npt.NDArray[Any] | None:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return np.asarray(value.detach().float() if value.is_floating_point() else value.detach())
    return None


def load(path: Path) -> Any:
    """Return the content of a zip checkpoint, tensors as numpy arrays; InputError for anything but plain data."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.stat().st_size)
            names = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
            if len(names) != 1:
                raise InputError(f"{path}: not a checkpoint: {len(names)} files data.pkl in it", SAVE_AGAIN)
            folder = names[0].removesuffix("data.pkl")
            return _Reader(path, archive, folder).load()
    except zipfile.BadZipFile:
        raise InputError(f"{path}: not a zip checkpoint (PyTorch 1.6 or later writes them)", SAVE_AGAIN) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the path") from None
    except InputError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise InputError(f"{path}: damaged: {error!r:.200}", SAVE_AGAIN) from None


@dataclass(frozen=True, slots=True)
class _Storage:
    kind: str


def _check_memory(path: Path, program: bytes) -> None:
    """Refuse a pickle that would make the reader allocate more than the file holds: far memo slots, stated sizes."""
    for opcode, argument, _ in pickletools.genops(program):
        place = int(argument or 0) if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") else 0
        if opcode.name == "BYTEARRAY8" or place > len(program):
            raise InputError(f"{path}: damaged: {opcode.name} of {argument!r:.20}", SAVE_AGAIN)


class _Reader(pickle.Unpickler):
    """Accepts three constructors and the storage types; every other global is refused before lookup."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, folder: str) -> None:
        program = archive.read(folder + "data.pkl")
        _check_memory(path, program)
        super().__init__(io.BytesIO(program))
        self._path, self._archive, self._folder = path, archive, folder
        self._left = allowance(path.stat().st_size)
        self._storages: dict[tuple[str, str, int], npt.NDArray[Any]] = {}
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            raise InputError(f"{path}: not little-endian", SAVE_AGAIN)

    def find_class(self, module: str, name: str) -> Any:
        """Return the substitute for a global, by name alone, without importing anything."""
        if module == "torch" and name in STORAGES:
            return _Storage(STORAGES[name])
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
        }
        if (module, name) in known:
            return known[module, name]
        raise InputError(f"{self._path}: refers to {module}.{name}, which is not a tensor type: not loaded", SAVE_AGAIN)

    def persistent_load(self, pid: Any) -> npt.NDArray[Any]:
        """Return a storage as a flat array."""
        _, storage, key, _, size = pid
        if not isinstance(storage, _Storage) or not str(key).isdigit():
            raise InputError(f"{self._path}: a storage of unknown kind", SAVE_AGAIN)
        known = (storage.kind, str(key), int(size))
        if known not in self._storages:
            data = self._archive.read(f"{self._folder}data/{key}")
            self._take(len(data))
            self._storages[known] = np.frombuffer(data, storage.kind, int(size))
        return self._storages[known]

    def _take(self, size: int) -> None:
        """Count array bytes against the limit: tensors that share or repeat a storage take little space in a file."""
        self._left -= size
        if self._left < 0:
            raise InputError(f"{self._path}: its tensors are far larger than the file", SAVE_AGAIN)

    def _tensor(
        self, storage: npt.NDArray[Any], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
    ) -> npt.NDArray[Any]:
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        count = math.prod(size)
        sound = offset >= 0 and min((*size, *stride, 0)) >= 0 and len(size) <= 32
        if not sound or (count and last >= len(storage)):
            raise InputError(f"{self._path}: a tensor reaches beyond its storage", SAVE_AGAIN)
        if not count:
            return np.zeros(size, storage.dtype)
        self._take(count * storage.itemsize)
        steps = [step * storage.itemsize for step in stride]
        view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
        return np.array(view)


def _parameter(data: Any, *_: Any) -> Any:
    return data
