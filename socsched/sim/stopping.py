"""Ctrl-C in a simulation: the first is answered at once and ends it at the next stretch of events, the second discards.

The kernel is left alone while it handles an event: what it found until then is whole.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STRETCH_S = 0.05
"""How long the kernel is left alone."""
_FIRST, _MOST = 1_000, 1 << 30
SAID = "stopping; writing what is done; Ctrl-C again discards"


class Stop:
    """Whether a simulation is to end (`asked`), and how many events to handle until looking again (`events`)."""

    def __init__(self) -> None:
        self.asked = False
        self.events = _FIRST
        self._since = time.perf_counter()

    def paced(self) -> int:
        """Return how many events take about `_STRETCH_S`, going by how long the last ones took."""
        now = time.perf_counter()
        took, self._since = now - self._since, now
        self.events = min(max(int(self.events * min(max(_STRETCH_S / max(took, 1e-9), 0.25), 4.0)), 1), _MOST)
        return self.events


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let Ctrl-C set `asked` inside, where it would raise KeyboardInterrupt; a second one raises that.

    Elsewhere than in the main thread, and where whoever called has other plans with Ctrl-C, nothing changes.
    """
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        # not through sys.stderr, which may be in the middle of a line
        os.write(2, f"\n{SAID}\n".encode())

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def run_on(step: Callable[[int], bool], then: Callable[[], None]) -> bool:
    """Call `step` with numbers of events until there is no more to do, and `then` in between; say if it was stopped."""
    with stopping() as stop:
        while step(stop.paced()):
            if stop.asked:
                return True
            then()
    return False
