"""The timeline section: a hyperperiod, and the worst frames of chains with their paths."""

from __future__ import annotations

from html import escape

from socsched.planning.plan import Plan
from socsched.reporting import gantt
from socsched.reporting.gantt_data import Recorded
from socsched.reporting.svg import element, table
from socsched.reporting.worst import Worst, worst_frames
from socsched.trace.trace import Trace
from socsched.units import format_duration

HOW_TO_READ = (
    "A bar is a job on a lane, with its stage and frame; colours are engines, as in the diagram above. Odd frames are "
    "paler. ⇄ (hatched): a format conversion; ✗ with a dashed edge: ended after its local deadline; crossed out: never "
    "ended. Triangles are frames of sensors."
)
MOST_WORST = 4
"""Maximum number of chains whose worst frame is drawn."""


def timeline(plan: Plan, trace: Trace, name: str, room: int) -> str:
    """Return the timelines of a hyperperiod and around the worst frames of chains; `name` is unique on the page."""
    record = Recorded.of(plan, trace)
    steady = gantt.steady_window(plan, trace)
    window = gantt.shown_window(record, trace, steady)
    head = gantt.title(plan, steady, window)
    parts = [
        element("h2", "Timeline"),
        element("p", HOW_TO_READ, class_="dim"),
        element("h3", escape(head)),
        gantt.gantt(record, window, f"{name}-steady", head, gantt.first_view(plan, steady), room),
    ]
    for number, worst in enumerate(worst_frames(plan, trace)[:MOST_WORST]):
        title = _worst_title(worst)
        last = (worst.hops[-1].task, worst.hops[-1].frame) if worst.hops else None
        label = title.removeprefix("✗ ").removeprefix("✓ ")
        due = worst.release_ns + worst.chain.deadline_ns, f"deadline of {worst.chain.name}"
        key = f"{name}-worst{number}"
        chart = gantt.gantt(record, worst.window, key, label, room=room, chosen=last, limit=due) + _hops(worst)
        if number == 0:
            parts.append(element("h3", escape(title), class_="worst") + chart)
        else:
            parts.append(element("details", element("summary", escape(title)) + chart))
    return "".join(parts)


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


def _hops(worst: Worst) -> str:
    """Return the path of the worst frame job by job: the timeline in words."""
    rows = []
    for hop in worst.hops:
        rows.append(
            [
                escape(hop.task),
                escape(hop.engine),
                str(hop.frame),
                format_duration(hop.ready_ns - worst.release_ns),
                format_duration(max(hop.start_ns - hop.ready_ns, 0)),
                format_duration(hop.runs_ns),
                format_duration(max(hop.end_ns - hop.start_ns - hop.runs_ns, 0)),
                format_duration(hop.end_ns - worst.release_ns),
            ]
        )
    header = ["job", "engine", "frame", "ready at", "waited", "ran", "preempted", "ended at"]
    return table(header, rows, range(2, 8)) if rows else ""
