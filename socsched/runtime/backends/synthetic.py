"""Stages with only a planned execution time: a load that keeps its lanes busy for that time.

The same technique as the number cruncher of the ROS 2 reference system (ros-realtime/reference-system): real CPU time
on the real core, synthetic work.  The loop counts its own CPU time, not wall-clock time, so that a stage disturbed by
others ends later, as a real one would.  A pass is a numpy operation, which lets other threads run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from socsched.descriptor.pipeline import Stage
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Setting

_PASS = 16384
"""Numbers per pass: about 10 us of work, small enough for the second-level cache of any core."""


class SyntheticBackend:
    """Occupies the job's first lane for `Task.cost_ns` of CPU time; further lanes stay reserved but idle."""

    title = "synthetic load of the planned time"
    real = False

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return a load of the task's planned cost."""

        def call(values: Mapping[str, Outputs]) -> Outputs:
            burn(task.cost_ns)
            return {}

        return call


def burn(cost_ns: int) -> None:
    """Consume `cost_ns` of this thread's CPU time."""
    import numpy

    numbers = numpy.full(_PASS, 1.000001, numpy.float64)
    end = time.thread_time_ns() + cost_ns
    while time.thread_time_ns() < end:
        numpy.multiply(numbers, numbers, out=numbers)
        numpy.minimum(numbers, 2.0, out=numbers)
