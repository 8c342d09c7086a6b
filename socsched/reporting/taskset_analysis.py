"""The analysis of a task set as plain data in the file's unit, and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from socsched.schedulability.assumptions import PAGE, taskset_sections
from socsched.schedulability.published.choose import Analysis, Outcome

if TYPE_CHECKING:
    from rich.console import RenderableType

UNITS = {1: "ns", 10**3: "us", 10**6: "ms", 10**9: "s"}


_FULL = {"reaction_time": "full reaction time", "data_age": "full data age"}
"""Measures that begin or end with the gap to the next job; the others are called reduced."""


def document(analysis: Analysis) -> dict[str, Any]:
    """Return the verdict, the tightest bound of every task and of every measure of the chain, and every test."""
    taskset = analysis.taskset
    unit = taskset.unit_ns

    def bound(found: Any) -> dict[str, Any]:
        terms = [{"name": name, "value": _in(value, unit)} for name, value in found.terms]
        return {"bound": _in(found.value, unit), "terms": terms}

    def best(name: str, chain: bool) -> dict[str, Any]:
        chosen = (analysis.chain if chain else analysis.tasks)[name]
        if chosen.bound is None:
            return {"bound": None, "test": None, "why": "no applicable test bounds it", "terms": []}
        return {**bound(chosen.bound), "test": chosen.test, "why": _why(analysis, name, chosen.test, chain)}

    return {
        "taskset": taskset.name,
        "time_unit": UNITS[unit],
        "policy": {
            "rule": taskset.policy.rule,
            "scheme": taskset.policy.scheme,
            "preemptive": taskset.policy.preemptive,
        },
        "processors": taskset.processors,
        "utilization": float(sum((task.utilisation for task in taskset.tasks), Fraction(0))),
        "verdict": analysis.verdict,
        "decided_by": analysis.decided_by,
        "proofs": {"page": PAGE, "sections": taskset_sections(analysis)},
        "tasks": [
            {"id": t.id, "name": t.name, "deadline": _in(t.deadline_ns, unit), **best(t.name, False)}
            for t in taskset.tasks
        ],
        "chain": {
            "tasks": [taskset.tasks[index].name for index in taskset.chain],
            "communication": taskset.communication,
            "measures": {measure: best(measure, True) for measure in analysis.chain},
        },
        "tests": [_test(outcome, unit) for outcome in analysis.outcomes],
    }


def _test(outcome: Outcome, unit: int) -> dict[str, Any]:
    answer = outcome.answer
    row = {"name": outcome.test.name, "source": outcome.test.source, "kind": outcome.test.kind}
    if answer is None:
        return {**row, "applies": False, "reason": outcome.reason}
    return {
        **row,
        "applies": True,
        "reason": outcome.reason,
        "cpus": list(outcome.cpus),
        "schedulable": answer.schedulable,
        "note": answer.note,
        "compared": [{"name": name, "value": value} for name, value in answer.terms],  # ns, or ppm where stated
        "bounds": {name: _in(found.value, unit) for name, found in answer.bounds.items()},
        "chain": {name: _in(found.value, unit) for name, found in answer.chain.items()},
    }


def _why(analysis: Analysis, name: str, test: str, chain: bool) -> str:
    """Return the bounds that the chosen bound is tighter than, or that it is the only one."""
    others = []
    for outcome in analysis.outcomes:
        found = (outcome.answer.chain if chain else outcome.answer.bounds) if outcome.answer else {}
        if name in found and outcome.test.name != test:
            others.append((found[name].value, outcome.test.name))
    if not others:
        return "the only bound"
    value, other = min(others)
    count = f"tightest of {len(others) + 1}"
    return f"{count}, next best {_text(value, analysis.taskset.unit_ns)} by {other}"


def _in(value: int, unit: int) -> int | float:
    """Return ns in the file's unit, as an int if it is a whole number."""
    exact = Fraction(value, unit)
    return int(exact) if exact.denominator == 1 else float(exact)


def _text(value: int, unit: int) -> str:
    return f"{_in(value, unit)} {UNITS[unit]}"


def view(analysis: Analysis, shown: Mapping[str, Any]) -> RenderableType:
    """Return the tables that `socsched analyze` prints for a task set."""
    from rich.console import Group
    from rich.text import Text

    from socsched.reporting.terminal import rests_on, table

    style = {"feasible": "bold green", "infeasible": "bold red"}.get(shown["verdict"], "bold yellow")
    by = f" (by {shown['decided_by']})" if shown["decided_by"] else " (no applicable test decides)"
    policy = shown["policy"]
    kind = f"{policy['scheme']} {policy['rule']}, {'preemptive' if policy['preemptive'] else 'non-preemptive'}"
    head = f"  {shown['taskset']}: {kind}, {shown['processors']} processor(s), utilisation {shown['utilization']:.4f}"
    parts: list[Any] = [Text.assemble((shown["verdict"], style), head, by), Text(rests_on(shown)), Text("")]
    unit = shown["time_unit"]
    rows = [
        [
            task["name"],
            "-" if task["bound"] is None else str(task["bound"]),
            str(task["deadline"]),
            task["test"] or "-",
            task["why"],
        ]
        for task in shown["tasks"]
    ]
    columns = ["task", f"bound ({unit})", "deadline", "test", "reason"]
    parts += [table("Response times", columns, rows, (1, 2)), Text("")]
    if shown["chain"]["tasks"]:
        rows = [
            [_FULL.get(name, name.replace("_", " ")), str(row["bound"]), row["test"], row["why"]]
            for name, row in shown["chain"]["measures"].items()
        ]
        title = f"Chain {' -> '.join(shown['chain']['tasks'])}, {shown['chain']['communication']} communication"
        parts += [table(title, ["measure", f"bound ({unit})", "test", "reason"], rows, (1,)), Text("")]
    outcomes = {True: "every deadline met", False: "a deadline is missed", None: ""}
    rows = [
        [test["name"], outcomes[test["schedulable"]] if test["kind"] != "chain" else "bounds the chain", test["note"]]
        for test in shown["tests"]
        if test["applies"]
    ]
    parts += [table("Tests that apply", ["test", "says", "how"], rows), Text("")]
    rows = [[test["name"], test["reason"]] for test in shown["tests"] if not test["applies"]]
    parts.append(table("Tests not applicable", ["test", "why"], rows))
    return Group(*parts)
