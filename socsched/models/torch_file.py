"""Tensors of a PyTorch checkpoint (.pth, zip format), read without executing any code it may contain.

A checkpoint is a pickle, and a pickle can call any function.  Neither `pickle` nor PyTorch reads it: this module
interprets the instructions that build tensors and plain containers, and refuses every other one.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.bounded import allowance, check_archive, open_file
from socsched.errors import InputError
from socsched.text import one_line

Arrays = dict[str, npt.NDArray[Any]]
BFLOAT16 = "bfloat16"
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
    "BFloat16Storage": BFLOAT16,
}
"""Names of storages, and numpy's types; bfloat16 becomes float32."""
MOST_PROGRAM = 16 * 2**20
"""Bytes of the pickle itself; a tensor takes some 200."""
MOST_INSTRUCTIONS = 2_000_000
"""Instructions of a pickle; a tensor takes some 30."""
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
    content = load(Path(path))
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, not a state dict", SAVE_AGAIN)
    meta = content.get("meta")
    for key in ("state_dict", "model_state", "model"):
        if isinstance(content.get(key), dict):
            content = content[key]
            break
    tensors = {str(name): value for name, value in content.items() if isinstance(value, np.ndarray)}
    if not tensors:
        raise InputError(f"{path}: holds no tensors", SAVE_AGAIN)
    plain = meta if isinstance(meta, dict) else {}
    return Checkpoint(tensors, {key: value for key, value in plain.items() if isinstance(value, str | int | float)})


def load(path: Path) -> Any:
    """Return the content of a zip checkpoint, tensors as numpy arrays; InputError for anything but plain data."""
    try:
        with open_file(path, "checkpoint", SAVE_AGAIN) as file, zipfile.ZipFile(file) as archive:
            size = file.seek(0, 2)
            check_archive(archive, size)
            names = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
            if len(names) != 1:
                raise InputError(f"{path}: not a checkpoint: {len(names)} files data.pkl in it", SAVE_AGAIN)
            return _Reader(path, archive, names[0].removesuffix("data.pkl"), allowance(size)).run()
    except zipfile.BadZipFile:
        raise InputError(f"{path}: not a zip checkpoint (PyTorch 1.6 or later writes them)", SAVE_AGAIN) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the path") from None
    except InputError:
        raise
    except Exception as error:  # a damaged archive or pickle may raise anything
        reason = error.args[0] if error.args and isinstance(error.args[0], str) else type(error).__name__
        raise InputError(f"{path}: damaged: {one_line(reason):.200}", SAVE_AGAIN) from None


@dataclass(frozen=True, slots=True)
class _Storage:
    """The type of a storage; what a pickle refers to by name."""

    kind: str


_DICT, _TENSOR, _PARAMETER = "OrderedDict", "tensor", "parameter"
_CALLED = {
    ("collections", "OrderedDict"): _DICT,
    ("torch._utils", "_rebuild_tensor_v2"): _TENSOR,
    ("torch._utils", "_rebuild_parameter"): _PARAMETER,
}


@dataclass(frozen=True, slots=True)
class _Function:
    """A constructor that a pickle may call."""

    name: str


class _Mark:
    """The place on the stack where a container's items begin."""


class _Reader:
    """An interpreter of the instructions that checkpoints consist of.

    It builds numbers, text, tuples, lists, dicts and arrays.  A tuple that holds a tuple twice, and so on, is small as
    long as nothing walks it; so nothing here hashes, compares or prints a container.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, folder: str, most: int) -> None:
        self._path, self._archive, self._folder, self._left = path, archive, folder, most
        self._program = archive.read(folder + "data.pkl")
        if len(self._program) > MOST_PROGRAM:
            raise ValueError(f"data.pkl is larger than {MOST_PROGRAM // 2**20} MiB")
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            raise InputError(f"{path}: not little-endian", SAVE_AGAIN)
        self._storages: dict[tuple[str, str], npt.NDArray[Any]] = {}
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return what the program leaves; IndexError, KeyError, TypeError or ValueError if it is none."""
        stack = self._stack
        instructions: Iterator[tuple[Any, Any, Any]] = pickletools.genops(self._program)
        for opcode, argument, _ in islice(instructions, MOST_INSTRUCTIONS):
            name = opcode.name
            if name in _PUSHED:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
                self._memo[len(self._memo) if argument is None else argument] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(self._memo[argument])
            elif name in ("GLOBAL", "STACK_GLOBAL"):
                module, _, last = argument.partition(" ") if argument else (stack.pop(-2), "", stack.pop())
                stack.append(self._named(module, last))
            elif name == "MARK":
                stack.append(_Mark)
            elif name in _METHODS:
                _METHODS[name](self)
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise ValueError(f"instruction {name}")
        raise ValueError(f"no end within {MOST_INSTRUCTIONS} instructions")

    def _marked(self) -> list[Any]:
        """Return what was pushed after the last mark, and drop both."""
        place = len(self._stack) - 1
        while self._stack[place] is not _Mark:
            place -= 1
            if place < 0:
                raise ValueError("no mark")
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def _list(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError("items of no list")
        self._stack[-1].extend(items)

    def _items(self, items: list[Any]) -> None:
        held = self._stack[-1]
        if type(held) is not dict:
            raise ValueError("items of no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not _short(key):
                raise ValueError("a key that is no name or number")
            held[key] = value

    def _tuple(self, count: int) -> None:
        items = self._stack[len(self._stack) - count :]
        if len(items) < count or any(item is _Mark for item in items):
            raise ValueError("a tuple of too few items")
        self._stack[len(self._stack) - count :] = [tuple(items)]

    def _last(self, count: int = 1) -> list[Any]:
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return items

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, _Function) or type(arguments) is not tuple:
            raise ValueError("a call of no function")
        if function.name == _TENSOR:
            self._stack.append(self._tensor(*arguments[:4]))
        elif function.name == _PARAMETER:
            self._stack.append(arguments[0])
        elif arguments:
            raise ValueError("an OrderedDict with arguments")
        else:
            self._stack.append({})

    def _build(self) -> None:
        """Drop the attributes of a dictionary: a state dict has the versions of its modules there."""
        self._stack.pop()
        if type(self._stack[-1]) is not dict:
            raise ValueError("attributes of no dictionary")

    def _named(self, module: Any, name: Any) -> _Storage | _Function:
        """Return what a global stands for, by name alone, without importing anything."""
        if not _short(module) or not _short(name):
            raise ValueError("a global without a name")
        if module == "torch" and name in STORAGES:
            return _Storage(STORAGES[name])
        if (module, name) in _CALLED:
            return _Function(_CALLED[module, name])
        shown = one_line(f"{module}.{name}")[:200]
        raise InputError(f"{self._path}: refers to {shown}, which is not a tensor type: not loaded", SAVE_AGAIN)

    def _storage(self) -> None:
        """Push a storage as a flat array."""
        _, storage, key, _, size = self._stack.pop()
        if not isinstance(storage, _Storage) or not _short(key) or not str(key).isdigit() or not _sizes([size]):
            raise InputError(f"{self._path}: a storage of unknown kind", SAVE_AGAIN)
        named = (storage.kind, str(key))
        if named not in self._storages:
            data = self._archive.read(f"{self._folder}data/{key}")
            wide = storage.kind == BFLOAT16
            self._take(len(data) * (3 if wide else 1))
            numbers = np.frombuffer(data, "<u2" if wide else storage.kind)
            self._storages[named] = (numbers.astype(np.uint32) << 16).view(np.float32) if wide else numbers
        if size > len(self._storages[named]):
            raise InputError(f"{self._path}: a storage of {size} numbers in a shorter file", SAVE_AGAIN)
        self._stack.append(self._storages[named][:size])

    def _take(self, size: int) -> None:
        """Count array bytes against the limit: tensors that share or repeat a storage take little space in a file."""
        self._left -= size
        if self._left < 0:
            raise InputError(f"{self._path}: its tensors are far larger than the file", SAVE_AGAIN)

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any) -> npt.NDArray[Any]:
        sound = isinstance(storage, np.ndarray) and storage.ndim == 1 and type(size) is type(stride) is tuple
        if not sound or not len(size) == len(stride) <= 32 or not _sizes([offset, *size, *stride]):
            raise InputError(f"{self._path}: a tensor reaches beyond its storage", SAVE_AGAIN)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        count = math.prod(size)
        if not count:
            return np.zeros(size, storage.dtype)
        if last >= len(storage):
            raise InputError(f"{self._path}: a tensor reaches beyond its storage", SAVE_AGAIN)
        self._take(count * storage.itemsize)
        steps = [step * storage.itemsize for step in stride]
        return np.array(np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False))


def _short(value: Any) -> bool:
    """Return whether hashing, comparing and printing a value takes no time to speak of."""
    if isinstance(value, str):
        return len(value) <= 1000
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _sizes(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 2**48 for value in values)


_PUSHED = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: Mapping[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": list}
"""A set is read as a list, since its members would have to be hashed."""
_METHODS: Mapping[str, Callable[[_Reader], Any]] = {
    "APPEND": lambda self: self._list(self._last()),
    "APPENDS": lambda self: self._list(self._marked()),
    "ADDITEMS": lambda self: self._list(self._marked()),
    "SETITEM": lambda self: self._items(self._last(2)),
    "SETITEMS": lambda self: self._items(self._marked()),
    "LIST": lambda self: self._stack.append(self._marked()),
    "TUPLE": lambda self: self._stack.append(tuple(self._marked())),
    "FROZENSET": lambda self: self._stack.append(tuple(self._marked())),
    "TUPLE1": lambda self: self._tuple(1),
    "TUPLE2": lambda self: self._tuple(2),
    "TUPLE3": lambda self: self._tuple(3),
    "POP": lambda self: self._stack.pop(),
    "POP_MARK": lambda self: self._marked(),
    "DUP": lambda self: self._stack.append(self._stack[-1]),
    "REDUCE": _Reader._reduce,
    "BUILD": _Reader._build,
    "BINPERSID": _Reader._storage,
}
