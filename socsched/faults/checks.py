"""Checks of faults that did not come from a file, whose numbers are checked as they are read."""

from __future__ import annotations

from typing import Any

from socsched.errors import UsageError
from socsched.faults.model import SECTIONS, Faults, cannot, sections_of
from socsched.limits import HORIZON_NS, LONGEST_NS, MOST_RATE
from socsched.units import format_duration

_MOST_FACTOR = 1000
_MOST_FRAMES = 10**6


def check_faults(faults: Faults, by: str) -> None:
    """Raise UsageError for a fault that a simulation or a run (`by`) cannot inject, or with a number out of range."""
    for fault in faults.all():
        if by not in SECTIONS[fault.section].by:
            raise UsageError(cannot(by, fault.section), f"it can inject {', '.join(sections_of(by))}")
    windows: tuple[Any, ...] = (*faults.dropouts, *faults.slowdowns, *faults.stalls, *faults.delays, *faults.hogs)
    times = [time for fault in windows for time in (fault.from_ns, fault.until_ns)]
    times += [burst.at_ns for burst in faults.bursts] + [failure.at_ns for failure in faults.failures]
    factors = [*(slow.factor for slow in faults.slowdowns), *(overrun.factor for overrun in faults.overruns)]
    wrong = (
        any(not 0 <= time <= HORIZON_NS for time in times)
        or any(not 0 <= delay.by_ns <= LONGEST_NS for delay in faults.delays)
        or any(not 0 <= burst.frames <= _MOST_FRAMES for burst in faults.bursts)
        or any(not 0 <= hog.bandwidth <= MOST_RATE for hog in faults.hogs)
        or any(not 1 <= factor <= _MOST_FACTOR for factor in factors)
        or any(not 0 <= overrun.probability <= 1 for overrun in faults.overruns)
    )
    if wrong:
        raise UsageError(
            f"faults: times from 0 to {format_duration(HORIZON_NS)}, factors from 1 to {_MOST_FACTOR}, "
            f"probabilities from 0 to 1 and at most {_MOST_FRAMES} frames in a burst are expected"
        )
