"""The report as one self-contained HTML page, computed from plans, traces and results and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from socsched.plan.plan import Plan
from socsched.report import sections
from socsched.report.svg import element, table
from socsched.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Part:
    """One simulation or run to be shown: its plan, trace, result document, and an optional picture (PNG bytes)."""

    title: str
    plan: Plan
    trace: Trace
    result: Mapping[str, Any]
    picture: bytes | None = None
    picture_note: str = ""
    notes: tuple[str, ...] = field(default=())


def render(parts: Sequence[Part], title: str, made_by: Mapping[str, str]) -> str:
    """Return the page for `parts`, most important first; `made_by` names command line and versions."""
    style = _asset("report.css")
    script = _asset("report.js")
    several = len(parts) > 1
    body = element("h1", escape(title))
    if several:
        links = "".join(
            element("li", element("a", escape(part.title), href=f"#part{i}")) for i, part in enumerate(parts)
        )
        body += element("nav", element("ul", links), aria_label="parts")
    body += "".join(_part(part, number, several) for number, part in enumerate(parts))
    body += _made_by(parts, made_by)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    page = f"<head>{head}</head><body><main>{body}</main><script>{script}</script></body>"
    return f'<!doctype html>\n<html lang="en">{page}</html>\n'


def _asset(name: str) -> str:
    return (files("socsched.report") / "assets" / name).read_text(encoding="utf-8")


def _part(part: Part, number: int, several: bool) -> str:
    plan, trace, result = part.plan, part.trace, part.result
    heading = element("h2", escape(part.title), class_="part-title", id=f"part{number}") if several else ""
    blocks = [
        heading,
        sections.verdict(plan, trace, result),
        _notes(part.notes),
        sections.tiles(plan, trace, result),
        sections.violations(plan),
        sections.mapping(plan),
        sections.measured(plan, trace, result),
        _picture(part),
        sections.timeline(plan, trace),
        sections.chains(plan, trace, result),
        sections.power(plan, trace, result),
        sections.evidence(plan),
    ]
    return element("section", "".join(blocks))


def _notes(notes: Sequence[str]) -> str:
    items = "".join(element("li", escape(note)) for note in notes)
    return element("div", element("ul", items), class_="note") if notes else ""


def _picture(part: Part) -> str:
    if part.picture is None:
        return ""
    data = base64.b64encode(part.picture).decode("ascii")
    image = element("img", src=f"data:image/png;base64,{data}", alt="The scan from above with the boxes found")
    caption = element("figcaption", escape(part.picture_note))
    return element("h2", "What was seen") + element("figure", image + caption, class_="scan", style="margin:0")


def _made_by(parts: Sequence[Part], made_by: Mapping[str, str]) -> str:
    rows = [[escape(key), element("code", escape(value))] for key, value in made_by.items()]
    for part in parts:
        for key, value in (*part.plan.tool.items(), *part.plan.inputs.items()):
            rows.append([escape(f"{part.plan.platform}: {key}"), element("code", escape(str(value)))])
    listing = element("details", element("summary", "Command, versions, input hashes") + table(["what", "value"], rows))
    return element("h2", "How this was made") + listing
