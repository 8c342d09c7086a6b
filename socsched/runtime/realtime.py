"""What Linux offers a real-time program: scheduling classes, locked memory, absolute sleeps, a quiet interpreter.

Everything is asked for and checked; what the system refuses is said once, in words, and the run goes on as an ordinary
program.  SCHED_FIFO priorities follow the plan's order (rate or deadline monotonic), SCHED_DEADLINE takes budget,
deadline and period of the plan itself (sched(7), Linux Documentation/scheduler/sched-deadline.rst).
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched.errors import UsageError
from socsched.planning.plan import Task

CLASSES = ("off", "auto", "fifo", "deadline")
_FIFO_TOP = 80
"""Above ordinary real-time programs, below the watchdog and migration threads of the kernel at 99."""
_SWITCH_S = 2e-4
"""How long one thread may keep the interpreter while others wait; Python's own interval is 5 ms."""
_SET_ATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE, _RESET_ON_FORK = 6, 1
_LOCK_ALL = 1 | 2  # MCL_CURRENT | MCL_FUTURE
_TRIM, _MMAP_MOST, _ARENAS = -1, -4, -8  # M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK
_ABSOLUTE = 1  # TIMER_ABSTIME
_SPARE_BYTES, _SPARE_OBJECTS = 16 * 2**20, 4 * 2**20
"""Memory kept ready for C and for small objects of the interpreter."""
_OBJECT = 400  # with its header below 512 bytes: the largest that the interpreter puts in its arenas
_SHORT_NS = 100_000  # the shortest turn the kernel lets an ordinary thread ask for


class _Attr(ctypes.Structure):
    """struct sched_attr of the kernel."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Reservation:
    """SCHED_DEADLINE parameters of a worker, in ns."""

    runtime_ns: int
    deadline_ns: int
    period_ns: int


def fifo_priority(tasks: Sequence[Task], everything: Sequence[Task]) -> int:
    """Return the SCHED_FIFO priority of a worker: by its most urgent task, 80 for the plan's first, then downwards."""
    urgency = sorted({(task.priority, task.deadline_ns) for task in everything})
    rank = min(urgency.index((task.priority, task.deadline_ns)) for task in tasks)
    return max(_FIFO_TOP - rank, 1)


def reservation(tasks: Sequence[Task]) -> Reservation:
    """Return a budget that serves every task of a worker in its period: the least period, the share they add up to.

    With utilisations U_i = wcet_i / period_i the budget is sum(U_i) of the shortest period, at least the longest job's
    share of its deadline; never more than the whole processor.
    """
    period = min(task.period_ns for task in tasks)
    used = sum(task.wcet_ns / task.period_ns for task in tasks)
    runtime = min(max(int(used * period), 1024), period)
    deadline = max(min(min(task.deadline_ns for task in tasks), period), runtime)
    return Reservation(runtime, deadline, period)


def set_fifo(priority: int) -> str:
    """Put the calling thread into SCHED_FIFO; returns why not, empty when it worked.  Threads it starts follow."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        return f"SCHED_FIFO refused ({getattr(error, 'strerror', error)})"
    return ""


def set_deadline(wanted: Reservation) -> str:
    """Put the calling thread into SCHED_DEADLINE; returns why not.  Threads it starts afterwards are ordinary ones.

    The kernel wants such a thread free to move within its root domain, so its affinity is widened first.
    """
    number = _SET_ATTR.get(platform.machine())
    if number is None:
        return f"SCHED_DEADLINE is not known on {platform.machine()}"
    attr = _Attr(ctypes.sizeof(_Attr), _SCHED_DEADLINE, _RESET_ON_FORK, 0, 0, *_numbers(wanted))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    if _libc().syscall(number, 0, ctypes.byref(attr), 0):
        error = ctypes.get_errno()
        os.sched_setaffinity(0, before)
        return f"SCHED_DEADLINE refused ({os.strerror(error)})"
    return ""


def set_ordinary() -> None:
    """Put the calling thread back into the ordinary class, if it is in another."""
    if hasattr(os, "SCHED_OTHER") and os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def chosen_class(wanted: str, processors: int) -> tuple[str, str]:
    """Return the scheduling class for workers on `processors` CPUs, and a notice; the class is off, fifo or deadline.

    "auto" takes SCHED_FIFO where it is permitted and leaves at least one usable CPU to everybody else.
    """
    if wanted not in CLASSES:
        raise UsageError(f"real-time class {wanted!r} is unknown", f"classes: {', '.join(CLASSES)}")
    if wanted == "off":
        return "off", ""
    if refused := refusal():
        return "off", f"no real-time scheduling: {refused}; allow it with `ulimit -r 99` or CAP_SYS_NICE"
    if wanted == "auto" and hasattr(os, "sched_getaffinity") and processors >= len(os.sched_getaffinity(0)):
        return "off", "no real-time scheduling: the plan uses every processor; insist with --realtime fifo"
    return ("fifo" if wanted == "auto" else wanted), ""


def refusal() -> str:
    """Return why SCHED_FIFO is refused, asked in a thread that ends at once."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(set_fifo(1)))
    thread.start()
    thread.join()
    return found[0]


def lock_memory() -> str:
    """Keep all pages of this process in memory, now and later; returns why not, empty when it worked."""
    libc = _libc()
    if not _may_lock():
        return "memory not locked: the limit is below what the process needs (`ulimit -l unlimited`)"
    if libc.mlockall(_LOCK_ALL):
        return f"memory not locked ({os.strerror(ctypes.get_errno())})"
    return ""


def keep_memory() -> None:
    """Let memory that is freed stay with the process: no trimming, no mapping of its own for a large block, one heap.

    Otherwise every large array of a host function is mapped, faulted in page by page and unmapped again each frame; and
    with a heap a thread, what one thread frees of another's is not used by a third: each heap grows to its own worst.
    """
    libc = _libc()
    if hasattr(libc, "mallopt"):
        libc.mallopt(_TRIM, -1)
        libc.mallopt(_MMAP_MOST, 0)
        libc.mallopt(_ARENAS, 1)


def spare_memory() -> None:
    """Take some memory and give it back, so that what a frame needs more than any before it did is there already."""
    block = ctypes.create_string_buffer(_SPARE_BYTES)
    del block
    # the interpreter's own heap comes in arenas of a megabyte at most, which go back to the system when empty
    objects = [bytes(_OBJECT) for _ in range(_SPARE_OBJECTS // _OBJECT)]
    _KEPT[:] = objects[:: 2**18 // _OBJECT]


_KEPT: list[bytes] = []
_NAMES = ("data", "strides", "descr", "typestr", "shape", "version")
"""What numpy calls the parts of an array for others (`__array_interface__`).  Where nobody holds these words, each look
puts one into the interpreter's table of names and takes it out again, until that grows: by a megabyte, once."""


def unlock_memory() -> None:
    """Let pages go again."""
    _libc().munlockall()


def _may_lock() -> bool:
    """With a finite limit, MCL_FUTURE would let a later allocation fail instead of this call; root has none."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return limit == resource.RLIM_INFINITY or os.geteuid() == 0


def sleep_until(time_ns: int) -> None:
    """Sleep until an instant of the monotonic clock; returns early only on a signal.  Lateness never adds up."""
    now = time.monotonic_ns()
    if time_ns <= now:
        return
    if not sys.platform.startswith("linux"):
        time.sleep((time_ns - now) / 1e9)
        return
    until = _Time(time_ns // 1_000_000_000, time_ns % 1_000_000_000)
    _libc().clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, ctypes.byref(until), None)


def fine_timers() -> None:
    """Let the calling thread's timers fire when they are due, not up to 50 us later."""
    if sys.platform.startswith("linux"):
        _libc().prctl(_TIMER_SLACK, 1, 0, 0, 0)


def short_turns() -> str:
    """Let the calling thread, an ordinary one, take a processor at once from who has had it for a while.

    Where deadlines are virtual (EEVDF) a shorter turn asked for is an earlier deadline: sched_setattr(2) with
    SCHED_OTHER, Linux 6.12 and later; before, nothing changes.  Returns why not, empty when it was taken.
    """
    number = _SET_ATTR.get(platform.machine())
    if number is None or not hasattr(os, "SCHED_OTHER") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return "no ordinary thread of Linux"
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attr = _Attr(ctypes.sizeof(_Attr), os.SCHED_OTHER, 0, nice, 0, _SHORT_NS, 0, 0)
    if _libc().syscall(number, 0, ctypes.byref(attr), 0):
        return f"short turns refused ({os.strerror(ctypes.get_errno())})"
    return ""


def stay_off(processors: Sequence[Collection[int]], allowed: Collection[int]) -> None:
    """Keep the calling thread off the first of several sets of processors that leaves others of those allowed."""
    left = next((rest for taken in processors if (rest := {*allowed} - {*taken})), None)
    if left and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, left)


@contextmanager
def quiet_interpreter(lock: bool = False, note: Callable[[str], None] = print) -> Iterator[None]:
    """Keep the cycle collector out of the loop, hand the interpreter over quickly and, with `lock`, lock memory."""
    enabled, switch = gc.isenabled(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    spare_memory()
    refused = lock_memory() if lock else "not asked for"
    if lock and refused:
        note(refused)
    try:
        yield
    finally:
        if not refused:
            unlock_memory()
        sys.setswitchinterval(switch)
        gc.unfreeze()
        if enabled:
            gc.enable()


def _numbers(wanted: Reservation) -> tuple[int, int, int]:
    return wanted.runtime_ns, wanted.deadline_ns, wanted.period_ns
