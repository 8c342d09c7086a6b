"""JUnit XML: the shape CI systems read, a case for every requirement, the verdict as failure text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from socsched.planning.plan import Plan
from socsched.reporting import junit

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
