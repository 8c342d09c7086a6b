"""The native executor on a virtual clock, which equals the simulator job by job.

At every instant jobs end in the order of the tasks, then frames are released, then jobs are started once, then the
monitor looks: the order of the simulator.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from socsched.errors import MachineError
from socsched.executor.outcome import Executed, read_outcome
from socsched.executor.settings import RunSettings, write_settings
from socsched.sim.simulate import simulate
from socsched.trace.trace import Trace


def run_native(executor: Path, settings: RunSettings, folder: Path) -> tuple[Trace, Executed]:
    """Return trace and outcome of the native executor on a virtual clock; MachineError if it fails to run."""
    file = write_settings(settings, folder)
    command = [str(executor), str(file), "-o", str(folder), "--virtual"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3) or (done.returncode == 3 and done.stderr):
        raise MachineError(f"the native executor ended with {done.returncode}: {done.stderr}")
    return read_outcome(folder)


def differences_from_simulator(settings: RunSettings, native: Trace) -> list[str]:
    """Return how a native run differs from a simulation of its plan, job by job; empty if it does not.

    A simulation ends at the horizon, where the executor lets released frames complete: later events do not count.  The
    plan must be one that both model: engines with full preemption or none, no contention, constant execution times.
    """
    end = settings.horizon_ns
    dropped = {(n.subject, n.frame): n.time_ns for n in native.instants if n.kind == "drop"}
    mine: list[str] = []
    for job in native.jobs:
        if job.activation_ns > end:
            continue
        begun, ended = 0 <= job.start_ns < end, 0 <= job.finish_ns <= end
        status = job.status
        if (status == "done" and not ended) or (status == "dropped" and dropped[job.task, job.frame] >= end):
            status = "unfinished"
        times = (job.start_ns if begun else -1, job.finish_ns if ended else -1)
        sampled = sorted(job.sampled.items()) if begun else []
        mine.append(f"{job.task} {job.frame} {job.activation_ns} {job.deadline_ns} {times} {status} {sampled}")
    simulated = simulate(settings.plan, end)
    theirs = [
        f"{job.task} {job.frame} {job.activation_ns} {job.deadline_ns} {(job.start_ns, job.finish_ns)} {job.status} "
        f"{sorted((name, frame) for name, frame in job.sampled.items() if frame >= 0)}"
        for job in simulated.jobs
    ]
    found = _differing("jobs", sorted(mine), sorted(theirs))
    return found + _differing("intervals", _intervals(native, end), _intervals(simulated, end))


def _intervals(trace: Trace, end: int) -> list[str]:
    """Return the execution intervals of all jobs before `end`, in order, adjacent ones joined."""
    rows: list[list[Any]] = []
    pieces = [(repr((trace.jobs[p.job].task, trace.jobs[p.job].frame)), p.start_ns, p.end_ns) for p in trace.slices]
    for job, start, stop in sorted(pieces):
        if rows and rows[-1][0] == job and rows[-1][2] == start:
            rows[-1][2] = stop
        elif start < end:
            rows.append([job, start, stop])
    return [f"{job} {start} {min(stop, end)}" for job, start, stop in rows]


def _differing(what: str, mine: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if list(mine) == list(theirs):
        return []
    extra = [row for row in mine if row not in theirs][:3]
    missing = [row for row in theirs if row not in mine][:3]
    return [f"{what}: native has {extra}, the other {missing} ({len(mine)} and {len(theirs)} in all)"]
