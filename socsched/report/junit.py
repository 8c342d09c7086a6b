"""A result as JUnit XML: one test case per requirement, so that a CI system shows which one broke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from socsched.plan.plan import Plan
from socsched.report import facts
from socsched.units import format_duration, format_power


def render(plan: Plan, result: Mapping[str, Any]) -> str:
    """Return the XML: the plan's verdict, every chain's deadline, the power cap where the mode has one."""
    suite = ElementTree.Element("testsuite", name=f"{plan.pipeline} on {plan.platform} ({plan.mode})")
    _case(suite, "plan", "verdict", "" if plan.verdict == "feasible" else _violations(plan))
    for chain in plan.chains:
        entry = result.get("chains", {}).get(chain.name, {})
        _case(suite, "deadline", chain.name, _lateness(entry, chain.deadline_ns), entry)
    cap, peak = plan.power.get("cap_mw"), (result.get("power_mw") or {}).get("mean")
    if cap and peak is not None:
        broken = f"mean power {format_power(peak)} exceeds the cap {format_power(cap)}" if peak > cap else ""
        _case(suite, "power", "cap", broken)
    failures = sum(case.find("failure") is not None for case in suite)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(
    suite: ElementTree.Element, group: str, name: str, failure: str, figures: Mapping[str, Any] | None = None
) -> None:
    worst = ((figures or {}).get("response_time_ns") or {}).get("max")
    case = ElementTree.SubElement(suite, "testcase", classname=f"socsched.{group}", name=name)
    if worst is not None:
        case.set("time", f"{worst / 1e9:.6f}")
    if failure:
        ElementTree.SubElement(case, "failure", message=failure.splitlines()[0]).text = failure


def _lateness(entry: Mapping[str, Any], deadline_ns: int) -> str:
    lost = entry.get("missed", 0) + entry.get("dropped", 0)
    if not lost:
        return ""
    worst = (entry.get("response_time_ns") or {}).get("max")
    return (
        f"{entry.get('missed', 0)} late and {entry.get('dropped', 0)} dropped of {entry.get('released', 0)} frames; "
        f"worst {facts.duration(worst)}, deadline {format_duration(deadline_ns)}"
    )


def _violations(plan: Plan) -> str:
    lines = []
    for item in plan.violations:
        show = facts.formatter(item.unit)
        lines.append(f"{item.requirement}: demand {show(item.demand)} > bound {show(item.bound)}")
        lines += [f"  {show(value)} {name}" for name, value in item.terms]
        lines += [f"  lever: {lever}" for lever in item.levers]
    return "\n".join(lines) or f"the plan is {plan.verdict}"
