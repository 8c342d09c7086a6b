"""One window of a trace as the data drawn by `assets/gantt.js`: the jobs on every engine over time and their inputs.

The stay of a job on its lanes is one bar, with its segments joined.  If a window has too many bars for the page, short
consecutive stays on a lane are joined into one bar labelled with their count.  Late jobs are never joined; nor are the
bars of the initial view, as long as they take no more than half of the room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from socsched.planning.plan import Plan
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Ints
    from socsched.trace.execution_intervals import Arrows, Stays

ROOM = 4000
"""Maximum number of bars in a timeline of the page, not counting late ones."""
MARKS = {
    "miss": "missed",
    "drop": "dropped",
    "abort": "aborted",
    "input": "bad input",
    "fault": "fault",
    "throttle": "throttled",
}
MOST_MARKS = 400


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A trace with the data shared by its timelines: lanes in use, stays, and the data flow between jobs."""

    plan: Plan
    columns: Columns
    stays: Stays
    arrows: Arrows
    rows: dict[tuple[str, int], int]

    @classmethod
    def of(cls, plan: Plan, trace: Trace) -> Recorded:
        """Return the record of `trace`."""
        # imported here, so that NumPy is loaded only if there is something to draw
        from socsched.trace.execution_intervals import arrows, stays

        columns = trace.columns
        return cls(plan, columns, stays(columns), arrows(columns, plan), _rows(plan, columns))


def _rows(plan: Plan, columns: Columns) -> dict[tuple[str, int], int]:
    from socsched.trace.execution_intervals import used_lanes

    used = {(engine, lane) for engine, lanes in used_lanes(columns) for lane in lanes}
    order = {engine.id: i for i, engine in enumerate(plan.engines)}
    return {key: row for row, key in enumerate(sorted(used, key=lambda k: (order.get(k[0], 99), k)))}


def colours(plan: Plan) -> dict[str, int]:
    """Return the colour number (1 to 7) of every engine that has a task, the same in every picture."""
    used = {task.engine for task in plan.tasks}
    return {engine: i % 7 + 1 for i, engine in enumerate(e.id for e in plan.engines if e.id in used)}


def document(record: Recorded, window: tuple[int, int], view: tuple[int, int], room: int = ROOM) -> dict[str, Any]:
    """Return the data for `assets/gantt.js`, with times in ns from the window's start."""
    import numpy as np

    columns, held, jobs = record.columns, record.stays, record.columns.jobs
    start, end = window
    begins = columns.slices.start_ns[held.pieces[held.first]]
    ends = columns.slices.end_ns[held.pieces[held.first + held.count - 1]]
    shown = np.flatnonzero((ends > start) & (begins < end))
    pieces = held.pieces[held.first[shown]]
    engine, lanes = columns.slices.engine[pieces], columns.slices.lanes[pieces]
    state = states(record, held.job[shown])
    keep = _latest(record, held.job[shown][state > 0], room)
    first = held.job[shown][(ends[shown] > view[0]) & (begins[shown] < view[1])]
    if len(first) <= room // 2:
        keep |= set(first.tolist())
    bars, width = _thinned(begins[shown], ends[shown], engine, lanes, held.job[shown], keep, window, room)
    kept = list(dict.fromkeys(bar[2] for bar in bars if bar[2] >= 0))
    numbers = {job: i for i, job in enumerate(kept)}
    used = list(dict.fromkeys(bar[3:] for bar in bars))
    sets = [[record.rows[columns.engines[e], lane] for lane in columns.lanes(code)] for e, code in used]
    senders = _senders(record, kept, numbers)
    names = {columns.tasks[int(jobs.task[job])]: None for job in kept}
    tasks = {name: i for i, name in enumerate(names)}
    kinds = {task.name: task.kind for task in record.plan.tasks}
    codes = dict(zip(held.job[shown].tolist(), state.tolist(), strict=True))
    return {
        "start": start,
        "end": end,
        "view": [view[0] - start, view[1] - start],
        "rows": _named_rows(record),
        "tasks": [[name, kinds.get(name, "stage")] for name in tasks],
        "jobs": [
            [
                tasks[columns.tasks[int(jobs.task[job])]],
                int(jobs.frame[job]),
                int(jobs.activation_ns[job]) - start,
                int(jobs.deadline_ns[job]) - start,
                _time(jobs.start_ns[job], start),
                _time(jobs.finish_ns[job], start),
                int(jobs.exec_ns[job]),
                int(jobs.blocking_ns[job]),
                int(jobs.preemptions[job]),
                codes[job],
                senders[job],
            ]
            for job in kept
        ],
        "sets": sets,
        "stays": [
            [used.index((e, code)), numbers[job] if job >= 0 else job, begin - start, stop - begin]
            for begin, stop, job, e, code in bars
        ],
        "marks": _marks(columns, window),
        "inputs": _inputs(columns, window),
        "resolution": width,
    }


def states(record: Recorded, jobs: Ints) -> Ints:
    """Return the outcome of each job: 0 on time, 1 late, 2 dropped, 3 aborted, 4 unfinished at the end."""
    import numpy as np

    from socsched.trace.columns import ABORTED, DONE, DROPPED

    table = record.columns.jobs
    status, late = table.status[jobs], table.finish_ns[jobs] > table.deadline_ns[jobs]
    found: Ints = np.select([status == DONE, status == DROPPED, status == ABORTED], [late.astype(np.int64), 2, 3], 4)
    return found


def _time(value: Any, start: int) -> int | None:
    return None if value < 0 else int(value) - start


def _named_rows(record: Recorded) -> list[list[Any]]:
    colour, found = colours(record.plan), list[list[Any]]()
    several = {engine for engine, lane in record.rows if lane > 0}
    before = ""
    for engine, lane in record.rows:
        found.append([f"{engine} #{lane}" if engine in several else engine, engine, colour.get(engine, 0), 0])
        found[-1][3] = int(engine != before)
        before = engine
    return found


def _latest(record: Recorded, jobs: Ints, room: int) -> set[int]:
    """Return at most `room` of `jobs`: those that never ended, then those with the largest lateness."""
    import numpy as np

    table = record.columns.jobs
    over = np.where(table.finish_ns[jobs] < 0, 1 << 62, table.finish_ns[jobs] - table.deadline_ns[jobs])
    return set(jobs[np.argsort(-over, kind="stable")[:room]].tolist())


Bar = tuple[int, int, int, int, int]
"""Begin, end (ns), job or -(number of joined jobs), engine, lane code."""


def _thinned(
    begins: Ints,
    ends: Ints,
    engine: Ints,
    lanes: Ints,
    job: Ints,
    keep: Collection[int],
    window: tuple[int, int],
    room: int,
) -> tuple[list[Bar], int]:
    """Return the bars in order, and the length (ns) below which on-time bars may be joined; 0 if none was."""
    rows = list(zip(*(column.tolist() for column in (begins, ends, job, engine, lanes)), strict=True))
    rows.sort(key=lambda bar: bar[:2])
    width, bars = 0, rows
    while len(bars) - len(keep) > room and width < window[1] - window[0]:
        width = max(width * 2, (window[1] - window[0]) // 8192, 1)
        bars = _joined(rows, keep, width)
    return bars, width


def _joined(rows: Iterable[Bar], keep: Collection[int], width: int) -> list[Bar]:
    """Join bars shorter than `width` that begin less than `width` after the end of the previous one on their lanes."""
    bars: list[Bar] = []
    last: dict[tuple[int, int], int] = {}
    for bar in rows:
        begin, end, job, engine, lanes = bar
        place = engine, lanes
        short = end - begin < width and job not in keep
        at = last.get(place) if short else None
        if at is not None and begin - bars[at][1] < width:
            before = bars[at]
            count = (before[2] if before[2] < 0 else -1) - 1
            bars[at] = (before[0], max(end, before[1]), count, engine, lanes)
            continue
        bars.append(bar)
        if short:
            last[place] = len(bars) - 1
        else:
            last.pop(place, None)
    return bars


def _senders(record: Recorded, kept: list[int], numbers: dict[int, int]) -> dict[int, list[int]]:
    """Return for each job in `kept` the indices of the jobs in `kept` whose data it read."""
    import numpy as np

    links = record.arrows
    senders = np.full(int(links.received.sum()) + 1, -1, np.int64)
    owners = np.repeat(np.arange(len(links.job_begins) - 1), np.diff(links.job_begins))
    senders[links.by_job - 1] = owners
    return {
        job: [numbers[s] for s in senders[links.first[job] - 1 :][: links.received[job]].tolist() if s in numbers]
        for job in kept
    }


def _marks(columns: Columns, window: tuple[int, int]) -> list[list[Any]]:
    """Return at most `MOST_MARKS` instants, sampled evenly from each kind if there are more."""
    from socsched.trace.convert import instants_of

    start, end = window
    inside = (columns.instants.time_ns >= start) & (columns.instants.time_ns < end)
    notes = [note for note in instants_of(columns, inside.nonzero()[0]) if note.kind in MARKS]
    step = -(-len(notes) // MOST_MARKS) or 1
    return [
        [note.time_ns - start, note.kind, f"{note.subject} frame {note.frame}: {note.text}"] for note in notes[::step]
    ]


def _inputs(columns: Columns, window: tuple[int, int]) -> list[list[Any]]:
    start, end = window
    inputs = []
    for name, times in columns.releases.items():
        inside = (times[(times >= start) & (times < end)] - start).tolist()
        if name not in columns.tasks and inside:
            inputs.append([name, inside[:MOST_MARKS]])
    return inputs
