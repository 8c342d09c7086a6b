"""The end of a search: a clock of work, so that equal inputs give equal plans on every machine under every load.

Work is counted in evaluations of mappings, by the thread that does it.  The time of day is only a guard rail: a search
that it ends says so (`Clock.cut_off`).
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field

EVALUATIONS = 768
"""Default budget of the longest search."""
LEAST, FACTOR = 12, 8
"""The least budget of searches, and the ratio of one to the next in their series."""
FEW = 48
"""Stages up to which a pipeline's budgets do not depend on their number."""
THOROUGH = 8
"""Evaluations as which a thorough analysis of a mapping counts: it takes about as long."""
PER_SECOND = 100
"""Evaluations as which a deterministic second of CP-SAT counts, about as long on a desktop computer of 2024."""


class _Counter(threading.local):
    work = 0


_COUNTER = _Counter()


def count(evaluations: int) -> None:
    """Add work to that of this thread."""
    _COUNTER.work += evaluations


@dataclass(slots=True)
class _Guard:
    """An instant on the monotonic clock (s), and whether a search was ended by it, or by its budget."""

    until: float = math.inf
    passed: bool = False
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """An amount of this thread's work after which nothing new is tried; infinite for no limit.

    All clocks of one plan share the guard rail of the one that they are parts of.
    """

    end: float = math.inf
    _guard: _Guard = field(default_factory=_Guard)

    @staticmethod
    def of(evaluations: int | None, seconds: float | None = None) -> Clock:
        """Return the clock of a budget that starts now, with a guard rail after `seconds`; None means no limit."""
        guard = _Guard(math.inf if seconds is None else time.monotonic() + seconds)
        return Clock(math.inf if evaluations is None else _COUNTER.work + evaluations, guard)

    def left(self) -> float:
        """Return the evaluations left, 0 if there are none."""
        return 0 if self.late() else max(self.end - _COUNTER.work, 0)

    def over(self) -> bool:
        """Return whether the budget is used up, or the guard rail reached before it."""
        ended = _COUNTER.work >= self.end
        self._guard.spent |= ended
        return ended or self.late()

    def part(self, share: float) -> Clock:
        """Return the clock of a step that may take this share of the evaluations left."""
        return self.next(self.left() * share)

    def next(self, evaluations: float) -> Clock:
        """Return the clock of a step that may take so many evaluations, whatever this one has left."""
        return Clock(_COUNTER.work + (evaluations if math.isinf(evaluations) else int(evaluations)), self._guard)

    def longer(self, evaluations: int) -> Clock:
        """Return the clock that ends so many evaluations after this one."""
        return Clock(self.end + evaluations, self._guard)

    def seconds(self) -> float:
        """Return the time (s) left to the guard rail, infinite without one."""
        return max(self._guard.until - time.monotonic(), 0.0)

    @property
    def limited(self) -> bool:
        """Return whether there is a budget."""
        return math.isfinite(self.end)

    @property
    def spent(self) -> bool:
        """Return whether a budget ended a step, so that a larger one may lead elsewhere; see `afresh`."""
        return self._guard.spent

    def afresh(self, evaluations: float) -> Clock:
        """Return the clock of a further search, which has not spent anything yet."""
        self._guard.spent = False
        return self.next(evaluations)

    @property
    def cut_off(self) -> bool:
        """Return whether the guard rail ended a step before its budget did."""
        return self._guard.passed

    def late(self) -> bool:
        """Return whether the guard rail is reached; a step that asks is ended by it."""
        if not self._guard.passed and self._guard.until < math.inf:
            self._guard.passed = time.monotonic() >= self._guard.until
        return self._guard.passed


NO_CLOCK = Clock()
"""No limit: searches end by their counters alone."""
