"""Linux real-time facilities: scheduling classes, locked memory, absolute sleeps, a quiet interpreter.

Each facility is requested and checked; a refusal is reported once, in words, and the run continues as an ordinary
program.  SCHED_FIFO priorities follow the plan's order (rate or deadline monotonic); SCHED_DEADLINE takes budget,
deadline and period from the plan itself (sched(7), Linux Documentation/scheduler/sched-deadline.rst).
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
"""Time a thread may hold the interpreter lock while others wait; Python's default is 5 ms."""
_SET_ATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE, _RESET_ON_FORK = 6, 1
_LOCK_ALL = 1 | 2  # MCL_CURRENT | MCL_FUTURE
_TRIM, _MMAP_MOST, _ARENAS = -1, -4, -8  # M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK
_ABSOLUTE = 1  # TIMER_ABSTIME
_SPARE_BYTES, _SPARE_OBJECTS = 16 * 2**20, 4 * 2**20
"""Memory reserved for C and for small objects of the interpreter."""
_OBJECT = 400  # with its header below 512 bytes: the largest size the interpreter allocates from its arenas
_SHORT_NS = 100_000  # the shortest time slice the kernel lets an ordinary thread request


class _Attr(ctypes.Structure):
    """The kernel's struct sched_attr."""

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
    """Return a reservation for a worker with the total utilisation of its tasks, over their shortest period.

    With utilisations U_i = wcet_i / period_i the budget is sum(U_i) of that period, at least 1024 ns (the least that
    Linux accepts) and at most the whole core; the deadline is the shortest of the tasks' deadlines and the period, but
    not shorter than the budget.  A job that takes more than one budget is therefore served over several periods.
    """
    period = min(task.period_ns for task in tasks)
    used = sum(task.wcet_ns / task.period_ns for task in tasks)
    runtime = min(max(int(used * period), 1024), period)
    deadline = max(min(min(task.deadline_ns for task in tasks), period), runtime)
    return Reservation(runtime, deadline, period)


def set_fifo(priority: int) -> str:
    """Put the calling thread into SCHED_FIFO; return the reason for a refusal, empty on success.

    Threads it starts inherit the class.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        return f"SCHED_FIFO refused ({getattr(error, 'strerror', error)})"
    return ""


def set_deadline(wanted: Reservation) -> str:
    """Put the calling thread into SCHED_DEADLINE; return the reason for a refusal, empty on success.

    Threads it starts afterwards are ordinary ones.  The kernel requires such a thread to be free to move within its
    root domain, so its affinity is widened first.
    """
    number = _SET_ATTR.get(platform.machine())
    if number is None:
        return f"no system call of SCHED_DEADLINE is known for {platform.machine()}"
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


def choose_class(wanted: str, processors: int) -> tuple[str, str]:
    """Return the scheduling class for workers on `processors` CPUs, and a notice; the class is off, fifo or deadline.

    "auto" takes SCHED_FIFO if it is permitted and leaves at least one usable CPU to other processes.
    """
    if wanted not in CLASSES:
        raise UsageError(f"unknown real-time class {wanted!r}", f"classes: {', '.join(CLASSES)}")
    if wanted == "off":
        return "off", ""
    if refused := refusal():
        return "off", f"no real-time scheduling: {refused}; allow it with `ulimit -r 99` or CAP_SYS_NICE"
    if wanted == "auto" and hasattr(os, "sched_getaffinity") and processors >= len(os.sched_getaffinity(0)):
        return "off", "no real-time scheduling: the plan uses every processor; force it with --realtime fifo"
    return ("fifo" if wanted == "auto" else wanted), ""


def refusal() -> str:
    """Return the reason SCHED_FIFO is refused, empty if it is granted; tried in a short-lived thread."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(set_fifo(1)))
    thread.start()
    thread.join()
    return found[0]


def lock_memory() -> str:
    """Lock all present and future pages of this process; return the reason for a refusal, empty on success."""
    libc = _libc()
    if not _may_lock():
        return "memory not locked: the limit is below what the process needs (`ulimit -l unlimited`)"
    if libc.mlockall(_LOCK_ALL):
        return f"memory not locked ({os.strerror(ctypes.get_errno())})"
    return ""


def keep_memory() -> None:
    """Keep freed memory in the process: no trimming, no separate mapping for a large block, a single heap.

    Otherwise every large array of a host function is mapped, faulted in page by page and unmapped again each frame.
    With one heap per thread, memory that a thread frees on behalf of another is not reused by a third, so each heap
    grows to its own maximum.
    """
    libc = _libc()
    if hasattr(libc, "mallopt"):
        libc.mallopt(_TRIM, -1)
        libc.mallopt(_MMAP_MOST, 0)
        libc.mallopt(_ARENAS, 1)


def spare_memory() -> None:
    """Allocate and free some memory, so that a frame that needs more than any before finds it already mapped."""
    block = ctypes.create_string_buffer(_SPARE_BYTES)
    del block
    # the interpreter's own heap uses arenas of at most a megabyte, which are returned to the system when empty
    objects = [bytes(_OBJECT) for _ in range(_SPARE_OBJECTS // _OBJECT)]
    _KEPT[:] = objects[:: 2**18 // _OBJECT]


_KEPT: list[bytes] = []
_NAMES = ("data", "strides", "descr", "typestr", "shape", "version")
"""The keys of numpy's `__array_interface__`.  Without a live reference to these strings, each access interns one in the
interpreter's string table and removes it again, until the table grows: by a megabyte, once."""


def unlock_memory() -> None:
    """Unlock all pages of this process."""
    _libc().munlockall()


def _may_lock() -> bool:
    """Return whether the lock limit is infinite or does not apply (root).

    With a finite limit, MCL_FUTURE would let a later allocation fail instead of this call.
    """
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return limit == resource.RLIM_INFINITY or os.geteuid() == 0


def sleep_until(time_ns: int) -> None:
    """Sleep until an instant of the monotonic clock; return early only on a signal.  Lateness does not accumulate."""
    now = time.monotonic_ns()
    if time_ns <= now:
        return
    if not sys.platform.startswith("linux"):
        time.sleep((time_ns - now) / 1e9)
        return
    until = _Time(time_ns // 1_000_000_000, time_ns % 1_000_000_000)
    _libc().clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, ctypes.byref(until), None)


def fine_timers() -> None:
    """Minimise the calling thread's timer slack, so that timers fire when due, not up to 50 us later."""
    if sys.platform.startswith("linux"):
        _libc().prctl(_TIMER_SLACK, 1, 0, 0, 0)


def short_turns() -> str:
    """Request a short time slice for the calling ordinary thread, so that it preempts longer-running ones at once.

    Under EEVDF a shorter requested slice gives an earlier virtual deadline: sched_setattr(2) with SCHED_OTHER, Linux
    6.12 and later; earlier kernels ignore it.  Returns the reason for a refusal, empty on success.
    """
    number = _SET_ATTR.get(platform.machine())
    if number is None or not hasattr(os, "SCHED_OTHER") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return "not an ordinary Linux thread"
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attr = _Attr(ctypes.sizeof(_Attr), os.SCHED_OTHER, 0, nice, 0, _SHORT_NS, 0, 0)
    if _libc().syscall(number, 0, ctypes.byref(attr), 0):
        return f"short time slices refused ({os.strerror(ctypes.get_errno())})"
    return ""


def stay_off(processors: Sequence[Collection[int]], allowed: Collection[int]) -> None:
    """Keep the calling thread off the first of several core sets that leaves some of the allowed cores."""
    left = next((rest for taken in processors if (rest := {*allowed} - {*taken})), None)
    if left and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, left)


@contextmanager
def quiet_interpreter(lock: bool = False, note: Callable[[str], None] = print) -> Iterator[None]:
    """Disable the cycle collector, shorten the interpreter's switch interval and, with `lock`, lock memory."""
    enabled, switch = gc.isenabled(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    spare_memory()
    refused = lock_memory() if lock else "not requested"
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
