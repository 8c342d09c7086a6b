"""Who had the lanes that a job needed while it did not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from socsched.trace.columns import DROPPED, UNFINISHED
from socsched.trace.why.parts import Part
from socsched.trace.why.place import Piece, Places, cuts
from socsched.trace.why.way import Carrier

FOREVER = 1 << 62


class Waits:
    """Takes the waits of jobs apart.

    While an earlier frame of the same task is unfinished, that is who is waited for wherever it runs, and who holds the
    lanes it needs while it does not.  Of several jobs on the lanes that one counts which lets the waiting one in when
    it leaves; jobs served after it only where nobody else is there, as they cannot be what it waits its turn for.
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
        """Yield the parts of a wait of a carrier between two of its slices (or none), in order of time.

        `others`: all slices of other jobs in its time.
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
        """Return the engine, the lanes, and how many of them a job waits for."""
        task = carrier.task
        home, width = sum(1 << lane for lane in set(task.lanes)), task.width or len(set(task.lanes))
        piece = following or before
        if piece is None or piece.engine == task.engine:
            return task.engine, home, width
        return piece.engine, piece.lanes, _bits(piece.lanes)

    def _claimed(self, job: int) -> tuple[int, set[int]]:
        """Return when the earlier jobs of a job's task were all over, and which of them had not been at its release."""
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
        """Return whether a job is blocked or waits its turn, and the slice that it waits for."""
        places = self.places
        later = [p for p in here if places.after(engine, p.job, job)] if claims else []
        if len(later) == len(here):
            kind = "waiting" if places.preemptive(engine) else "blocking"
            return kind, _binding(here, lanes, width)
        return "waiting", _binding([p for p in here if p not in later], lanes, width)


def _binding(here: list[Piece], lanes: int, width: int) -> Piece:
    """Return the slice whose end lets a job in that needs `width` of some lanes: the last one where all must go."""
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
