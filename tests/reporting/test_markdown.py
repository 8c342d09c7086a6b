"""Results as Markdown and as JUnit XML."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from socsched.planning.plan import OpenRequirement, Plan
from socsched.reporting import junit, summary, why
from socsched.reporting.view_model import kept_intervals
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
    screen.print(why.view(found, plan))
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


def test_stages_of_a_measured_frame_that_left_their_interval_are_marked_and_counted(plan: Plan, trace: Trace) -> None:
    found = Why(trace, plan).worst()
    assert not kept_intervals(plan, why.worked(found))[1], "a simulated frame tests no prediction"
    late = next(name for name, _ in found.jobs if ">" not in name)
    plan = replace(plan, tasks=tuple(replace(task, error=0.2 if ">" not in task.name else 0.0) for task in plan.tasks))
    cost = next(task.cost_ns for task in plan.tasks if task.name == late)
    parts = [replace(part, ns=0) if part.kind == "above" else part for part in found.parts]
    for add, marked in ((cost // 10, False), (cost, True), (-cost // 2, True)):
        above = replace(parts[0], task=late, kind="above", by="", ns=add)
        measured = replace(found, kind="measured", outcome="completed", parts=(*parts, above))
        screen = Console(file=io.StringIO(), width=200)
        screen.print(why.view(measured, plan))
        text = screen.file.getvalue()  # type: ignore[attr-defined]
        assert ("beyond the estimate ✗" in text) == marked
        assert (f"outside (✗): {late}. `socsched profile" in text) == marked
        inside, judged, missed = kept_intervals(plan, why.worked(measured))
        assert f"{inside} of {judged} stages inside" in text
        assert missed == [late] * marked


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


# What both schemas in use allow, Ant's and Jenkins' junit-10.xsd: element -> attributes, all of which are there, and
# children in this order; one with a * may be absent or come several times, of those with a | there is at most one.
TOKEN, COUNT, SECONDS, STAMP = r"\S+( \S+)*", r"\d+", r"\d{1,3}(\.\d{3})?", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
SHAPE: dict[str, tuple[dict[str, str], str]] = {
    "testsuites": ({}, "(testsuite )*"),
    "testsuite": (
        {
            **dict.fromkeys(("name", "package", "hostname"), TOKEN),
            **dict.fromkeys(("id", "tests", "failures", "errors"), COUNT),
            "timestamp": STAMP,
            "time": SECONDS,
        },
        "properties (testcase )*system-out system-err ",
    ),
    "properties": ({}, "(property )*"),
    "property": ({"name": TOKEN, "value": ".*"}, ""),
    "testcase": ({"name": TOKEN, "classname": TOKEN, "time": SECONDS}, "(failure |error )?"),
    "failure": ({"type": ".+", "message": ".+"}, ""),
    "error": ({"type": ".+", "message": ".+"}, ""),
    "system-out": ({}, ""),
    "system-err": ({}, ""),
}


def valid(xml: str) -> ElementTree.Element:
    """Return the root of a document that has the shape, with counts that agree."""
    root = ElementTree.fromstring(xml.split("\n", 1)[1])
    assert root.tag == "testsuites"
    assert [suite.get("id") for suite in root] == [str(number) for number in range(len(root))]
    for node in root.iter():
        attributes, children = SHAPE[node.tag]
        assert set(node.attrib) == set(attributes), node.tag
        for name, pattern in attributes.items():
            assert re.fullmatch(pattern, node.attrib[name]), (node.tag, name)
        assert re.fullmatch(children, "".join(f"{child.tag} " for child in node)), node.tag
        if node.tag == "testsuite":
            cases = list(node.iter("testcase"))
            assert len({case.get("name") for case in cases}) == len(cases)
            for name, found in (("tests", cases), ("failures", node.iter("failure")), ("errors", node.iter("error"))):
                assert node.get(name) == str(len(list(found)))
    return root


def outcomes(root: ElementTree.Element, tag: str) -> dict[str, str]:
    """Return class and name of the cases with a failure or error, and its text."""
    return {
        f"{case.get('classname')} {case.get('name')}": found.text or ""
        for case in root.iter("testcase")
        for found in case.iter(tag)
    }


def test_a_feasible_plan_has_a_case_per_requirement(plan: Plan, result: dict[str, Any]) -> None:
    calm = {**result, "chains": {n: {**c, "missed": 0, "dropped": 0} for n, c in result["chains"].items()}}
    root = valid(junit.render(plan, calm))
    names = {case.get("name") for case in root[0].iter("testcase")}
    assert {f"deadline of chain {chain.name}" for chain in plan.chains} <= names
    assert {f"queue of {task.name}" for task in plan.tasks} <= names
    assert {f"utilisation of {engine.id}" for engine in plan.engines} <= names
    assert "mean power" in names
    assert not outcomes(root, "failure") and not outcomes(root, "error")
    assert [suite.get("name") for suite in root] == ["plan", "simulated"]


def test_failures_are_the_verdicts_terms(infeasible: Plan, result: dict[str, Any]) -> None:
    found = outcomes(valid(junit.render(infeasible, result)), "failure")
    reported = found[f"socsched.plan {junit.requirement(infeasible.violations[0])}"]
    for term, value in infeasible.violations[0].terms:
        assert term in reported and value
    assert "gap" in reported.splitlines()[0]
    assert "lever: " in reported
    assert "late and" in found["socsched.simulated deadline of chain lidar-detection"]
    assert len(found) == 2


def test_what_is_undecided_is_an_error(plan: Plan, result: dict[str, Any]) -> None:
    open_ = replace(plan, verdict="undecided", chains=(replace(plan.chains[0], bound_ns=None), *plan.chains[1:]))
    found = outcomes(valid(junit.render(open_, {**result, "chains": {}})), "error")
    assert "no bound exists" in found["socsched.plan deadline of chain lidar-detection"]
    assert "has no entry" in found["socsched.simulated deadline of chain planning"]


def test_lanes_of_an_engine_are_one_case_and_unknown_requirements_their_own(infeasible: Plan) -> None:
    one = infeasible.violations[0]
    many = [replace(one, requirement=r) for r in ("utilisation of cpu lane 0", "utilisation of cpu lane 2", "taste")]
    found = outcomes(valid(junit.render(replace(infeasible, violations=tuple(many)), {})), "failure")
    assert found.keys() == {"socsched.plan utilisation of cpu", "socsched.plan taste"}
    assert (
        "lane 0" in found["socsched.plan utilisation of cpu"] and "lane 2" in found["socsched.plan utilisation of cpu"]
    )


def test_power_over_its_cap_fails(plan: Plan, result: dict[str, Any]) -> None:
    hot = {**result, "power_mw": {"mean": 61_000, "peak": 70_000}}
    assert (
        "61 W exceeds the cap 60 W by 1 W"
        in outcomes(valid(junit.render(plan, hot)), "failure")["socsched.simulated mean power"]
    )
