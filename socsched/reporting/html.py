"""The report as one self-contained HTML page, computed from plans, traces and results alone."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from socsched.planning.plan import Plan
from socsched.reporting import resources, sections, timeline
from socsched.reporting.background import Background
from socsched.reporting.gantt_data import ROOM
from socsched.reporting.svg import element, table
from socsched.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Part:
    """One simulation or run to show: its plan, trace, result document, and an optional picture (PNG bytes).

    `simulated`: the result of a simulation of the same plan, to compare a run with.
    """

    title: str
    plan: Plan
    trace: Trace
    result: Mapping[str, Any]
    picture: bytes | None = None
    picture_note: str = ""
    notes: tuple[str, ...] = field(default=())
    background: Background = field(default_factory=Background)
    simulated: Mapping[str, Any] | None = None


MOST_BYTES = 1_000_000
"""Target size of a page: timelines are thinned until it is no larger."""


def render(parts: Sequence[Part], title: str, made_by: Mapping[str, str]) -> str:
    """Return the page for `parts`, most important first; `made_by` gives command line and versions.

    Timelines are thinned until the page is no larger than `MOST_BYTES`, if that suffices.
    """
    room = ROOM
    while True:
        page = _page(parts, title, made_by, room)
        if len(page.encode()) <= MOST_BYTES or room < 100:
            return page
        room //= 2


def _page(parts: Sequence[Part], title: str, made_by: Mapping[str, str], room: int) -> str:
    several = len(parts) > 1
    body = element("h1", escape(title))
    if several:
        links = "".join(
            element("li", element("a", escape(part.title), href=f"#part{i}")) for i, part in enumerate(parts)
        )
        body += element("nav", element("ul", links), aria_label="parts")
    body += "".join(_part(part, number, several, room) for number, part in enumerate(parts))
    body += _made_by(parts, made_by)
    return _document(title, body)


def _document(title: str, body: str) -> str:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_asset('report.css')}</style>"
    )
    page = f"<head>{head}</head><body><main>{body}</main><script>{_asset('gantt.js')}</script></body>"
    return f'<!doctype html>\n<html lang="en">{page}</html>\n'


def frame(plan: Plan, trace: Trace | None, result: Mapping[str, Any]) -> str:
    """Return verdict, mapping, chains and, of a recorded trace, the timeline as a frame for a notebook."""
    body = sections.verdict(plan, result) + sections.mapping(plan)
    if trace is not None:
        body += sections.chains(plan, trace, result) + timeline.timeline(plan, trace, "frame", ROOM // 4)
    page = escape(_document(plan.pipeline, body), quote=True)
    return f'<iframe srcdoc="{page}" style="width:100%;height:44em;border:0" title="{escape(plan.pipeline)}"></iframe>'


def _asset(name: str) -> str:
    return (files("socsched.reporting") / "assets" / name).read_text(encoding="utf-8")


def _part(part: Part, number: int, several: bool, room: int) -> str:
    plan, trace, result, name = part.plan, part.trace, part.result, f"part{number}"
    # a run's record consists of lists, which every section would otherwise convert to columns again
    trace = Trace.from_columns(trace.kind, trace.duration_ns, trace.seed, trace.columns, trace.details)
    blocks = [
        sections.violations(plan),
        sections.mapping(plan),
        sections.measured_section(plan, trace, result, part.simulated),
        _picture(part),
        timeline.timeline(plan, trace, name, room),
        sections.chains(plan, trace, result),
        resources.power(plan, trace, result, part.background.supply if part.background else None),
        resources.bandwidth(plan, trace, result) + resources.draw_counters(plan, trace),
        sections.roofline(plan, part.background),
        sections.modes(plan, part.background),
        sections.evidence(plan),
    ]
    links: list[str] = []
    marked: list[str] = []
    for block in filter(None, blocks):
        place = f"{name}-s{len(links)}"
        marked.append(block.replace("<h2>", f'<h2 id="{place}">', 1))
        match = re.search(r"<h2>(.*?)</h2>", block)
        links.append(element("li", element("a", match[1] if match else "", href=f"#{place}")))
    contents = element("nav", element("ul", "".join(links)), aria_label=f"sections of {part.title}")
    heading = element("h2", escape(part.title), class_="part-title", id=name) if several else ""
    head = sections.verdict(plan, result) + _notes(part.notes) + sections.tiles(plan, trace, result)
    return element("section", heading + head + contents + "".join(marked))


def _notes(notes: Sequence[str]) -> str:
    items = "".join(element("li", escape(note)) for note in notes)
    return element("div", element("ul", items), class_="note") if notes else ""


def _picture(part: Part) -> str:
    if part.picture is None:
        return ""
    data = base64.b64encode(part.picture).decode("ascii")
    image = element("img", src=f"data:image/png;base64,{data}", alt="The scan from above with the detected boxes")
    caption = element("figcaption", escape(part.picture_note))
    return element("h2", "Detections") + element("figure", image + caption, class_="scan", style="margin:0")


def _made_by(parts: Sequence[Part], made_by: Mapping[str, str]) -> str:
    """Return exact command lines, versions and the digests of inputs, of this page and of every part."""
    rows = [[escape(key), element("code", escape(value))] for key, value in made_by.items()]
    body = element("h3", "This page") + table(["what", "value"], rows)
    for part in parts:
        rows = [[escape(key), element("code", escape(value))] for key, value in part.background.made.items()]
        rows += [[escape(f"plan: {key}"), element("code", escape(str(value)))] for key, value in part.plan.tool.items()]
        rows += [[escape(f"sha256 of {key}"), element("code", escape(str(v)))] for key, v in part.plan.inputs.items()]
        rows.append(["seed", element("code", escape(str(part.trace.seed)))])
        body += element("h3", escape(part.title)) + table(["what", "value"], rows)
    return element("h2", "How this was made", id="made") + body
