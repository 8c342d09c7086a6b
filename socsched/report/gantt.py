"""Who occupied which engine when: one window of a trace as the data that `assets/gantt.js` draws and moves in.

A job's stay on lanes is one bar, its segments joined.  Where a window holds more than the page has room for, short
stays that follow one another on a lane become one bar that says how many they are; what was late never does, nor does
what is shown first as long as that is no more than half of the room.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from socsched.plan.plan import Plan
from socsched.report.svg import element
from socsched.trace.trace import Trace
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Ints
    from socsched.trace.stays import Arrows, Stays

ROOM = 4000
"""Bars that a timeline of the page holds at most, late ones aside."""
SHORT = 1000
"""Bars up to which a trace is shown as a whole."""
MARKS = {
    "miss": "missed",
    "drop": "dropped",
    "abort": "aborted",
    "input": "bad input",
    "fault": "fault",
    "throttle": "throttled",
}
MOST_MARKS = 400
MOST_TOLD = 40
_KEYS = (
    "← → move, + − (or ↑ ↓) zoom, 0 first view, End whole window, n and p next and previous job, Esc nothing selected. "
    "Wheel zooms once the timeline has the focus, Shift+wheel moves; drag moves, two fingers zoom."
)
_HINT = "Select a job (press it, or n) to see its figures, its deadline, where its data came from and where it went."


def hyperperiod_ns(plan: Plan) -> int:
    """Return the least common multiple of all sensor and timer periods; 0 when there are none."""
    periods = _periods(plan)
    return math.lcm(*periods) if periods else 0


def steady_window(plan: Plan, trace: Trace) -> tuple[int, int]:
    """Return a hyperperiod in steady state, or as much of one as the trace holds.

    It starts after the first one (which starts from idle) where the trace is long enough.
    """
    length = hyperperiod_ns(plan) or trace.duration_ns
    start = length if trace.duration_ns >= 2 * length else 0
    if trace.duration_ns < length and _periods(plan):
        start = min(max(_periods(plan)), trace.duration_ns // 2)
    return start, min(start + length, max(trace.duration_ns, 1))


def first_view(plan: Plan, window: tuple[int, int]) -> tuple[int, int]:
    """Return the part of `window` to show first: three of the longest period, in which bars are still readable."""
    start, end = window
    return start, min(end, start + 3 * max(_periods(plan), default=end - start))


def shown_window(record: Recorded, trace: Trace, steady: tuple[int, int]) -> tuple[int, int]:
    """Return what the first timeline holds: the whole trace where that is short, else its steady window."""
    whole = 0, max(trace.duration_ns, steady[1])
    return whole if len(record.stays.first) <= SHORT else steady


def _periods(plan: Plan) -> list[int]:
    return [s.period_ns for s in plan.sensors] + [t.period_ns for t in plan.tasks if t.timer]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A trace with what its timelines share: lanes in use, stays, and who took data from whom."""

    plan: Plan
    columns: Columns
    stays: Stays
    arrows: Arrows
    rows: dict[tuple[str, int], int]

    @classmethod
    def of(cls, plan: Plan, trace: Trace) -> Recorded:
        """Return the record of `trace`."""
        # here, for arrays are loaded only when there is something to draw
        from socsched.trace.stays import arrows, stays

        columns = trace.columns
        return cls(plan, columns, stays(columns), arrows(columns, plan), _rows(plan, columns))


def _rows(plan: Plan, columns: Columns) -> dict[tuple[str, int], int]:
    from socsched.trace.stays import used_lanes

    used = {(engine, lane) for engine, lanes in used_lanes(columns) for lane in lanes}
    order = {engine.id: i for i, engine in enumerate(plan.engines)}
    return {key: row for row, key in enumerate(sorted(used, key=lambda k: (order.get(k[0], 99), k)))}


def colours(plan: Plan) -> dict[str, int]:
    """Return the number of the colour of every engine that has a task, the same in every picture (1 to 7)."""
    used = {task.engine for task in plan.tasks}
    return {engine: i % 7 + 1 for i, engine in enumerate(e.id for e in plan.engines if e.id in used)}


def gantt(
    record: Recorded,
    window: tuple[int, int],
    name: str,
    label: str,
    view: tuple[int, int] | None = None,
    room: int = ROOM,
    chosen: tuple[str, int] | None = None,
) -> str:
    """Return the timeline of `window` (ns) as a figure with its data; `name` identifies it on the page.

    `view`: the part shown first, the whole window if None.  `room`: bars to draw at most, see `ROOM`.  `chosen`: task
    and frame of the job that is selected at first.
    """
    data = document(record, window, view or window, room)
    wanted = [i for i, job in enumerate(data["jobs"]) if (data["tasks"][job[0]][0], job[1]) == chosen]
    data["chosen"] = wanted[0] if wanted else -1
    buttons = "".join(
        element("button", sign, type="button", data_act=act, aria_label=told, title=told)
        for act, sign, told in (
            ("in", "+", "zoom in"),
            ("out", "−", "zoom out"),
            ("left", "◀", "move left"),
            ("right", "▶", "move right"),
            ("reset", "first view", "back to the first view"),
            ("all", "whole", "show the whole window"),
            ("previous", "‹ job", "select the previous job"),
            ("next", "job ›", "select the next job"),
        )
    )
    written = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    body = (
        element("script", written, type="application/json")
        + element("div", buttons + element("output", class_="readout"), class_="controls")
        + element("div", class_="strip", aria_hidden="true")
        + element(
            "div",
            class_="stage",
            tabindex=0,
            role="group",
            aria_label=label,
            aria_describedby=f"{name}-d {name}-k",
        )
        + element("p", escape(_HINT), class_="detail", id=f"{name}-d", aria_live="polite", data_hint=_HINT)
        + element("noscript", "<p>The timeline is drawn by the page's script, which is switched off.</p>")
    )
    keys = element("summary", "Keys and gestures") + element("p", escape(_KEYS), id=f"{name}-k")
    joined = ""
    if data["resolution"]:
        text = (
            f"Outside the first view, jobs on time that take less than {format_duration(data['resolution'])} and follow "
            "one another are one bar. The Perfetto trace has every one."
        )
        joined = element("p", text, class_="dim keys")
    tail = joined + _told(data["marks"], start=window[0]) + element("details", keys, class_="keys")
    return element("div", body + tail, class_="gantt", id=name)


def _told(marks: list[list[Any]], start: int) -> str:
    """Return the marks of a window in words, at most `MOST_TOLD` of them; nothing where there is none."""
    if not marks:
        return ""
    items = "".join(
        element("li", escape(f"{(at + start) / 1e6:.3f} ms, {MARKS[kind]}: {said}"))
        for at, kind, said in marks[:MOST_TOLD]
    )
    more = f" (the first {MOST_TOLD})" if len(marks) > MOST_TOLD else ""
    head = element("summary", f"{len(marks)} marks in this window, in words{more}")
    return element("details", head + element("ul", items), class_="keys")


def document(record: Recorded, window: tuple[int, int], view: tuple[int, int], room: int = ROOM) -> dict[str, Any]:
    """Return what `assets/gantt.js` draws, times in ns from the window's start."""
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
    """Return what became of jobs: 0 on time, 1 late, 2 dropped, 3 aborted, 4 unfinished at the end."""
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
    """Return at most `room` of `jobs`: those that never ended, then those that ended latest after their deadline."""
    import numpy as np

    table = record.columns.jobs
    over = np.where(table.finish_ns[jobs] < 0, 1 << 62, table.finish_ns[jobs] - table.deadline_ns[jobs])
    return set(jobs[np.argsort(-over, kind="stable")[:room]].tolist())


Bar = tuple[int, int, int, int, int]
"""Begin, end (ns), job or -(jobs in one), engine, lane code."""


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
    """Return the bars in order, and below which length (ns) those on time may have been joined; 0 if none was."""
    rows = list(zip(*(column.tolist() for column in (begins, ends, job, engine, lanes)), strict=True))
    rows.sort(key=lambda bar: bar[:2])
    width, bars = 0, rows
    while len(bars) - len(keep) > room and width < window[1] - window[0]:
        width = max(width * 2, (window[1] - window[0]) // 8192, 1)
        bars = _joined(rows, keep, width)
    return bars, width


def _joined(rows: Iterable[Bar], keep: Collection[int], width: int) -> list[Bar]:
    """Join bars shorter than `width` that begin less than `width` after the last one on their lanes ended."""
    found: list[Bar] = []
    last: dict[tuple[int, int], int] = {}
    for bar in rows:
        begin, end, job, engine, lanes = bar
        place = engine, lanes
        short = end - begin < width and job not in keep
        at = last.get(place) if short else None
        if at is not None and begin - found[at][1] < width:
            before = found[at]
            count = (before[2] if before[2] < 0 else -1) - 1
            found[at] = (before[0], max(end, before[1]), count, engine, lanes)
            continue
        found.append(bar)
        if short:
            last[place] = len(found) - 1
        else:
            last.pop(place, None)
    return found


def _senders(record: Recorded, kept: list[int], numbers: dict[int, int]) -> dict[int, list[int]]:
    """Return for each job in `kept` the places of those in `kept` whose data it took."""
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
    """Return at most `MOST_MARKS` instants, evenly taken of each kind where there are more."""
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
    found = []
    for name, times in columns.releases.items():
        inside = (times[(times >= start) & (times < end)] - start).tolist()
        if name not in columns.tasks and inside:
            found.append([name, inside[:MOST_MARKS]])
    return found


def title(plan: Plan, steady: tuple[int, int], window: tuple[int, int]) -> str:
    """Return what the first timeline shows."""
    length, hyper = steady[1] - steady[0], hyperperiod_ns(plan)
    name = f"One hyperperiod ({format_duration(length)})"
    if length != hyper:
        name = f"{format_duration(length)} of steady state (the hyperperiod is {format_duration(hyper)})"
    return name if window == steady else f"{name}; “whole” shows all {format_duration(window[1] - window[0])}"
