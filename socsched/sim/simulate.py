"""Discrete-event simulation of a plan: the same tasks, slots, policies and costs, on a clock of integer nanoseconds.

The semantics are documented and implemented in `sim.kernel.kernel`; this module is the entry point.  The first Ctrl-C
is acknowledged at once and stops after the current batch of events, a second one discards the simulation.  The kernel
is never interrupted while it handles an event, so its results up to the stop are complete.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from socsched.deadline import check
from socsched.errors import UsageError
from socsched.faults.model import Faults
from socsched.limits import HORIZON_NS
from socsched.planning.plan import Plan
from socsched.progress import tell
from socsched.sim.build import load_kernel
from socsched.sim.callbacks import Callbacks
from socsched.sim.lower import Lowered, lower
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.sim.results import KernelResult


_BATCH_S = 0.05
"""Target duration of one uninterrupted batch of events in the kernel."""
_FIRST, _MOST = 1_000, 1 << 30
MESSAGE = "stopping and writing the results so far; press Ctrl-C again to discard them"


class Stop:
    """A request to stop (`requested`), and the number of events to handle before the next check (`events`)."""

    def __init__(self) -> None:
        self.requested = False
        self.events = _FIRST
        self._since = time.perf_counter()

    def size_batch(self) -> int:
        """Return the number of events that take about `_BATCH_S`, estimated from the last batch."""
        now = time.perf_counter()
        took, self._since = now - self._since, now
        self.events = min(max(int(self.events * min(max(_BATCH_S / max(took, 1e-9), 0.25), 4.0)), 1), _MOST)
        return self.events


@contextmanager
def stopping() -> Iterator[Stop]:
    """Make Ctrl-C set `requested` inside the block instead of raising KeyboardInterrupt; a second one raises it.

    Outside the main thread, or if the caller has installed its own SIGINT handler, nothing changes.
    """
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        # written directly because sys.stderr may be in the middle of a line
        os.write(2, f"\n{MESSAGE}\n".encode())

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def run_until_stopped(step: Callable[[int], bool], then: Callable[[], None]) -> bool:
    """Call `step` with numbers of events until it is done, and `then` in between; return whether it was stopped."""
    with stopping() as stop:
        while step(stop.size_batch()):
            if stop.requested:
                return True
            then()
    return False


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """A simulation that ended at `duration_ns`, early if `interrupted`; `trace` is set if it was recorded."""

    lowered: Lowered
    duration_ns: int
    seed: int
    outcome: KernelResult
    trace: Trace | None
    interrupted: bool


def simulate(
    plan: Plan, duration_ns: int, seed: int = 0, policy: str | None = None, faults: Faults | None = None
) -> Trace:
    """Simulate `plan` from 0 to `duration_ns` and return the trace; the same arguments give the same trace.

    `seed` drives release jitter, execution times and faults; `policy` overrides every engine's own.  Jobs still running
    at the end stay `unfinished`, and their slices end there.  Raises UsageError for a plan or policy that cannot be
    simulated.
    """
    trace = run(plan, duration_ns, seed, policy, faults).trace
    assert trace is not None
    return trace


def run(
    plan: Plan,
    duration_ns: int,
    seed: int = 0,
    policy: str | None = None,
    faults: Faults | None = None,
    *,
    record: bool = True,
    implementation: str | None = None,
) -> SimulationRun:
    """Simulate `plan`; with `record` False only running figures are kept, in memory that does not grow with time.

    `implementation` compiled | python | checked | None (compiled where possible): all give the same results.  After
    Ctrl-C, the part simulated so far is returned as a shorter simulation.  OutOfTime past the deadline of this thread.
    """
    from socsched.sim.recorder import Recorder
    from socsched.sim.results import KernelResult

    # a task set is simulated up to and including the instant of its horizon
    if not 0 <= duration_ns <= HORIZON_NS + 1:
        raise UsageError(f"expected a duration from 0 to {HORIZON_NS} ns (100 days), got {duration_ns} ns")
    lowered = lower(plan, seed, policy)
    callbacks = Callbacks(lowered, faults or Faults(), seed)
    kernel_class = load_kernel(implementation, _segments(plan, duration_ns), lowered.tables["numbers"]["words"])
    kernel = kernel_class(lowered.tables, callbacks, duration_ns, int(record))
    # The loop allocates records, never cycles; collecting garbage over millions of records would take half the time.
    collecting = gc.isenabled()
    gc.disable()
    recorder = Recorder(lowered)

    def between() -> None:
        check()
        tell("simulating", kernel.get_time(), duration_ns, "ns")
        recorder.take(kernel.take_rows())

    try:
        interrupted = run_until_stopped(kernel.run_events, between)
    finally:
        if collecting:
            gc.enable()
    if interrupted:
        duration_ns = kernel.get_time()
    outcome = KernelResult(kernel.close(duration_ns))
    trace = None
    if record:
        recorder.take(kernel.take_rows())
        trace = Trace.from_columns("simulated", duration_ns, seed, recorder.columns(callbacks))
    return SimulationRun(lowered, duration_ns, seed, outcome, trace, interrupted)


def _segments(plan: Plan, duration_ns: int) -> int:
    """Return the approximate number of segments that will run."""
    return sum(duration_ns // max(task.period_ns, 1) * max(len(task.segments), 1) for task in plan.tasks)
