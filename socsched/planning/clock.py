"""The end of a search: one clock for all steps of planning, so that together they keep one limit."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """An instant on the monotonic clock (s) after which nothing new is tried; infinite for no limit."""

    end: float = math.inf

    @staticmethod
    def of(seconds: float | None) -> Clock:
        """Return the clock of a limit that starts now; None means no limit."""
        return Clock(math.inf if seconds is None else time.monotonic() + seconds)

    def left(self) -> float:
        """Return the seconds left, 0 if there are none."""
        return max(self.end - time.monotonic(), 0.0)

    def over(self) -> bool:
        """Return whether the limit is reached."""
        return time.monotonic() >= self.end

    def part(self, share: float) -> Clock:
        """Return the clock of a step that may take this share of the remaining time."""
        return Clock(time.monotonic() + share * self.left())

    @property
    def limited(self) -> bool:
        """Return whether there is a limit."""
        return math.isfinite(self.end)


NO_CLOCK = Clock()
"""No limit: searches end by their counters alone."""
