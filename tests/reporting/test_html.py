"""The page: complete, self-contained, escaped, and correct."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from report_samples import build_trace

from socsched.planning.plan import Plan
from socsched.reporting import view_model
from socsched.reporting.report import Part, render
from socsched.trace.trace import Trace

VOID = {"meta", "link", "img", "line", "rect", "path", "circle", "polyline", "br"}


class Outline(HTMLParser):
    """Collects headings and checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)


def outline(page: str) -> Outline:
    """Parse a page; fails on elements closed in the wrong order."""
    parsed = Outline()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    return parsed


@pytest.fixture
def page(plan: Plan, trace: Trace, result: dict[str, Any]) -> str:
    """Return the page of one simulated part."""
    return render([Part("Simulated", plan, trace, result)], "toy on board", {"command": "socsched demo"})


def test_the_page_is_well_formed_and_has_its_sections(page: str) -> None:
    found = outline(page).headings
    for heading in (
        "Where each stage runs, and why",
        "Timeline",
        "Chains: response times against deadlines",
        "Power and energy",
        "Memory bandwidth",
        "Roofline",
        "Power modes",
        "Evidence for the figures",
        "How this was made",
    ):
        assert heading in found


def test_the_page_needs_no_network(page: str) -> None:
    assert all(address.startswith(("data:", "#")) for address in outline(page).addresses)
    assert not re.search(r"@import|url\((?!#)", page)
    assert "https://" not in page


def test_every_drawing_is_valid_xml(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), re.DOTALL)
    assert len(drawings) >= 7
    for drawing in drawings:
        parsed = ElementTree.fromstring(drawing)
        assert parsed.get("aria-hidden") == "true" or parsed[0].text


def test_text_from_files_is_escaped(page: str) -> None:
    assert "<voxelise>" not in page
    assert "cpu is the fastest that takes &lt;voxelise&gt;" in page


def test_the_headline_reports_late_frames(page: str, plan: Plan, result: dict[str, Any]) -> None:
    assert "simulated: 1 late, 0 dropped of 120 frames" in page
    result["chains"]["lidar-detection"]["missed"] = 0
    good = render([Part("Simulated", plan, build_trace(plan, late_frame=-1), result)], "toy", {})
    assert "meets every requirement; simulated: none late or dropped of 120 frames of 2 chains" in good


def test_violations_show_their_terms_and_the_sum(infeasible: Plan, trace: Trace, result: dict[str, Any]) -> None:
    page = render([Part("Simulated", infeasible, trace, result)], "toy", {})
    assert "Unmet requirements" in page
    assert "interference on &lt;cpu&gt;" in page
    assert "a faster mode: MAXN" in page
    assert "demand 120 ms, bound 100 ms, gap 20 ms" in page


def test_prediction_is_set_against_measurement_only_in_a_run(page: str, plan: Plan, result: dict[str, Any]) -> None:
    assert "Predicted against measured" not in page
    measured = render([Part("Measured", plan, build_trace(plan, kind="measured"), result)], "toy", {})
    assert "Predicted against measured" in measured
    assert measured.count('<td class="num">1.10</td>') == 7
    assert "Measured over predicted time of every stage" in measured


def test_a_response_above_its_bound_names_the_jobs_above_their_wcets(plan: Plan, result: dict[str, Any]) -> None:
    (line,) = view_model.beyond_bounds(plan, result)
    assert line.startswith("lidar-detection: 102.7 ms is above its bound of 41 ms") and "pfn took up to 2.85 ms" in line
    for stage in result["stages"].values():
        stage["exec_ns"]["max"] = stage["exec_ns"]["mean"]
    assert "none did" in view_model.beyond_bounds(plan, result)[0]
    result["chains"]["lidar-detection"]["response_time_ns"]["max"] = 41e6
    assert view_model.beyond_bounds(plan, result) == []


def test_the_worst_frame_is_named_and_listed_job_by_job(page: str) -> None:
    assert "✗ Worst miss of lidar-detection: frame 7, 107.8 ms of 100 ms, 7.84 ms late" in page
    table = page[page.index("Worst miss of") :]
    table = table[table.index("<table>") : table.index("</table>")]
    assert [table.index(f"<td>{name}</td>") for name in ("voxelise", "scatter&gt;backbone", "decode")] == sorted(
        table.index(f"<td>{name}</td>") for name in ("voxelise", "scatter&gt;backbone", "decode")
    )


def test_parts_are_linked_and_pictures_inlined(plan: Plan, trace: Trace, result: dict[str, Any]) -> None:
    parts = [Part("A", plan, trace, result), Part("B", plan, trace, result, picture=b"\x89PNG", picture_note="boxes")]
    page = render(parts, "two", {})
    assert 'href="#part1"' in page
    assert 'id="part1"' in page
    assert "data:image/png;base64,iVBORw==" in page


def test_a_long_trace_stays_below_a_megabyte(plan: Plan, result: dict[str, Any]) -> None:
    page = render([Part("Simulated", plan, build_trace(plan, frames=2000), result)], "toy", {})
    assert len(page.encode()) < 1_000_000


def test_an_empty_trace_still_makes_a_page(plan: Plan) -> None:
    empty = {"kind": "simulated", "chains": {}, "stages": {}, "engines": {}, "power_mw": {"mean": None, "peak": None}}
    outline(render([Part("Nothing", plan, Trace("simulated", 0, 0), empty)], "toy", {}))
