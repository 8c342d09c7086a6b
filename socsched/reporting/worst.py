"""The worst frame of each chain: furthest past its deadline, or else with the least slack, and its path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from socsched.planning.plan import ChainResult, Plan
from socsched.trace.metrics import record_of
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.chains import Record


@dataclass(frozen=True, slots=True)
class Hop:
    """A job on the path of a frame: its ready, start and end times (ns), and its execution time."""

    task: str
    engine: str
    frame: int
    ready_ns: int
    start_ns: int
    end_ns: int
    runs_ns: int


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst frame of a chain (ns); `response_ns` is None and `hops` empty if no frame arrived at all.

    `window`: the interval around it to show; `lost`: the frames that were dropped, or not done by their deadline.
    """

    chain: ChainResult
    frame: int
    release_ns: int
    response_ns: int | None
    window: tuple[int, int]
    hops: tuple[Hop, ...]
    lost: int

    @property
    def pressure(self) -> float:
        """Return the response over the deadline; a frame that never arrived ranks worst."""
        return float("inf") if self.response_ns is None else self.response_ns / self.chain.deadline_ns


def worst_frames(plan: Plan, trace: Trace) -> list[Worst]:
    """Return the worst frame of every chain that has frames, worst first."""
    record = record_of(trace, plan)
    worst_of_chains = [worst for chain in plan.chains for worst in _worst(record, plan, chain)]
    return sorted(worst_of_chains, key=lambda worst: -worst.pressure)


def _worst(record: Record, plan: Plan, chain: ChainResult) -> Iterator[Worst]:
    fates = record.fates(chain)
    completed = fates.completed.nonzero()[0]
    lost = ((fates.dropped | fates.missed) & ~fates.completed).nonzero()[0]
    if len(completed):
        frame = int(completed[fates.response_ns.argmax()])
        release, finish = int(fates.release_ns[frame]), int(fates.finish_ns[frame])
        response = finish - release
        margin = max(response // 8, 1)
        end = release + max(response, chain.deadline_ns if response > chain.deadline_ns // 2 else 0) + margin
        window = max(release - margin, 0), end
        yield Worst(chain, frame, release, response, window, tuple(_hops(record, plan, chain, finish)), len(lost))
        return
    if len(lost):
        frame = int(lost[0])
        release = int(fates.release_ns[frame])
        window = max(release - chain.deadline_ns // 4, 0), release + chain.deadline_ns * 5 // 4
        yield Worst(chain, frame, release, None, window, (), len(lost))


def _hops(record: Record, plan: Plan, chain: ChainResult, finish_ns: int) -> list[Hop]:
    """Return the jobs along the path that led to the completion at `finish_ns`, conversions included."""
    import numpy as np

    jobs, engines = record.columns.jobs, {task.name: task.engine for task in plan.tasks}
    conversions = {(t.source, t.sink): t.task for t in plan.transitions if t.task in engines}

    def hop(task: str, row: int) -> Hop:
        times = (jobs.activation_ns, jobs.start_ns, jobs.finish_ns, jobs.exec_ns)
        ready, start, end, runs = (int(column[row]) for column in times)
        return Hop(task, engines[task], int(jobs.frame[row]), ready, start, end, runs)

    rows = record.rows(chain.path[-1])
    rows = rows[jobs.finish_ns[rows] == finish_ns]
    if not len(rows):
        return []
    frame, found = int(jobs.frame[rows[0]]), [hop(chain.path[-1], int(rows[0]))]
    for task, producer in pairwise(chain.path[::-1]):
        taken = int(record.taken(producer, task, np.array([frame]))[0])
        conversion = conversions.get((producer, task))
        # a conversion has the number of the frame it converts
        for name in (conversion, producer):
            if name in engines:
                own = record.rows(name)
                own = own[jobs.frame[own] == taken]
                if len(own):
                    found.append(hop(name, int(own[-1])))
        frame = taken
    return found[::-1]
