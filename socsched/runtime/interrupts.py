"""An orderly end on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from socsched.trace.trace import Trace

INTERRUPTED = "interrupted by the user"
"""The trace note of a run that SIGINT ended early."""


@contextmanager
def on_first_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` on the first SIGINT; a second one gets the previous handler.  Only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, stack: object) -> None:
        act()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def require_whole(trace: Trace) -> None:
    """Raise KeyboardInterrupt if the trace is of a run that SIGINT ended early."""
    if any(note.text == INTERRUPTED and note.subject == "run" for note in trace.instants):
        raise KeyboardInterrupt
