"""Timelines of the page: windows of a trace, drawn by `assets/gantt.js`, and the worst frames of chains.

A timeline is a window of the trace as data, drawn by a small script: a picture of 3.3 s can be neither read nor zoomed,
static SVG takes 350 bytes for the tooltip of each slice, a canvas has no structure for tests and printing, and a whole
trace is too large to embed.  The wheel zooms only when asked to: otherwise it would keep the page from scrolling.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from socsched.planning.plan import ChainResult, Plan
from socsched.reporting.markup import Markup, element, listed, markup, table
from socsched.trace.metrics import record_of
from socsched.trace.trace import Trace
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.trace.chains import Record
    from socsched.trace.columns import Columns, Ints


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
    """A trace with the data shared by its timelines: the lanes in use."""

    plan: Plan
    columns: Columns
    rows: dict[tuple[str, int], int]

    @classmethod
    def of(cls, plan: Plan, trace: Trace) -> Recorded:
        """Return the record of `trace`."""
        columns = trace.columns
        return cls(plan, columns, _rows(plan, columns))


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
    # imported here, so that NumPy is loaded only if there is something to draw
    import numpy as np

    from socsched.trace.execution_intervals import stays_between

    columns, jobs = record.columns, record.columns.jobs
    start, end = window
    held = stays_between(columns, start, end)
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
    rows = np.array(kept, np.int64)
    fields = ["task", "frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns"]
    fields += ["exec_ns", "blocking_ns", "preemptions"]
    listed = list(zip(*(getattr(jobs, name)[rows].tolist() for name in fields), strict=True))
    names = {columns.tasks[task]: None for task, *_ in listed}
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
                tasks[columns.tasks[task]],
                frame,
                activation - start,
                deadline - start,
                _time(begun, start),
                _time(finish, start),
                *spent,
                codes[job],
                senders[job],
            ]
            for job, (task, frame, activation, deadline, begun, finish, *spent) in zip(kept, listed, strict=True)
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
    outcomes: Ints = np.select([status == DONE, status == DROPPED, status == ABORTED], [late.astype(np.int64), 2, 3], 4)
    return outcomes


def _time(value: Any, start: int) -> int | None:
    return None if value < 0 else int(value) - start


def _named_rows(record: Recorded) -> list[list[Any]]:
    colour, rows = colours(record.plan), list[list[Any]]()
    several = {engine for engine, lane in record.rows if lane > 0}
    before = ""
    for engine, lane in record.rows:
        rows.append([f"{engine} #{lane}" if engine in several else engine, engine, colour.get(engine, 0), 0])
        rows[-1][3] = int(engine != before)
        before = engine
    return rows


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

    columns, jobs = record.columns, record.columns.jobs
    rows = np.array(sorted(kept), np.int64)
    names = [columns.tasks[task] for task in jobs.task[rows].tolist()]
    frames = jobs.frame[rows].tolist()
    # of several jobs for a frame the last one counts
    latest = dict(zip(zip(names, frames, strict=True), rows.tolist(), strict=True))
    after = {task.name: task.after for task in record.plan.tasks}
    senders = {}
    begun, sampled = jobs.start_ns[rows].tolist(), jobs.sampled[rows].tolist()
    for job, name, frame, start, at in zip(rows.tolist(), names, frames, begun, sampled, strict=True):
        inputs = [(producer, frame) for producer in after.get(name, ())]
        reads = columns.reads[columns.tasks.index(name)] if at >= 0 and name in after else ()
        inputs += zip(reads, jobs.frames[at : at + len(reads)].tolist(), strict=True) if reads else ()
        known = [latest[pair] for pair in inputs if pair[1] >= 0 and pair in latest]
        senders[job] = [numbers[sender] for sender in known] if start >= 0 and name in after else []
    return senders


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
    columns = trace.columns
    if columns.known.get("worst frames", (None, []))[0] is not plan:
        record, worst_of_chains = record_of(trace, plan), list[Worst]()
        for chain in plan.chains:
            worst_of_chains += _worst(record, plan, chain)
            record.forget()
        columns.known["worst frames"] = plan, sorted(worst_of_chains, key=lambda worst: -worst.pressure)
    worst_known: list[Worst] = columns.known["worst frames"][1]
    return worst_known


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
        yield Worst(chain, frame, release, response, window, tuple(_path(record, plan, chain, finish)), len(lost))
        return
    if len(lost):
        frame = int(lost[0])
        release = int(fates.release_ns[frame])
        window = max(release - chain.deadline_ns // 4, 0), release + chain.deadline_ns * 5 // 4
        yield Worst(chain, frame, release, None, window, (), len(lost))


def _path(record: Record, plan: Plan, chain: ChainResult, finish_ns: int) -> list[Hop]:
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
    frame, hops = int(jobs.frame[rows[0]]), [hop(chain.path[-1], int(rows[0]))]
    for task, producer in pairwise(chain.path[::-1]):
        frame_read = int(record.taken(producer, task, np.array([frame]))[0])
        conversion = conversions.get((producer, task))
        # a conversion has the number of the frame it converts
        for name in (conversion, producer):
            if name in engines:
                own = record.rows(name)
                own = own[jobs.frame[own] == frame_read]
                if len(own):
                    hops.append(hop(name, int(own[-1])))
        frame = frame_read
    return hops[::-1]


SHORT = 1000
"""Largest number of bars of a trace that is shown as a whole."""
MOST_TOLD = 40
_KEYS = (
    "← → move, + − (or ↑ ↓) zoom, 0 first view, End whole window, n and p next and previous job, Esc nothing selected. "
    "Wheel zooms once the timeline has the focus, Shift+wheel moves; drag moves, two fingers zoom."
)
_HINT = (
    "Select a job (click it, or press n) to see its figures, its local deadline (by which it is scheduled), and the "
    "jobs that it takes data from and passes data to."
)


def hyperperiod_ns(plan: Plan) -> int:
    """Return the least common multiple of all sensor and timer periods; 0 if there are none."""
    periods = _periods(plan)
    return math.lcm(*periods) if periods else 0


def steady_window(plan: Plan, trace: Trace) -> tuple[int, int]:
    """Return a hyperperiod in steady state, or as much of it as the trace contains.

    If the trace is long enough, the window starts after the first hyperperiod, which starts from idle.
    """
    length = hyperperiod_ns(plan) or trace.duration_ns
    start = length if trace.duration_ns >= 2 * length else 0
    if trace.duration_ns < length and _periods(plan):
        start = min(max(_periods(plan)), trace.duration_ns // 2)
    return start, min(start + length, max(trace.duration_ns, 1))


def first_view(plan: Plan, window: tuple[int, int]) -> tuple[int, int]:
    """Return the part of `window` to show first: three of the longest periods, so that bars are readable."""
    start, end = window
    return start, min(end, start + 3 * max(_periods(plan), default=end - start))


def shown_window(record: Recorded, trace: Trace, steady: tuple[int, int]) -> tuple[int, int]:
    """Return the window of the first timeline: the whole trace if short, else its steady window."""
    from socsched.trace.execution_intervals import stays

    # a bar is seldom more than a few slices
    short = len(record.columns.slices) <= 64 * SHORT and len(stays(record.columns).first) <= SHORT
    return (0, max(trace.duration_ns, steady[1])) if short else steady


def _periods(plan: Plan) -> list[int]:
    return [s.period_ns for s in plan.sensors] + [t.period_ns for t in plan.tasks if t.timer]


def gantt(
    record: Recorded,
    window: tuple[int, int],
    name: str,
    label: str,
    view: tuple[int, int] | None = None,
    room: int = ROOM,
    chosen: tuple[str, int] | None = None,
    limit: tuple[int, str] | None = None,
) -> Markup:
    """Return the timeline of `window` (ns) as a figure with its data; `name` identifies it on the page.

    `view`: the part shown first, the whole window if None.  `room`: maximum number of bars, see `ROOM`.  `chosen`:
    task and frame of the job selected initially.  `limit`: deadline (ns) of the frame shown, and its label.
    """
    data = document(record, window, view or window, room)
    numbers = [i for i, job in enumerate(data["jobs"]) if (data["tasks"][job[0]][0], job[1]) == chosen]
    data["chosen"] = numbers[0] if numbers else -1
    data["limit"] = [limit[0] - window[0], limit[1]] if limit else None
    buttons = markup(
        element("button", sign, type="button", data_act=act, aria_label=label_text, title=label_text)
        for act, sign, label_text in (
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
        element("script", Markup(written), type="application/json")
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
        + element("p", _HINT, class_="detail", id=f"{name}-d", aria_live="polite", data_hint=_HINT)
        + element("noscript", element("p", "The timeline is drawn by a script of this page; scripts are disabled."))
    )
    keys = element("summary", "Keys and gestures") + element("p", _KEYS, id=f"{name}-k")
    joined = Markup()
    if data["resolution"]:
        least = format_duration(data["resolution"])
        text = (
            f"Outside the first view, jobs on time that take less than {least} and follow one another are one bar. The "
            "Perfetto trace has every one."
        )
        joined = element("p", text, class_="dim keys")
    tail = joined + _told(data["marks"], start=window[0]) + element("details", keys, class_="keys")
    return element("div", body + tail, class_="gantt", id=name)


def _told(marks: list[list[Any]], start: int) -> Markup:
    """Return the marks of a window in words, at most `MOST_TOLD` of them; empty if there are none."""
    if not marks:
        return Markup()
    items = listed(f"{(at + start) / 1e6:.3f} ms, {MARKS[kind]}: {said}" for at, kind, said in marks[:MOST_TOLD])
    more = f" (the first {MOST_TOLD})" if len(marks) > MOST_TOLD else ""
    head = element("summary", f"{len(marks)} events in this window, as text{more}")
    return element("details", head, items, class_="keys")


def first_title(plan: Plan, steady: tuple[int, int], window: tuple[int, int]) -> str:
    """Return the title of the first timeline."""
    length, hyper = steady[1] - steady[0], hyperperiod_ns(plan)
    name = f"One hyperperiod ({format_duration(length)})"
    if length != hyper:
        name = f"{format_duration(length)} of steady state (the hyperperiod is {format_duration(hyper)})"
    return name if window == steady else f"{name}; “whole” shows all {format_duration(window[1] - window[0])}"


HOW_TO_READ = (
    "A bar is a job on a lane, with its stage and frame; colours are engines, as in the diagram above. Odd frames are "
    "paler. ⇄ (hatched): a format conversion; ✗ with a dashed edge: ended after its local deadline; crossed out: never "
    "ended. Triangles are frames of sensors."
)
MOST_WORST = 4
"""Maximum number of chains whose worst frame is drawn."""


def timeline(plan: Plan, trace: Trace, name: str, room: int) -> Markup:
    """Return the timelines of a hyperperiod and around the worst frames of chains; `name` is unique on the page."""
    record = Recorded.of(plan, trace)
    steady = steady_window(plan, trace)
    window = shown_window(record, trace, steady)
    head = first_title(plan, steady, window)
    parts = [
        element("p", HOW_TO_READ, class_="dim"),
        element("h3", head),
        gantt(record, window, f"{name}-steady", head, first_view(plan, steady), room),
    ]
    for number, worst in enumerate(worst_frames(plan, trace)[:MOST_WORST]):
        title = _worst_title(worst)
        last = (worst.hops[-1].task, worst.hops[-1].frame) if worst.hops else None
        label = title.removeprefix("✗ ").removeprefix("✓ ")
        due = worst.release_ns + worst.chain.deadline_ns, f"deadline of {worst.chain.name}"
        key = f"{name}-worst{number}"
        chart = gantt(record, worst.window, key, label, room=room, chosen=last, limit=due) + _path_table(worst)
        if number == 0:
            parts.append(element("h3", title, class_="worst") + chart)
        else:
            parts.append(element("details", element("summary", title) + chart))
    return markup(parts)


def _worst_title(worst: Worst) -> str:
    name, limit = worst.chain.name, format_duration(worst.chain.deadline_ns)
    if worst.response_ns is None:
        return f"✗ No frame of {name} completed; first lost: frame {worst.frame}, deadline {limit}"
    late = worst.response_ns - worst.chain.deadline_ns
    end = f"{format_duration(late)} late" if late > 0 else f"{format_duration(-late)} slack"
    sign = "✗" if late > 0 or worst.lost else "✓"
    kind = "Worst miss" if late > 0 else "Tightest slack of completed frames" if worst.lost else "Tightest slack"
    title = f"{sign} {kind} of {name}: frame {worst.frame}, {format_duration(worst.response_ns)} of {limit}, {end}"
    return f"{title}; {worst.lost} without a response" if worst.lost else title


def _path_table(worst: Worst) -> Markup:
    """Return the path of the worst frame job by job: the timeline in words."""
    rows = []
    for hop in worst.hops:
        rows.append(
            [
                hop.task,
                hop.engine,
                str(hop.frame),
                format_duration(hop.ready_ns - worst.release_ns),
                format_duration(max(hop.start_ns - hop.ready_ns, 0)),
                format_duration(hop.runs_ns),
                format_duration(max(hop.end_ns - hop.start_ns - hop.runs_ns, 0)),
                format_duration(hop.end_ns - worst.release_ns),
            ]
        )
    header = ["job", "engine", "frame", "ready at", "waited", "ran", "preempted", "ended at"]
    return table(header, rows, range(2, 8)) if rows else Markup()
