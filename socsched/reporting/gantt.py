"""Timelines of the page: figures with a window of a trace (`gantt_data`), drawn and panned by `assets/gantt.js`."""

from __future__ import annotations

import json
import math
from html import escape
from typing import TYPE_CHECKING, Any

from socsched.planning.plan import Plan
from socsched.reporting.gantt_data import MARKS, ROOM, Recorded, document
from socsched.reporting.svg import element
from socsched.trace.trace import Trace
from socsched.units import format_duration

if TYPE_CHECKING:
    pass

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
    whole = 0, max(trace.duration_ns, steady[1])
    return whole if len(record.stays.first) <= SHORT else steady


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
) -> str:
    """Return the timeline of `window` (ns) as a figure with its data; `name` identifies it on the page.

    `view`: the part shown first, the whole window if None.  `room`: maximum number of bars, see `ROOM`.  `chosen`:
    task and frame of the job selected initially.  `limit`: deadline (ns) of the frame shown, and its label.
    """
    data = document(record, window, view or window, room)
    wanted = [i for i, job in enumerate(data["jobs"]) if (data["tasks"][job[0]][0], job[1]) == chosen]
    data["chosen"] = wanted[0] if wanted else -1
    data["limit"] = [limit[0] - window[0], limit[1]] if limit else None
    buttons = "".join(
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
        + element("noscript", "<p>The timeline is drawn by a script of this page; scripts are disabled.</p>")
    )
    keys = element("summary", "Keys and gestures") + element("p", escape(_KEYS), id=f"{name}-k")
    joined = ""
    if data["resolution"]:
        least = format_duration(data["resolution"])
        text = (
            f"Outside the first view, jobs on time that take less than {least} and follow one another are one bar. The "
            "Perfetto trace has every one."
        )
        joined = element("p", text, class_="dim keys")
    tail = joined + _told(data["marks"], start=window[0]) + element("details", keys, class_="keys")
    return element("div", body + tail, class_="gantt", id=name)


def _told(marks: list[list[Any]], start: int) -> str:
    """Return the marks of a window in words, at most `MOST_TOLD` of them; empty if there are none."""
    if not marks:
        return ""
    items = "".join(
        element("li", escape(f"{(at + start) / 1e6:.3f} ms, {MARKS[kind]}: {said}"))
        for at, kind, said in marks[:MOST_TOLD]
    )
    more = f" (the first {MOST_TOLD})" if len(marks) > MOST_TOLD else ""
    head = element("summary", f"{len(marks)} events in this window, as text{more}")
    return element("details", head + element("ul", items), class_="keys")


def title(plan: Plan, steady: tuple[int, int], window: tuple[int, int]) -> str:
    """Return the title of the first timeline."""
    length, hyper = steady[1] - steady[0], hyperperiod_ns(plan)
    name = f"One hyperperiod ({format_duration(length)})"
    if length != hyper:
        name = f"{format_duration(length)} of steady state (the hyperperiod is {format_duration(hyper)})"
    return name if window == steady else f"{name}; “whole” shows all {format_duration(window[1] - window[0])}"
