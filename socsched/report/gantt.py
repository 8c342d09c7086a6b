"""Who occupied which engine when, for one window of a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from socsched.plan.plan import Plan
from socsched.report.svg import element, fit, picture, text, ticks
from socsched.trace.columns import Columns
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.units import format_duration

WIDTH, LEFT, RIGHT, ROW, TOP = 1018, 112, 20, 26, 22
MAX_SLICES = 1500
MARKS = {
    "miss": "missed",
    "drop": "dropped",
    "abort": "aborted",
    "input": "bad input",
    "fault": "fault",
    "throttle": "throttled",
}


def hyperperiod_ns(plan: Plan) -> int:
    """Return the least common multiple of all sensor and timer periods; 0 when there are none."""
    periods = _periods(plan)
    return math.lcm(*periods) if periods else 0


def steady_window(plan: Plan, trace: Trace) -> tuple[int, int]:
    """Return a window of steady state: one hyperperiod, or three of the longest period where that is shorter.

    It starts after the first such stretch (which starts from idle) where the trace is long enough.
    """
    periods = _periods(plan)
    length = min(math.lcm(*periods), 3 * max(periods)) if periods else trace.duration_ns
    start = length if trace.duration_ns >= 2 * length else 0
    return start, min(start + length, max(trace.duration_ns, 1))


def _periods(plan: Plan) -> list[int]:
    return [s.period_ns for s in plan.sensors] + [t.period_ns for t in plan.tasks if t.timer]


def gantt(plan: Plan, trace: Trace, window: tuple[int, int], title: str) -> str:
    """Return the Gantt chart of `window` (ns) as SVG; rows are engine lanes, at most `MAX_SLICES` slices are drawn."""
    # records are made of what the window shows only: a trace may hold millions of slices
    from socsched.trace.convert import jobs_of, slices_of

    start, end = window
    columns = trace.columns
    rows = _rows(plan, columns)
    shown = (columns.slices.end_ns > start) & (columns.slices.start_ns < end)
    inside = joined(slices_of(columns, shown.nonzero()[0]))
    numbers = list(dict.fromkeys(piece.job for piece in inside[:MAX_SLICES]))
    jobs = dict(zip(numbers, jobs_of(columns, numbers), strict=True))
    note = "" if len(inside) <= MAX_SLICES else f" (first {MAX_SLICES} of {len(inside)} slices)"
    scale = (WIDTH - LEFT - RIGHT) / max(end - start, 1)
    height = TOP + ROW * len(rows) + 34
    body = [_grid(start, end, scale, height), _lanes(rows)]
    colours = {engine: i + 1 for i, engine in enumerate(dict.fromkeys(engine for engine, _ in rows))}
    for piece in inside[:MAX_SLICES]:
        body.extend(_piece(piece, jobs[piece.job], window, scale, rows, colours[piece.engine]))
    body.extend(_marks(columns, window, scale, height))
    label = f"{title}: {format_duration(start)} to {format_duration(end)}{note}"
    return picture("".join(body), WIDTH, height, label, "gantt")


def joined(slices: Sequence[Slice]) -> list[Slice]:
    """Return slices with those that continue one another (segments of a job, kernel after kernel) made one."""
    found: list[Slice] = []
    last: dict[int, Slice] = {}
    for piece in sorted(slices, key=lambda piece: piece.start_ns):
        before = last.get(piece.job)
        place = (before.engine, before.lanes, before.end_ns) if before is not None else None
        if before is not None and place == (piece.engine, piece.lanes, piece.start_ns):
            before.end_ns = piece.end_ns
        else:
            last[piece.job] = Slice(piece.engine, piece.lanes, piece.job, piece.name, piece.start_ns, piece.end_ns)
            found.append(last[piece.job])
    return found


def _rows(plan: Plan, columns: Columns) -> dict[tuple[str, int], int]:
    from socsched.trace.stays import used_lanes

    used = {(engine, lane) for engine, lanes in used_lanes(columns) for lane in lanes}
    used |= {(task.engine, lane) for task in plan.tasks for lane in task.lanes}
    order = {engine.id: i for i, engine in enumerate(plan.engines)}
    return {key: row for row, key in enumerate(sorted(used, key=lambda k: (order.get(k[0], 99), k)))}


def _grid(start: int, end: int, scale: float, height: float) -> str:
    unit, name = (1e6, "ms") if end - start < 2e9 else (1e9, "s")
    lines = []
    for tick in ticks(start / unit, end / unit, 10):
        x = LEFT + (tick * unit - start) * scale
        lines.append(element("line", x1=x, x2=x, y1=TOP - 4, y2=height - 32, class_="grid"))
        lines.append(text(f"{tick:g}", x, height - 18, class_="axis mid"))
    return "".join(lines) + text(f"time [{name}]", WIDTH - 8, height - 4, class_="axis end")


def _lanes(rows: dict[tuple[str, int], int]) -> str:
    parts, last = [], ""
    many = {engine for engine, lane in rows if lane > 0}
    for (engine, lane), row in rows.items():
        y = TOP + row * ROW
        name = f"{engine} #{lane}" if engine in many else engine
        parts.append(text(fit(name, LEFT - 12), 8, y + 17, class_="lane" if engine != last else "axis"))
        parts.append(element("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="rule" if engine != last else "rule light"))
        last = engine
    return "".join(parts)


def _piece(
    piece: Slice, job: Job, window: tuple[int, int], scale: float, rows: dict[tuple[str, int], int], colour: int
) -> list[str]:
    start, end = window
    x = LEFT + (max(piece.start_ns, start) - start) * scale
    width = max((min(piece.end_ns, end) - max(piece.start_ns, start)) * scale, 0.8)
    late = job.status == "done" and job.finish_ns > job.deadline_ns
    hover = (
        f"{job.task} frame {job.frame}{' LATE' if late else ''} on {piece.engine}: "
        f"{format_duration(piece.start_ns)} to {format_duration(piece.end_ns)}, "
        f"runs {format_duration(job.exec_ns)}, waits {format_duration(max(job.start_ns - job.activation_ns, 0))}, "
        f"preempted {job.preemptions}x"
    )
    style = f"slice c{colour % 8} {'odd' if job.frame % 2 else ''} {'late' if late else ''}".strip()
    drawn = []
    for lane in piece.lanes:
        y = TOP + rows[piece.engine, lane] * ROW
        name = fit(("✗ " if late else "") + job.task, width - 5, 10.5)
        drawn.append(
            element(
                "g",
                element("title", escape(hover))
                + element("rect", x=x, y=y + 3, width=width, height=ROW - 6, rx=2)
                + (text(name, x + 4, y + 17, class_="in") if name else ""),
                class_=style,
                data_f=job.frame,
            )
        )
    return drawn


def _marks(columns: Columns, window: tuple[int, int], scale: float, height: float) -> list[str]:
    from socsched.trace.convert import instants_of

    start, end = window
    shown = (columns.instants.time_ns >= start) & (columns.instants.time_ns < end)
    inside = [i for i in instants_of(columns, shown.nonzero()[0]) if i.kind in MARKS][:200]
    return [_mark(instant, LEFT + (instant.time_ns - start) * scale, height) for instant in inside]


def _mark(instant: Instant, x: float, height: float) -> str:
    hover = f"{MARKS[instant.kind]}: {instant.subject} frame {instant.frame}: {instant.text}"
    return element(
        "g",
        element("title", escape(hover))
        + element("line", x1=x, x2=x, y1=TOP - 2, y2=height - 32, class_="mark")
        + text("✗" if instant.kind == "miss" else "!", x, TOP - 6, class_="mark mid"),
    )
