"""A stream restricted to some of a GPU's streaming multiprocessors (SMs), by the driver's green contexts.

The driver cuts the SMs into groups of the smallest size it allows (8 on Hopper, 4 on Orin), once per process; a stream
takes as many whole groups as its share needs, so that streams with shares never share an SM.  Needs a driver of CUDA
12.4 or later (on Jetson: JetPack 6.1).

CUDA Driver API, "Green Contexts"; the structure is `CUdevResource` of ABI version 1.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

from socsched.errors import MachineError
from tools.bench.gpu_clock import Stream

_SM = 1  # CU_DEV_RESOURCE_TYPE_SM
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, required
_NON_BLOCKING = 1


class _Resource(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint),
        ("padding", ctypes.c_ubyte * 92),
        ("sms", ctypes.c_uint),
        ("least", ctypes.c_uint),
        ("alignment", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 36),
    )


class SharedStream(Stream):
    """A separate stream on at least `sms` SMs, in whole groups; the attribute `sms` is the number obtained.

    Raises MachineError when the driver has no green contexts or too few SMs are free.
    """

    def __init__(self, sms: int, priority: int = 0) -> None:
        self._groups: list[_Resource] = []
        self._groups = _partition().take(sms)
        self.sms = sum(int(group.sms) for group in self._groups)
        array = (_Resource * len(self._groups))(*self._groups)
        description, self._context, handle = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        _call("cuDevResourceGenerateDesc", ctypes.byref(description), array, len(array))
        _call("cuGreenCtxCreate", ctypes.byref(self._context), description, 0, _DEFAULT_STREAM)
        _call("cuGreenCtxStreamCreate", ctypes.byref(handle), self._context, _NON_BLOCKING, priority)
        self.handle = handle

    def __del__(self) -> None:
        # The context is kept: graphs captured in it may still exist, and without launches it occupies no SM.
        if self._groups:
            _partition().give_back(self._groups)


def stream_for(share: int, priority: int = 0) -> Stream:
    """Return a stream for a stage that may occupy `share` SMs, 0 for all of them."""
    return SharedStream(share, priority) if share else Stream(priority)


class _Partition:
    """The first GPU's SMs in groups, with a list of free ones."""

    def __init__(self) -> None:
        whole, rest = _Resource(), _Resource()
        _call("cuInit", 0)
        _call("cuDeviceGetDevResource", 0, ctypes.byref(whole), _SM)
        self.least, self.all = max(int(whole.least), 1), int(whole.sms)
        count = ctypes.c_uint(self.all // self.least)
        groups = (_Resource * count.value)()
        split = (groups, ctypes.byref(count), ctypes.byref(whole), ctypes.byref(rest), 0, self.least)
        _call("cuDevSmResourceSplitByCount", *split)
        self.free = [groups[index] for index in range(count.value)]
        self.lock = threading.Lock()

    def take(self, sms: int) -> list[_Resource]:
        """Return free groups with at least `sms` SMs in total."""
        with self.lock:
            taken = 0
            for used in range(1, len(self.free) + 1):
                taken += int(self.free[used - 1].sms)
                if taken >= sms:
                    found, self.free = self.free[:used], self.free[used:]
                    return found
        raise MachineError(
            f"{sms} SMs were requested, {taken} of {self.all} are free (in groups of {self.least})",
            "give the stages of a GPU shares that fit it in total",
        )

    def give_back(self, groups: list[_Resource]) -> None:
        with self.lock:
            self.free += groups


@cache
def _partition() -> _Partition:
    return _Partition()


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MachineError("libcuda.so.1 is not installed: no stage can run on the GPU", "install the driver") from None


def _call(name: str, *arguments: Any) -> None:
    function = getattr(_driver(), name, None)
    if function is None:
        raise MachineError(
            f"this driver has no {name}: a stage cannot use a share of the SMs", "CUDA 12.4 or later has it"
        )
    status = function(*arguments)
    if status:
        raise MachineError(f"CUDA: {name} failed ({status})", "see nvidia-smi; MIG and MPS exclude green contexts")
