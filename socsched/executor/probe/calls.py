"""Times of a compiled network's kernels on this machine, call by call, with what disturbed each (`kernels.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.native.shared_object import build_shared_object
from socsched.errors import MachineError

Array = np.ndarray[Any, Any]

SOURCE = Path(__file__).with_name("kernels.c")
_ALIGNMENT = 64
_ARRAY, _CPU = 7, 1
_CODES = {"float32": (2, 32), "float16": (2, 16), "int8": (0, 8), "uint8": (1, 8), "int32": (0, 32), "int64": (0, 64),
          "bool": (6, 8)}  # fmt: skip
UNDISTURBED = 0.97
"""Least share of the threads' time that an undisturbed call had."""
FEW = 3
"""Undisturbed calls below which the fastest calls stand in for them."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Any(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("pointer", ctypes.c_void_p))


class _Call(ctypes.Structure):
    _fields_ = (("kernel", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("count", ctypes.c_int64))


class Calls:
    """The calls of a CPU program (`executor.cpu_programs.cpu_program`) in memory of their own."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        harness = build_shared_object(SOURCE, flags=("-pthread",))
        if harness is None:
            raise MachineError("kernels cannot be timed: there is no C compiler", "install one (build-essential)")
        # kernels call a function of it by name
        self._harness = harness = ctypes.CDLL(harness._name, ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(program["code"])
        harness.socsched_supply.argtypes = (ctypes.c_void_p,)
        harness.socsched_supply(self._library._handle)
        harness.socsched_time_calls.restype = ctypes.c_int64
        symbols = [entry["most"] for entry in program["symbols"]]
        self._memory = _memory(program, symbols)
        self._kept: list[Any] = []
        arrays = [self._tensor(entry, symbols) for entry in program["tensors"]]
        self.kernels = [launch["kernel"] for launch in program["launches"]]
        self._calls = (_Call * len(self.kernels))()
        for call, launch in zip(self._calls, program["launches"], strict=True):
            numbers = launch["arguments"]
            passed = (_Any * len(numbers))(*(_Any(_ARRAY, 0, ctypes.addressof(arrays[n])) for n in numbers))
            self._kept.append(passed)
            kernel = ctypes.cast(self._library["__tvm_ffi_" + launch["kernel"]], ctypes.c_void_p)
            call.kernel, call.arguments, call.count = kernel, ctypes.addressof(passed), len(numbers)

    def _tensor(self, entry: Mapping[str, Any], symbols: Sequence[int]) -> Any:
        code, bits = _CODES[entry["dtype"]]
        sizes = [symbols[-1 - size] if size < 0 else size for size in entry["shape"]]
        shape = (ctypes.c_int64 * len(sizes))(*sizes)
        memory = self._memory[entry["in"], entry.get("input", 0) if entry["in"] == "inputs" else 0]
        tensor = _Tensor(
            memory.ctypes.data + entry["offset"], _CPU, 0, len(sizes), code, bits, 1, ctypes.addressof(shape), None, 0
        )
        self._kept += [shape, tensor]
        return tensor

    def samples(self, cpus: Sequence[int], seconds: float, least: int = 3, most: int = 400) -> tuple[Array, Array]:
        """Return wall time and the threads' processor time (ns) of every [round, call] on these processors."""
        count = len(self.kernels)
        wall, used = np.zeros((most, count), np.int64), np.zeros((most, count), np.int64)
        numbers = (ctypes.c_int32 * len(cpus))(*cpus)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (wall, used))
        rounds = self._harness.socsched_time_calls(
            self._calls, ctypes.c_int64(count), numbers, len(cpus), ctypes.c_int64(int(seconds * 1e9)),
            ctypes.c_int64(least), ctypes.c_int64(most), *pointers,
        )  # fmt: skip
        if rounds < 0:
            raise MachineError(f"the kernel {self.kernels[-1 - rounds]} failed", "compile it again")
        return wall[1:rounds], used[1:rounds]  # the first round finds cold pages


def _memory(program: Mapping[str, Any], symbols: Sequence[int]) -> dict[tuple[str, int], Array]:
    """Return the memory of a program: constants from its file, small numbers elsewhere."""
    sizes = {
        ("memory", 0): program["memory"],
        ("constants", 0): program["constants"],
        ("results", 0): program["results"],
    }
    for number, entry in enumerate(program["inputs"]):
        count = int(np.prod([symbols[-1 - size] if size < 0 else size for size in entry["shape"]], dtype=np.int64))
        sizes["inputs", number] = entry["offset"] + count * _CODES[entry["dtype"]][1] // 8
    memory = {}
    for place, size in sizes.items():
        raw = np.zeros(size + 2 * _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        memory[place] = raw[start : start + size]
    constants = np.fromfile(program["weights"], np.uint8, program["constants"])
    memory["constants", 0][: len(constants)] = constants
    return memory


def undisturbed(wall: Array, used: Array, threads: int) -> tuple[Array, Array, Array]:
    """Return median, relative spread and number of the undisturbed samples of each call.

    Where there are too few, the fastest sample stands in, with number 0: a disturbance can only make a call longer.
    """
    fine = used >= UNDISTURBED * threads * wall
    count = fine.sum(axis=0)
    times = np.where(fine, wall.astype(float), np.nan)
    with np.errstate(all="ignore"):
        low, middle, high = np.nanpercentile(np.where(count >= FEW, times, wall.astype(float)), (25, 50, 75), axis=0)
    few = count < FEW
    middle = np.where(few, wall.min(axis=0), middle)
    return middle, np.where(few, np.nan, (high - low) / middle), np.where(few, 0, count)
