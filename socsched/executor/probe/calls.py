"""Times of calls on this machine, one by one, with what disturbed each (`kernels.c`)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from socsched.compiler.native.compilers import build_shared_object
from socsched.errors import MachineError

Array = np.ndarray[Any, Any]

SOURCE = Path(__file__).with_name("kernels.c")
UNDISTURBED = 0.97
"""Least share of the threads' time that an undisturbed call had."""
LONGEST, GRACE_S = 4.0, 0.1
"""Calls end, however few there are, after `LONGEST` times the time asked for and `GRACE_S`: on a busy machine."""
HAND_OVER_S = 0.001
FEW = 3
"""Undisturbed calls below which the fastest call stands in for them."""
_ALIGNMENT = 64
_ARRAY, _CPU = 7, 1
_CODES = {"float32": (2, 32), "float16": (2, 16), "int8": (0, 8), "uint8": (1, 8), "int32": (0, 32), "int64": (0, 64),
          "bool": (6, 8)}  # fmt: skip


class Times(NamedTuple):
    """Lower quartile (ns), quartile distance over it, and number (`fine`) of the undisturbed samples of each call.

    The lower quartile, since what slows a virtual processor is not always seen from within.  Where these are too few,
    the fastest sample stands in, with number 0: a disturbance can only make a call longer.  `share`: of the threads'
    time that they had a processor.
    """

    low: Array
    spread: Array
    fine: Array
    share: float


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
    """Calls in a fixed order, with the memory they use; where `step` is 2, every other one prepares the next one."""

    def __init__(self, names: Sequence[str], calls: Any, kept: Sequence[Any], step: int = 1) -> None:
        self.names, self.calls, self._kept, self._step = names, calls, kept, step

    def times(
        self, cpus: Sequence[int], seconds: float, beside: Calls | None = None, least: int = 3, most: int = 400
    ) -> Times:
        """Return the calls' times on a thread a processor; that of `beside` runs on the last one meanwhile.

        MachineError where a call fails, or none of the calls was made in several times the `seconds`.
        """
        count = len(self.names) * self._step
        wall, used = np.zeros((most, count), np.int64), np.zeros((most, count), np.int64)
        rounds = _harness().socsched_time_calls(
            self.calls, ctypes.c_int64(count), (ctypes.c_int32 * len(cpus))(*cpus), ctypes.c_int32(len(cpus)),
            ctypes.c_int64(int(seconds * 1e9)), ctypes.c_int64(int((LONGEST * seconds + GRACE_S) * 1e9)),
            ctypes.c_int64(least), ctypes.c_int64(most),
            beside.calls if beside else None, *(ctypes.c_void_p(array.ctypes.data) for array in (wall, used)),
        )  # fmt: skip
        if rounds < 0:
            raise MachineError(f"the kernel {self.names[(-1 - rounds) // self._step]} failed", "compile it again")
        if not rounds:
            raise MachineError(f"the machine is too busy to time {self.names[0]}", "plan with --quick, or later")
        # the first round finds cold pages
        some = slice(min(1, rounds - 1), rounds), slice(self._step - 1, None, self._step)
        return undisturbed(wall[some], used[some], len(cpus))


@contextmanager
def first_on_a_processor() -> Iterator[None]:
    """Run the block on one processor before all other programs, in turns with such others, as far as this user may."""
    cpus = os.sched_getaffinity(0)
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setaffinity(0, {max(cpus)})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)
        os.sched_setaffinity(0, cpus)


def undisturbed(wall: Array, used: Array, threads: int) -> Times:
    """Return the times of calls from wall and processor times (ns) of [round, call], the latter < 0 on shared cores."""
    fine = used >= UNDISTURBED * threads * wall
    count = fine.sum(axis=0)
    few = count < FEW
    times = np.where(fine | few, wall.astype(float), np.nan)
    low, high = np.nanpercentile(times, (25, 75), axis=0)
    low = np.where(few, wall.min(axis=0), low)
    spread = np.where(few, 1.0, (high - low) / low)
    return Times(low, spread, np.where(few, 0, count), float(np.abs(used).sum() / max(threads * wall.sum(), 1)))


def program(content: Mapping[str, Any], inputs: Mapping[int, Array] | None = None, renewed: bool = False) -> Calls:
    """Return the launches of a CPU program (`executor.programs.cpu_program`), with the content of some `inputs`.

    `renewed`: before a launch its operands are written and its result is read, as the launches of a network find them:
    in the caches of whichever cores have done so.  MachineError without a compiler.
    """
    harness = _harness()
    library = ctypes.CDLL(content["code"])
    harness.socsched_supply(ctypes.c_void_p(library._handle))
    symbols = [entry["most"] for entry in content["symbols"]]
    memory = _memory(content, symbols)
    for number, array in (inputs or {}).items():
        memory["inputs", number][: array.nbytes] = array.view(np.uint8).ravel()
    kept: list[Any] = [library, memory]
    arrays = [_tensor(entry, symbols, memory, kept) for entry in content["tensors"]]
    names = [launch["kernel"] for launch in content["launches"]]
    step = 2 if renewed else 1
    calls = (_Call * (step * len(names)))()
    for at, launch in enumerate(content["launches"]):
        numbers = launch["arguments"]
        passed = (_Any * len(numbers))(*(_Any(_ARRAY, 0, ctypes.addressof(arrays[n])) for n in numbers))
        kernel = ctypes.cast(library["__tvm_ffi_" + launch["kernel"]], ctypes.c_void_p)
        calls[step * at + step - 1] = _Call(kernel, ctypes.addressof(passed), len(numbers))
        kept.append(passed)
        if renewed:
            entries = content["tensors"]
            blocks = [
                (arrays[number].data, number == numbers[-1], _size(entries[number], symbols))
                for number in numbers
                if entries[number]["in"] != "constants"
            ]
            calls[step * at] = _renewal(blocks, kept)
    return Calls(names, calls, kept, step)


def _renewal(blocks: Sequence[tuple[int, int, int]], kept: list[Any]) -> _Call:
    contexts = [(ctypes.c_int64 * 3)(*block) for block in blocks]
    passed = (_Any * max(len(contexts), 1))(*(_Any(_ARRAY, 0, ctypes.addressof(one)) for one in contexts))
    kept += [contexts, passed]
    kernel = ctypes.cast(_harness().socsched_renew, ctypes.c_void_p)
    return _Call(kernel, ctypes.addressof(passed), len(contexts))


def _size(entry: Mapping[str, Any], symbols: Sequence[int]) -> int:
    """Return the bytes of a tensor of a program, at its most rows."""
    sizes = [symbols[-1 - size] if size < 0 else size for size in entry["shape"]]
    return int(np.prod(sizes, dtype=np.int64)) * _CODES[entry["dtype"]][1] // 8


def chain(additions: int) -> Calls:
    """Return a call that adds `additions` times, each time waiting for the sum before."""
    return _own("socsched_chain", (additions,), ())


def hand_over_ns(cpus: Sequence[int]) -> float:
    """Return the time of a call in which every thread computes nothing, 0 for one: how far processors are apart."""
    if len(cpus) == 1:
        return 0.0
    return float(_own("socsched_hand_over", (0,), ()).times(cpus, HAND_OVER_S, most=100).low[0])


def is_alone() -> bool:
    """Return whether nothing else computes on this thread's core, as far as has been seen."""
    return bool(_harness().socsched_is_alone())


def copy(size: int) -> Calls:
    """Return a call that copies `size` bytes."""
    blocks = [_zeros(size) for _ in range(2)]
    return _own("socsched_copy", (*(block.ctypes.data for block in blocks), size), blocks)


def read(size: int) -> Calls:
    """Return a call that reads `size` bytes."""
    block = _zeros(size)
    return _own("socsched_read", (block.ctypes.data, 0, size), (block,))


def _own(name: str, values: Sequence[int], kept: Sequence[Any]) -> Calls:
    context = (ctypes.c_int64 * len(values))(*values)
    argument = _Any(_ARRAY, 0, ctypes.addressof(context))
    calls = (_Call * 1)()
    calls[0].kernel = ctypes.cast(getattr(_harness(), name), ctypes.c_void_p)
    calls[0].arguments, calls[0].count = ctypes.addressof(argument), 1
    return Calls([name], calls, [context, argument, *kept])


@cache
def _harness() -> ctypes.CDLL:
    found = build_shared_object(SOURCE, flags=("-pthread",))
    if found is None:
        raise MachineError("kernels cannot be timed: there is no C compiler", "install one (build-essential)")
    library = ctypes.CDLL(found._name, ctypes.RTLD_GLOBAL)  # kernels call a function of it by name
    library.socsched_time_calls.restype = ctypes.c_int64
    return library


def _tensor(entry: Mapping[str, Any], symbols: Sequence[int], memory: Mapping[Any, Array], kept: list[Any]) -> Any:
    code, bits = _CODES[entry["dtype"]]
    sizes = [symbols[-1 - size] if size < 0 else size for size in entry["shape"]]
    shape = (ctypes.c_int64 * len(sizes))(*sizes)
    place = memory[entry["in"], entry["input"] if entry["in"] == "inputs" else 0]
    at, dimensions = place.ctypes.data + entry["offset"], ctypes.addressof(shape)
    tensor = _Tensor(at, _CPU, 0, len(sizes), code, bits, 1, dimensions, None, 0)
    kept += [shape, tensor]
    return tensor


def _memory(content: Mapping[str, Any], symbols: Sequence[int]) -> dict[tuple[str, int], Array]:
    """Return the memory of a program: constants from its file, zeros elsewhere."""
    sizes = {(space, 0): content[space] for space in ("memory", "constants", "results")}
    for number, entry in enumerate(content["inputs"]):
        sizes["inputs", number] = entry["offset"] + _size(entry, symbols)
    memory = {place: _zeros(size) for place, size in sizes.items()}
    constants = np.fromfile(content["weights"], np.uint8, content["constants"])
    memory["constants", 0][: len(constants)] = constants
    return memory


def _zeros(size: int) -> Array:
    """Return bytes, aligned, each page of its own: a page of zeros that is read again and again costs no traffic."""
    raw = np.full(size + 2 * _ALIGNMENT, 0, np.uint8)  # writes every page
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]
