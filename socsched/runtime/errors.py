"""What ends a run early: errors, interrupts; and warnings."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from socsched.errors import MachineError
from socsched.text import printable
from socsched.trace.trace import Trace


class StageFailed(MachineError):
    """A stage raised an exception at run time; `trace` holds everything up to then, with a fault mark."""

    def __init__(self, stage: str, frame: int, cause: BaseException, trace: Trace) -> None:
        super().__init__(
            f"stage {stage!r} failed on frame {frame}: {type(cause).__name__}: {cause}",
            "the trace up to this frame was kept; run the stage alone with `socsched profile` to investigate",
        )
        self.stage, self.frame, self.trace = stage, frame, trace


def warn(text: str) -> None:
    """Print a warning to stderr."""
    print(printable(f"socsched: {text}"), file=sys.stderr)


# An orderly end on Ctrl-C.

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
