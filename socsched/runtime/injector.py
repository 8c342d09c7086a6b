"""Injection of faults into a run: frames that are lost, jobs that hang or fail, and jobs that are prolonged.

A slowed job computes at normal speed and then occupies its lanes for the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from socsched.errors import MachineError
from socsched.faults.checks import check_faults
from socsched.faults.model import RUN, Faults
from socsched.planning.plan import Task


class InjectedFailure(MachineError):
    """A stage failure injected by a faults file."""


@dataclass(slots=True)
class Injector:
    """Injects the faults; `origin_ns` is the monotonic time of the first release, -1 before it."""

    faults: Faults
    seed: int
    origin_ns: int = -1
    freed: threading.Event = field(default_factory=threading.Event)
    spent: set[int] = field(default_factory=set)
    _overruns: list[tuple[str, float, Iterator[bool]]] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        check_faults(self.faults, RUN)
        self._overruns = [(over.stage, float(over.factor), over.jobs(self.seed)) for over in self.faults.overruns]

    def loses(self, sensor: str, release_ns: int) -> bool:
        """Return whether a frame is lost to a dropout."""
        return any(f.sensor == sensor and f.from_ns <= release_ns < f.until_ns for f in self.faults.dropouts)

    def before(self, task: Task) -> None:
        """Hang or fail if a fault applies to this job; a hang lasts until the run ends."""
        if self.origin_ns < 0 or not self.faults.failures:
            return
        now = time.monotonic_ns() - self.origin_ns
        for number, failure in enumerate(self.faults.failures):
            here = failure.engine == task.engine and (not failure.lanes or set(failure.lanes) & set(task.lanes))
            if here and now >= failure.at_ns and number not in self.spent:
                self.spent.add(number)
                if failure.kind == "fail":
                    raise InjectedFailure(f"{task.engine} failed, as specified in the faults file")
                self.freed.wait()

    def after(self, task: Task, start_ns: int) -> None:
        """Occupy the lanes for the extra time the faults add to a job that began at `start_ns` (monotonic)."""
        if self.origin_ns < 0 or not (self.faults.slowdowns or self._overruns):
            return
        factor = self.factor(task, start_ns - self.origin_ns)
        until = start_ns + int((time.monotonic_ns() - start_ns) * factor)
        while factor > 1.0 and (left := until - time.monotonic_ns()) > 0:
            time.sleep(min(left / 1e9, 0.05))

    def factor(self, task: Task, since_ns: int) -> float:
        """Return the factor on the time of the next job of a task, begun at `since_ns` of the run."""
        factor = 1.0
        for slow in self.faults.slowdowns:
            if slow.engine == task.engine and slow.from_ns <= since_ns < slow.until_ns:
                factor *= float(slow.factor)
        with self._guard:  # several workers may run jobs of one stage
            for stage, longer, jobs in self._overruns:
                if stage == task.name and next(jobs):
                    factor *= longer
        return factor
