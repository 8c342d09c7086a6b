"""Ctrl-C in a simulation: the first is acknowledged at once and stops it after the current batch of events.

A second one discards the simulation.  The kernel is never interrupted while it handles an event, so its results up to
the stop are complete.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_BATCH_S = 0.05
"""Target duration of one uninterrupted batch of events in the kernel."""
_FIRST, _MOST = 1_000, 1 << 30
MESSAGE = "stopping and writing the results so far; press Ctrl-C again to discard them"


class Stop:
    """A request to stop (`requested`), and the number of events to handle before the next check (`events`)."""

    def __init__(self) -> None:
        self.requested = False
        self.events = _FIRST
        self._since = time.perf_counter()

    def size_batch(self) -> int:
        """Return the number of events that take about `_BATCH_S`, estimated from the last batch."""
        now = time.perf_counter()
        took, self._since = now - self._since, now
        self.events = min(max(int(self.events * min(max(_BATCH_S / max(took, 1e-9), 0.25), 4.0)), 1), _MOST)
        return self.events


@contextmanager
def stopping() -> Iterator[Stop]:
    """Make Ctrl-C set `requested` inside the block instead of raising KeyboardInterrupt; a second one raises it.

    Outside the main thread, or if the caller has installed its own SIGINT handler, nothing changes.
    """
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        # written directly because sys.stderr may be in the middle of a line
        os.write(2, f"\n{MESSAGE}\n".encode())

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def run_until_stopped(step: Callable[[int], bool], then: Callable[[], None]) -> bool:
    """Call `step` with numbers of events until it is done, and `then` in between; return whether it was stopped."""
    with stopping() as stop:
        while step(stop.size_batch()):
            if stop.requested:
                return True
            then()
    return False
