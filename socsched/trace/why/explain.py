"""Breakdown of a frame's response time, from its release along its chain, carrier by carrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from socsched.errors import UsageError
from socsched.planning.plan import ChainResult, Plan, Task
from socsched.trace.chains import Record
from socsched.trace.columns import ABORTED, DONE, DROPPED
from socsched.trace.trace import Trace
from socsched.trace.why.frame_path import Carrier, Way, Ways, instant_row
from socsched.trace.why.occupancy import Piece, Places
from socsched.trace.why.parts import Explanation, Part
from socsched.trace.why.slowdown import WORK, Due, Paces, Spent, round_to_sum
from socsched.trace.why.waits import Waits

RESTARTED = "killed, starts its segment again"


class Why:
    """Explains the response times of frames in a trace of `plan`; indexes are built once."""

    def __init__(self, trace: Trace, plan: Plan) -> None:
        self.plan, self.kind = plan, trace.kind
        self.record = Record(trace.columns, plan, trace.duration_ns)
        self.places = Places(self.record.columns, plan)
        self.paces = Paces(self.places, plan)
        self.waits = Waits(self.places)
        self._ways: dict[str, Ways] = {}

    def chain(self, name: str | None = None) -> ChainResult:
        """Return a chain by name, or the only one for None; raise UsageError with the known names."""
        names = [chain.name for chain in self.plan.chains]
        if not names:
            raise UsageError("the plan has no chains: nothing to explain", "add `chains` to the pipeline")
        if name is None:
            if len(names) > 1:
                raise UsageError("the plan has several chains", f"name one with --chain: {', '.join(names)}")
            return self.plan.chains[0]
        if name not in names:
            raise UsageError(f"no chain {name!r} in this plan", f"its chains: {', '.join(names)}")
        return self.plan.chains[names.index(name)]

    def worst(self, name: str | None = None) -> Explanation:
        """Return the frame, of one chain or of all, with the largest response time relative to its deadline.

        If none was late, a frame that was dropped, or missed its deadline without completing, ranks before those in
        time.  Raises UsageError if no frame was released.
        """
        best: tuple[tuple[bool, bool, Fraction], ChainResult, int] | None = None
        for chain in self.plan.chains if name is None else (self.chain(name),):
            fates = self.record.fates(chain)
            if not len(fates.release_ns):
                continue
            times = np.where(fates.completed, fates.finish_ns - fates.release_ns, -1)
            frame = int(times.argmax())
            late = bool(times[frame] > chain.deadline_ns)
            lost = np.flatnonzero((fates.missed | fates.dropped) & ~fates.completed)
            if not late and len(lost):
                frame = int(lost[0])
            key = (late, not late and len(lost) > 0, Fraction(int(times[frame]), max(chain.deadline_ns, 1)))
            if best is None or key > best[0]:
                best = key, chain, frame
        if best is None:
            self.chain(name)
            raise UsageError("no frame was released: nothing to explain", "simulate or run for longer")
        return self.explain(best[1], best[2])

    def explain(self, chain: ChainResult | str | None, frame: int) -> Explanation:
        """Return the parts of the response time of a frame (its number at the source) of a chain.

        Raises UsageError if there is no such chain or frame.
        """
        found = chain if isinstance(chain, ChainResult) else self.chain(chain)
        ways = self._ways.setdefault(found.name, Ways(self.record, self.plan, found))
        count = len(ways.releases)
        if not 0 <= frame < count:
            released = f"frames 0 to {count - 1} were released" if count else "none was released"
            raise UsageError(f"no frame {frame} of {found.path[0]}: {released}", "choose one of those, or --worst")
        way = ways.way(frame)
        parts = tuple(part for part in self._parts(way, frame, ways) if part.ns)
        jobs = self.record.columns.jobs
        carried = tuple((c.task.name, int(jobs.frame[c.row])) for c in way.carriers if c.row >= 0)
        times = (way.release_ns, way.end_ns, found.deadline_ns)
        reason = "" if way.outcome == "completed" else self._why_lost(way, frame, ways.path[0])
        return Explanation(found.name, frame, way.outcome, self.kind, *times, parts, carried, reason)

    def _why_lost(self, way: Way, frame: int, source: str) -> str:
        """Return the place where a frame was lost, and the recorded reason."""
        if not way.carriers:
            return ""
        last = way.carriers[-1]
        number = int(self.record.columns.jobs.frame[last.row]) if last.row >= 0 else frame
        reason = self._reason(last.task.name, number) if last.row >= 0 else self._reason(source, frame)
        return f"at {reason[0]}: {reason[2]}" if reason else f"at {last.task.name}"

    # -- parts

    def _parts(self, way: Way, frame: int, ways: Ways) -> Iterator[Part]:
        source, expected = ways.path[0], frame
        for carrier in way.carriers:
            jobs = self.record.columns.jobs
            if carrier.row < 0:
                yield from self._missing(carrier, source, expected)
                continue
            ready = min(max(int(jobs.activation_ns[carrier.row]), carrier.from_ns), carrier.until_ns)
            yield from self._before(carrier, ready, source, expected)
            yield from self._under_way(carrier, ready)
            source, expected = carrier.task.name, int(jobs.frame[carrier.row])

    def _missing(self, carrier: Carrier, source: str, expected: int) -> Iterator[Part]:
        """Yield the part of a frame that never became a job: its time up to the end of the record."""
        others = [name for name in carrier.task.after if name != source]
        kind = "sampling" if carrier.sampled else "join" if others else "lost"
        reason = self._reason(source, expected)
        yield self._part(carrier, kind, carrier.from_ns, carrier.until_ns, *(reason or ("", -1, "")))

    def _before(self, carrier: Carrier, ready: int, source: str, expected: int) -> Iterator[Part]:
        """Yield the parts until the carrier was ready: data in transit, join partners, lost jobs."""
        begin, task = carrier.from_ns, carrier.task
        if ready <= begin:
            return
        jobs, rows = self.record.columns.jobs, self.record.rows(task.name)
        gone = (jobs.status[rows] == DROPPED) | (jobs.status[rows] == ABORTED)
        inside = gone & (jobs.activation_ns[rows] >= begin) & (jobs.activation_ns[rows] < ready) & (rows != carrier.row)
        lost = int(rows[inside][0]) if inside.any() else -1
        until = int(jobs.activation_ns[lost]) if lost >= 0 else ready
        number = int(jobs.frame[carrier.row])
        if not carrier.sampled and source != task.name and lost < 0 and number != expected:
            # no data of the frame arrived here: it was lost by its sensor or by a join partner
            by = self._reason(source, expected) or (source, expected, "never came")
            yield self._part(carrier, "lost", begin, ready, *by)
            return
        if carrier.sampled:
            yield self._part(carrier, "sampling", begin, until)
        elif len(task.after) > 1:
            yield self._part(
                carrier, "join", begin, until, *self._partner(task, source, number if lost < 0 else expected)
            )
        else:
            yield self._part(carrier, "release", begin, until, source if source != task.name else "", -1)
        if lost >= 0:
            frame = int(jobs.frame[lost])
            by = self._reason(task.name, frame) or (task.name, frame, "")
            yield self._part(carrier, "lost", until, ready, *by)

    def _partner(self, task: Task, source: str, frame: int) -> tuple[str, int, str]:
        """Return the producer, other than `source`, whose output for a frame reached a task last."""
        jobs, best = self.record.columns.jobs, ("", -1, "")
        latest = -1
        for name in task.after:
            rows = self.record.rows(name)
            rows = rows[(jobs.frame[rows] == frame) & (jobs.status[rows] == DONE)]
            if name != source and len(rows) and int(jobs.finish_ns[rows[-1]]) > latest:
                latest, best = int(jobs.finish_ns[rows[-1]]), (name, frame, "")
        return best

    def _reason(self, subject: str, frame: int) -> tuple[str, int, str] | None:
        """Return the subject that dropped or aborted a frame, the frame, and the reason."""
        for kind in ("drop", "abort"):
            row = instant_row(self.record, subject, frame, kind)
            if row is not None:
                notes, columns = self.record.columns.instants, self.record.columns
                return subject, frame, columns.text(int(notes.kind[row]), int(notes.value[row]))
        return None

    def _under_way(self, carrier: Carrier, ready: int) -> Iterator[Part]:
        """Yield the parts of a job's time from when it was ready: work, and waits between its slices."""
        begin, end, row = ready, carrier.until_ns, carrier.row
        own = [p for p in self.places.of(row) if p.start_ns < end and p.end_ns > begin and p.end_ns > p.start_ns]
        others = self.places.between(begin, end, row)
        starts = [piece.start_ns for piece in others]
        lost = self._restarted(carrier)
        spent: Spent = {}
        before: Piece | None = None
        at = begin
        for piece in own:
            start, stop = max(piece.start_ns, at), min(piece.end_ns, end)
            if start > at:
                yield from self.waits.parts(carrier, at, start, before, piece, others)
            if stop > start:
                took = self._took(piece, start, stop, others, starts, lost)
                for due, time in took.items():
                    spent[due] = spent.get(due, Fraction(0)) + time
            before, at = piece, max(at, stop)
        if end > at:
            yield from self.waits.parts(carrier, at, end, before, None, others)
        yield from self._worked(carrier, spent, own)

    def _took(
        self, piece: Piece, begin: int, end: int, others: list[Piece], starts: list[int], lost: set[int]
    ) -> Spent:
        if not piece.works:
            return {Due("switch", piece.engine): Fraction(end - begin)}
        if piece.row in lost:
            over = next((p for p in others if p.start_ns == piece.end_ns and p.engine == piece.engine), None)
            by = self.places.who(over.job) if over else ("", -1)
            return {Due("restart", piece.engine, *by): Fraction(end - begin)}
        return self.paces.spent(piece, begin, end, others, starts)

    def _restarted(self, carrier: Carrier) -> set[int]:
        """Return the slices of a job whose work was lost because their segment was restarted later."""
        columns, notes = self.record.columns, self.record.columns.instants
        about = np.flatnonzero(notes.frame == columns.jobs.frame[carrier.row]).tolist()
        about = [r for r in about if columns.subjects[int(notes.subject[r])] == carrier.task.name]
        restarts = [r for r in about if columns.text(int(notes.kind[r]), int(notes.value[r])) == RESTARTED]
        kills = {int(notes.time_ns[r]) for r in restarts}
        if not kills:
            return set()
        pieces = [piece for piece in self.places.of(carrier.row) if piece.works]
        lost, same = set[int](), list[Piece]()
        for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
            same.append(piece)
            again = following is None or self.places.segment(following) is self.places.segment(piece)
            if again and piece.end_ns in kills:
                lost.update(p.row for p in same)
            if not again or piece.end_ns in kills:
                same.clear()
        return lost

    def _worked(self, carrier: Carrier, spent: Spent, own: list[Piece]) -> Iterator[Part]:
        """Yield a job's work, planned and beyond the plan, and its slowdowns."""
        if not own:
            return
        window = max(own[0].start_ns, carrier.from_ns), min(own[-1].end_ns, carrier.until_ns)
        work = 0
        for due, time in round_to_sum(spent).items():
            if due.kind == WORK:
                work += time
            else:
                yield Part(carrier.task.name, due.kind, due.engine, due.by, due.frame, time, *window)
        planned = self.places.planned(carrier.row)
        if self.record.columns.jobs.status[carrier.row] != DONE:
            planned = min(planned, work)
        kind = "conversion" if carrier.task.kind == "conversion" else "execution"
        part = Part(carrier.task.name, kind, carrier.task.engine, "", -1, planned, *window)
        yield part
        yield replace(part, kind="above", ns=work - planned)

    def _part(
        self, carrier: Carrier, kind: str, begin: int, end: int, by: str = "", frame: int = -1, note: str = ""
    ) -> Part:
        return Part(carrier.task.name, kind, "", by, frame, end - begin, begin, end, note)
