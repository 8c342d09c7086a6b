"""Errors that can end a run early, and warnings."""

from __future__ import annotations

import sys

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
