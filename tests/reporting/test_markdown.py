"""The Markdown summary and the page of `why`: the content a reader of a pull request or terminal needs."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from socsched.planning.plan import OpenRequirement, Plan
from socsched.reporting import summary, why
from socsched.trace.trace import Trace
from socsched.trace.why import Why


def test_a_summary_has_a_row_a_chain_and_says_why_the_worst_frame_was_late(
    plan: Plan, trace: Trace, result: dict[str, Any]
) -> None:
    assert sum(chain["missed"] for chain in result["chains"].values())
    reported = summary.render(plan, trace, result)
    assert reported.startswith("## ❌ toy on board, mode MAXN\n")
    for chain in plan.chains:
        assert re.search(rf"^\| (❌ )?{chain.name} \|", reported, re.MULTILINE)
    assert re.search(r"^Worst: lidar-detection, frame \d+: [\d.]+ ms late", reported, re.MULTILINE)
    for line in [line for line in reported.splitlines() if line.startswith("|")]:
        assert len(re.findall(r"(?<!\\)\|", line)) in (5, 9), line


def test_a_summary_of_an_infeasible_plan_has_the_terms(infeasible: Plan, trace: Trace, result: dict[str, Any]) -> None:
    reported = summary.render(infeasible, trace, result)
    assert "Plan: **infeasible**" in reported
    assert "lever: drop fp32" in reported


def test_what_markdown_would_take_for_itself_is_escaped() -> None:
    assert summary.plain("a|b *c* <d>\ne") == "a\\|b \\*c\\* \\<d> e"


@pytest.mark.parametrize("width", [60, 80])
def test_the_page_of_why_fits_and_its_times_add_up(plan: Plan, trace: Trace, width: int) -> None:
    found = Why(trace, plan).worst()
    assert found.lateness_ns > 0
    screen = Console(file=io.StringIO(), width=width)
    screen.print(why.view(found))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("✗ lidar-detection, frame")
    start = next(i for i, line in enumerate(lines) if line.startswith("stage"))
    end = next(i for i, line in enumerate(lines) if i > start and not line.strip())
    times = [re.search(r"-?[\d,]+\.\d{6}", line) for line in lines[start + 1 : end]]
    shown = [round(float(match[0].replace(",", "")) * 1e6) for match in times if match]
    assert len(shown) == len(found.causes())
    assert sum(shown) == found.response_ns
    assert "ms late" in "\n".join(lines)


def test_every_outcome_has_its_wording(plan: Plan, trace: Trace) -> None:
    found = Why(trace, plan).worst()
    in_time = replace(found, deadline_ns=found.response_ns + 1_000_000)
    assert "in time, slack 1 ms" in why.headline(in_time)
    for outcome, text in (("dropped", "was dropped"), ("aborted", "aborted"), ("unfinished", "did not complete")):
        assert text in why.headline(replace(found, outcome=outcome))


def test_a_frame_that_went_as_planned_needs_no_sentence(plan: Plan, trace: Trace) -> None:
    found = Why(trace, plan).worst()
    planned: Any = tuple(part for part in found.parts if part.kind in ("execution", "conversion"))
    assert why.main_cause(replace(found, parts=planned)) == ""
    assert why.main_cause(found).startswith("Main cause: ")


def test_the_summary_of_an_undecided_plan_gives_the_gap_of_each_requirement(plan: Plan) -> None:
    gap = OpenRequirement("deadline of chain lidar-detection", 120_000_000, 70_000_000, 100_000_000, "ns")
    open_ = replace(plan, verdict="undecided", solver=replace(plan.solver, open=(gap,)))
    text = summary.render(open_, None, {})
    assert "lidar-detection: 120 ms proved" in text and "20 ms more than 100 ms" in text and "below 70 ms" in text
