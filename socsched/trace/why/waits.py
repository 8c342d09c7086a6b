"""Attribution of waiting times: the holders of the lanes that a job needed while it did not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from socsched.trace.columns import DROPPED, UNFINISHED
from socsched.trace.why.frame_path import Carrier
from socsched.trace.why.occupancy import Piece, Places, cuts
from socsched.trace.why.parts import Part

FOREVER = 1 << 62


class Waits:
    """Attributes the waits of jobs.

    While an earlier frame of the same task is unfinished, the wait is due to that frame wherever it runs, and otherwise
    to the holders of the lanes it needs.  Of several jobs on the lanes, the one whose departure admits the waiting job
    counts.  Jobs served after the waiting one count only if no other job holds the lanes, since it does not queue
    behind them.
    """

    def __init__(self, places: Places) -> None:
        self.places = places

    def parts(
        self,
        carrier: Carrier,
        begin: int,
        end: int,
        before: Piece | None,
        following: Piece | None,
        others: Sequence[Piece],
    ) -> Iterator[Part]:
        """Yield the parts of a carrier's wait between two of its slices (either may be None), in order of time.

        `others`: all slices of other jobs in the carrier's window.
        """
        places, task = self.places, carrier.task.name
        engine, lanes, width = self._wanted(carrier, before, following)
        claimed, earlier = self._claimed(carrier.row)
        near = [p for p in others if p.end_ns > begin and p.start_ns < end]
        taken = [p for p in near if p.engine == engine and p.lanes & lanes]
        own = [p for p in near if p.job in earlier and p.works] if claimed > begin else []
        changes = [claimed, *(t for p in (*taken, *own) for t in (p.start_ns, p.end_ns))]
        changes += places.edges(engine, begin, end)
        resumes = before is not None and before.engine == engine
        for a, b in cuts(begin, end, changes):
            ahead = [p for p in own if p.start_ns <= a < p.end_ns] if a < claimed else []
            here = [p for p in taken if p.start_ns <= a < p.end_ns]
            if ahead:
                kind, holder = "waiting", ahead[0]
            elif places.stalled(engine, a) or not here or _bits(lanes & ~_union(here)) >= width:
                kind = "fault" if places.stalled(engine, a) else "held"
                yield Part(task, kind, engine, "", -1, b - a, a, b)
                continue
            else:
                kind, holder = self._holder(carrier.row, engine, here, lanes, width, a >= claimed)
                kind = "preemption" if resumes and kind == "waiting" and a >= claimed else kind
            yield Part(task, kind, holder.engine, *places.who(holder.job), b - a, a, b)

    def _wanted(self, carrier: Carrier, before: Piece | None, following: Piece | None) -> tuple[str, int, int]:
        """Return the engine, the lanes, and the number of lanes a job waits for."""
        task = carrier.task
        home, width = sum(1 << lane for lane in set(task.lanes)), task.width or len(set(task.lanes))
        piece = following or before
        if piece is None or piece.engine == task.engine:
            return task.engine, home, width
        return piece.engine, piece.lanes, _bits(piece.lanes)

    def _claimed(self, job: int) -> tuple[int, set[int]]:
        """Return the end of all earlier jobs of a job's task, and those still open at its activation."""
        jobs = self.places.columns.jobs
        earlier = np.flatnonzero(jobs.task[:job] == jobs.task[job])
        open_ = earlier[
            (jobs.status[earlier] == UNFINISHED)
            | ((jobs.finish_ns[earlier] > jobs.activation_ns[job]) & (jobs.status[earlier] != DROPPED))
        ]
        ends = np.where(jobs.status[open_] == UNFINISHED, FOREVER, jobs.finish_ns[open_])
        return int(ends.max(initial=0)), set(open_.tolist())

    def _holder(
        self, job: int, engine: str, here: list[Piece], lanes: int, width: int, claims: bool
    ) -> tuple[str, Piece]:
        """Return "blocking" or "waiting" for a job, and the slice that it waits for."""
        places = self.places
        later = [p for p in here if places.after(engine, p.job, job)] if claims else []
        if len(later) == len(here):
            kind = "waiting" if places.preemptive(engine) else "blocking"
            return kind, _binding(here, lanes, width)
        return "waiting", _binding([p for p in here if p not in later], lanes, width)


def _binding(here: list[Piece], lanes: int, width: int) -> Piece:
    """Return the slice whose end frees `width` of `lanes` for a waiting job; the last one if all must end."""
    free = _bits(lanes & ~_union(here))
    leaving = sorted(here, key=lambda p: (p.end_ns, p.row))
    for piece in leaving:
        free += _bits(piece.lanes & lanes)
        if free >= width:
            return piece
    return leaving[-1]


def _union(pieces: list[Piece]) -> int:
    lanes = 0
    for piece in pieces:
        lanes |= piece.lanes
    return lanes


def _bits(lanes: int) -> int:
    return bin(lanes).count("1")
