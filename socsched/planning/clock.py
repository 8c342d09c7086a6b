"""When a search has to end: one clock for all steps of planning, so that together they keep one limit."""

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
        """Return the clock of a limit that starts now, None for no limit."""
        return Clock(math.inf if seconds is None else time.monotonic() + seconds)

    def left(self) -> float:
        """Return the seconds that are left, 0 when there are none."""
        return max(self.end - time.monotonic(), 0.0)

    def over(self) -> bool:
        """Say whether the limit is reached."""
        return time.monotonic() >= self.end

    def part(self, share: float) -> Clock:
        """Return the clock of a step that may take this share of what is left."""
        return Clock(time.monotonic() + share * self.left())

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return math.isfinite(self.end)


NO_CLOCK = Clock()
"""No limit: searches end by their counters alone."""
