"""Named constants: preemption modes, job outcomes and note codes."""

from __future__ import annotations

import cython

FAR = cython.declare(cython.longlong, 4611686018427387904)
"""A time that never comes (2**62 ns)."""
SHIFT = cython.declare(cython.longlong, 20)
"""Remaining work of a segment is kept in 2**-20 ns at its present pace."""
# preemption
FULL = cython.declare(cython.longlong, 0)
SEGMENT = cython.declare(cython.longlong, 1)
NONE = cython.declare(cython.longlong, 2)
RESTART = cython.declare(cython.longlong, 3)
# when a running job finishes rather than being preempted
SLOWDOWN = cython.declare(cython.longlong, 1)
COMPLETION = cython.declare(cython.longlong, 3)
# how a job that will be late is handled
SKIP = cython.declare(cython.longlong, 1)
ABORT = cython.declare(cython.longlong, 2)
DEGRADE = cython.declare(cython.longlong, 3)
# queues: 0 drops the newest frame, 1 the oldest waiting one
LATEST = cython.declare(cython.longlong, 1)
# how a job ended
DONE = cython.declare(cython.longlong, 1)
DROPPED = cython.declare(cython.longlong, 2)
ABORTED = cython.declare(cython.longlong, 3)
# notes (`trace.columns`)
MISS = cython.declare(cython.longlong, 0)
UNFINISHED = cython.declare(cython.longlong, 1)
QUEUE_FULL = cython.declare(cython.longlong, 2)
LOST_FRAME = cython.declare(cython.longlong, 3)
LATE_ABORT = cython.declare(cython.longlong, 4)
OVERRUN = cython.declare(cython.longlong, 8)
SKIPPED = cython.declare(cython.longlong, 12)
KILLED = cython.declare(cython.longlong, 13)
SHED = cython.declare(cython.longlong, 14)
RAISED = cython.declare(cython.longlong, 15)
