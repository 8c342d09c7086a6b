"""A result as JUnit XML: one test case per requirement, so that a CI system shows which requirement broke, and how far.

Suites: guarantees of the plan (`plan`), simulated or measured outcomes, and the comparison with a baseline.  The layout
is valid by both schemas in use, that of Ant's JUnit task and Jenkins' junit-10.xsd, which GitHub and GitLab read too:
testsuites > testsuite > properties, testcase > failure | error, system-out, system-err.  Where one of them is stricter,
it decides: a suite has an id, a package, a host and the time it was made; times have three decimals; texts beside the
cases are in the system-out of their suite.  SOURCE_DATE_EPOCH sets the time, for files that are the same each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from socsched.planning.plan import ChainResult, Plan, Violation
from socsched.reporting import view_model
from socsched.reporting.plan_diff import PlanDiff, Slack
from socsched.text import printable
from socsched.units import format_bandwidth, format_duration, format_power

Node = ElementTree.Element
_REMARK = "remark"
"""Attribute that carries what is said of a case until its suite's output is written."""


def render(plan: Plan, result: Mapping[str, Any], against: PlanDiff | None = None, slacks: Sequence[Slack] = ()) -> str:
    """Return the XML; failure texts are the terms of proved violations, errors are undecided requirements.

    `against` is the comparison with a baseline: a failure for every requirement that became weaker and every figure
    that got worse by more than allowed.  `slacks`: those that a guard asks for.
    """
    root = Node("testsuites")
    _proved(ElementTree.SubElement(root, "testsuite", name="plan"), plan)
    if result:
        kind = str(result.get("kind", "result"))
        _observed(ElementTree.SubElement(root, "testsuite", name=kind), plan, result, f"socsched.{kind}")
    if slacks:
        suite = ElementTree.SubElement(root, "testsuite", name="slack")
        for one in slacks:
            name = f"slack of chain {one.chain}"
            case = ElementTree.SubElement(suite, "testcase", classname="socsched.slack", name=name, time="0")
            if one.short:
                _fail(case, "failure", "too little", one.told())
    if against is not None:
        _compared(ElementTree.SubElement(root, "testsuite", name="baseline"), against)
    return _text(root, {"pipeline": plan.pipeline, "platform": plan.platform, "mode": plan.mode})


def error_case(name: str, message: str, hint: str) -> str:
    """Return the XML of a guard that ended without a verdict: one case with an error."""
    root = Node("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="plan")
    case = ElementTree.SubElement(suite, "testcase", classname="socsched.plan", name=name, time="0")
    _fail(case, "error", "error", "\n".join(filter(None, [message or "no message", hint])))
    return _text(root, {"pipeline": name})


def _text(root: Node, about: Mapping[str, str]) -> str:
    made = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = int(made) if made.isascii() and made.isdigit() and len(made) < 12 else int(time.time())
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    for number, suite in enumerate(root):
        _counted(suite)
        suite.attrib.update(id=str(number), package="socsched", hostname="localhost", timestamp=stamp)
        properties = Node("properties")
        for name, value in about.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
        suite.insert(0, properties)
        out = Node("system-out")
        out.text = "".join(case.attrib.pop(_REMARK, "") for case in suite.iter("testcase"))
        suite.extend((out, Node("system-err")))
    ElementTree.indent(root)
    text = printable(ElementTree.tostring(root, encoding="unicode"))  # XML cannot represent control characters
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _proved(suite: Node, plan: Plan) -> None:
    """Add a case for every requirement of a plan: those derived from the plan, and any others it violates."""
    broken: dict[str, list[Violation]] = {}
    for violation in plan.violations:
        broken.setdefault(requirement(violation), []).append(violation)
    names = [f"deadline of chain {chain.name}" for chain in plan.chains]
    names += [f"data age of chain {chain.name}" for chain in plan.chains if chain.max_age_ns is not None]
    names += [f"utilisation of {engine.id}" for engine in plan.engines]
    names += [f"queue of {task.name}" for task in plan.tasks]
    names += ["mean power"] if plan.power.cap_mw else []
    names += ["DRAM traffic"] if plan.bandwidth.cap_gbps else []
    names += ["DRAM capacity"] if plan.memory.capacity_bytes else []
    chains = {f"deadline of chain {chain.name}": chain for chain in plan.chains}
    for line in view_model.cut_off(plan):
        case = ElementTree.SubElement(suite, "testcase", classname="socsched.plan", name="search", time="0")
        ElementTree.SubElement(case, "skipped", message=line)
    for name in dict.fromkeys([*names, *broken]):
        case = ElementTree.SubElement(suite, "testcase", classname="socsched.plan", name=name, time="0")
        if name in broken:
            text = "\n".join(violation_text(violation) for violation in broken[name])
            # Only a proof makes a requirement fail: what an analysis does not prove may hold all the same.
            sort = ("failure", "violated") if plan.verdict == "infeasible" else ("error", "undecided")
            rests = [line for line in view_model.proof(plan) if line.startswith(f"{name}: ")]
            _fail(case, *sort, "\n".join([text, *rests]))
        elif name in chains and chains[name].bound_ns is None:
            _fail(case, "error", "undecided", f"{chains[name].name}: no bound exists, so the deadline is not proved")
        elif name in chains:
            case.set("time", _seconds(chains[name].bound_ns or 0))
            if text := view_model.condition(plan, chains[name].name):
                case.set(_REMARK, f"{name}: {text}\n")


def _observed(suite: Node, plan: Plan, result: Mapping[str, Any], group: str) -> None:
    """Add a case for every requirement that a simulation or run can break."""
    for chain in plan.chains:
        entry = result.get("chains", {}).get(chain.name)
        name = f"deadline of chain {chain.name}"
        case = ElementTree.SubElement(suite, "testcase", classname=group, name=name, time="0")
        if entry is None:
            _fail(case, "error", "missing", f"{chain.name}: the result has no entry for this chain")
            continue
        worst = (entry.get("response_time_ns") or {}).get("max")
        case.set("time", _seconds(worst or 0))
        if text := lateness(entry, chain):
            _fail(case, "failure", "late or dropped", text)
    cap, mean = plan.power.cap_mw, (result.get("power_mw") or {}).get("mean")
    if cap and mean is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=group, name="mean power", time="0")
        if mean > cap:
            text = f"mean power {format_power(mean)} exceeds the cap {format_power(cap)}"
            _fail(case, "failure", "violated", f"{text} by {format_power(mean - cap)}")
    limit, moved = plan.bandwidth.cap_gbps, (result.get("bandwidth_gbps") or {}).get("mean")
    if limit and moved is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=group, name="DRAM traffic", time="0")
        if moved > limit:
            text = f"mean DRAM traffic {format_bandwidth(moved * 1e9)} exceeds {format_bandwidth(limit * 1e9)}"
            _fail(case, "failure", "violated", text)


def _compared(suite: Node, against: PlanDiff) -> None:
    """Add a case for the verdict, for every requirement that differs, and for every figure common to both plans."""
    cases = [("verdict", "; ".join(against.worse))]
    cases += [
        (
            f"requirement: {change.kind} of {change.subject}" if change.kind else f"requirement: {change.subject}",
            f"weaker requirement: {change.told()}" if change in against.weaker else "",
        )
        for change in against.requirements
    ]
    cases += [(f"{row.name} {row.figure}", row.regression() if row.regressed else "") for row in against.figures]
    for name, text in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="socsched.baseline", name=name, time="0")
        if text:
            _fail(case, "failure", "regressed", text)


def _fail(case: Node, tag: str, kind: str, text: str) -> None:
    ElementTree.SubElement(case, tag, message=text.splitlines()[0], type=kind).text = text


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.3f}"


def _counted(node: Node) -> None:
    cases = list(node)
    node.set("tests", str(len(cases)))
    node.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    node.set("errors", str(sum(case.find("error") is not None for case in cases)))
    node.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def requirement(violation: Violation) -> str:
    """Return the requirement of a violation, without its lane or number: one case for all lanes of an engine."""
    return violation.requirement.split(" lane ")[0].split(" (")[0]


def violation_text(item: Violation) -> str:
    """Return a violation as lines: demand, bound and gap, the terms that add up to the demand, and the levers."""
    show = view_model.formatter(item.unit)
    lines = [f"{item.requirement}: demand {show(item.demand)} > bound {show(item.bound)}, gap {show(item.gap)}"]
    lines += [f"  {show(value)}  {name}" for name, value in item.terms]
    lines += [f"  lever: {lever}" for lever in item.levers]
    return "\n".join(lines)


def lateness(entry: Mapping[str, Any], chain: ChainResult) -> str:
    """Return the late and dropped frames and stale outputs of a chain, and the worst response; "" without any."""
    late, dropped, stale = (entry.get(key, 0) for key in ("missed", "dropped", "stale"))
    if not late + dropped + stale:
        return ""
    worst = (entry.get("response_time_ns") or {}).get("max")
    return (
        f"{late} late and {dropped} dropped of {entry.get('released', 0)} frames; "
        + (f"{stale} outputs with data above {view_model.duration(chain.max_age_ns)}; " if stale else "")
        + f"worst {view_model.duration(worst)}, deadline {format_duration(chain.deadline_ns)}"
    )
