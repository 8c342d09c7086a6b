"""What a measurement on this machine depends on: load from other processes, and the right to real-time priorities."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

STAT = Path("/proc/stat")
MUCH = 0.2
"""Cores that other processes may use before a warning is due."""
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat that count busy time: user, nice, system, irq, softirq, steal (proc(5))."""


class Neighbours:
    """Counts from construction on.

    `read` returns /proc/stat, `own` the CPU seconds of this process and its children.
    """

    def __init__(
        self,
        read: Callable[[], str] = lambda: STAT.read_text(encoding="ascii"),
        own: Callable[[], float] = lambda: sum(os.times()[:4]),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._own, self._now = read, own, now
        self._start = (self._busy(), own(), now())

    def taken(self) -> float | None:
        """Return the average number of cores used by other processes since construction, None if unknown."""
        busy, own, since = self._start
        found, elapsed = self._busy(), self._now() - since
        if busy is None or found is None or elapsed <= 0:
            return None
        return max((found - busy - (self._own() - own)) / elapsed, 0.0)

    def _busy(self) -> float | None:
        """Return the busy time of all cores together, in seconds."""
        try:
            total = self._read().split("\n", 1)[0].split()
            return sum(int(total[1 + column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None


# Whether this user may have real-time priorities; the executor asks for them itself (`native/realtime.hpp`).


def refusal() -> str:
    """Return the reason SCHED_FIFO is refused, empty if it is granted; tried in a short-lived thread."""
    found: list[str] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except (OSError, AttributeError) as error:
            found.append(f"SCHED_FIFO refused ({getattr(error, 'strerror', error)})")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0] if found else ""
