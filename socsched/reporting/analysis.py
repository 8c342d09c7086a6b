"""The analysis of plans, task sets and job sets: plain data, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from socsched.planning.plan import Plan
from socsched.planning.recheck import UNCHECKED, Recheck
from socsched.planning.sensitivity import Spare, co_runner, proved, spare
from socsched.schedulability.explain_bounds import (
    PAGE,
    Resource,
    applicable_tests,
    as_responses,
    bounds,
    chain_bound,
    chain_sections,
    sections,
    taskset_sections,
    union,
)
from socsched.schedulability.plan_analysis import Whole
from socsched.schedulability.published.choose import Analysis, Outcome
from socsched.schedulability.published.model import VERDICTS
from socsched.schedulability.published.schedule_abstraction import Job, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType


MARGINS = 48
"""Tasks up to which each has a margin of its own, unless asked for: that takes ten analyses of the plan for each."""


def analysis(checked: Recheck, margins: bool = False) -> dict[str, Any]:
    """Return chains (ns), utilisation of every used lane, tests with their bounds, and the remaining slack.

    `margins`: those of each task too, however many there are.
    """
    plan = checked.plan
    limits = bounds(plan, checked.whole)
    answers = as_responses(limits.rows)
    tightest = {chain.name: chain_bound(plan, chain, limits.rows, answers) for chain in plan.chains}
    each = margins or len(plan.tasks) <= MARGINS
    spares = None if checked.whole is None else _spares(plan, checked.whole, each)
    proofs = chain_sections(plan)
    return {
        "verdict": plan.verdict,
        "stated_verdict": checked.stated,
        "outside": list(checked.outside),
        "changed": list(checked.changed),
        "unchecked": UNCHECKED,
        "unmet": [
            {"requirement": v.requirement, "demand": v.demand, "bound": v.bound, "unit": v.unit}
            for v in plan.violations
        ],
        "proofs": {"page": PAGE, "sections": union(proofs.values(), plan.solver.proof is not None)},
        "chains": [
            {
                "name": chain.name,
                "deadline_ns": chain.deadline_ns,
                "bound_ns": chain.bound_ns,
                "slack_ns": None if chain.bound_ns is None else chain.deadline_ns - chain.bound_ns,
                "terms": [{"name": name, "ns": value} for name, value in chain.terms],
                "test": chain.test,
                "proofs": proofs[chain.name],
                "tightest": _tightest(tightest[chain.name]),
                "ways": [{"test": n, "bound_ns": b, "reason": why} for n, b, why in limits.chains[chain.name]],
            }
            for chain in plan.chains
        ],
        "lanes": _lanes(plan),
        "tests": [
            {"name": row.name, "source": row.source, "bounds": list(row.bounds), "reason": row.reason}
            for row in applicable_tests(plan)
        ],
        "tasks": [
            {"name": b.task, "own_bound_ns": b.own, "bound_ns": b.bound, "test": b.test, "reason": b.reason}
            for b in limits.rows
        ],
        "resources": [_resource(resource) for resource in limits.resources],
        "growth": {
            "all": spares["all"]["factor"] if spares else None,
            "tasks": {t.name: spares["stages"][t.name]["factor"] if spares and each else None for t in plan.tasks},
        },
        "sensitivity": spares,
    }


def _spares(plan: Plan, whole: Whole, each: bool) -> dict[str, Any] | None:
    """Return the margins for growth of tasks and for traffic of a co-runner; None if the deadlines are not proved.

    `each`: every task has a margin of its own.
    """
    if not proved(plan, whole.tight):
        return None
    everything, traffic = spare(plan, None, True), co_runner(plan, True)
    assert everything is not None and traffic is not None
    names = [task.name for task in plan.tasks]
    stages = {name: spare(plan, frozenset([name]), True) or everything for name in (names if each else ())}
    return {
        "all": _spare(everything),
        "stages": {name: _spare(margin) for name, margin in stages.items()},
        "left_out": 0 if each else len(names),
        "co_runner": {"bytes_per_s": traffic.value, "first": list(traffic.first), "whole": traffic.whole},
    }


def _spare(spare: Spare) -> dict[str, Any]:
    return {
        "spare_ns": spare.value,
        "factor": round(spare.factor, 6),
        "first": list(spare.first),
        "whole": spare.whole,
    }


def _resource(resource: Resource) -> dict[str, Any]:
    """Return every published test on the tasks of a resource: its result and bounds, or why it does not apply."""
    outcomes = resource.analysis.outcomes if resource.analysis else ()
    return {
        "lanes": list(resource.lanes),
        "tasks": list(resource.tasks),
        "reason": resource.reason,
        "tests": [
            {
                "name": outcome.test.name,
                "source": outcome.test.source,
                "applies": outcome.answer is not None,
                "reason": outcome.reason,
                "schedulable": outcome.answer.schedulable if outcome.answer else None,
                "bounds_ns": {n: b.value for n, b in outcome.answer.bounds.items()} if outcome.answer else {},
            }
            for outcome in outcomes
        ],
    }


def _tightest(pair: tuple[int, tuple[str, ...]] | None) -> dict[str, Any]:
    return {"bound_ns": pair[0], "tests": list(pair[1])} if pair else {"bound_ns": None, "tests": []}


def _lanes(plan: Plan) -> list[dict[str, Any]]:
    lanes = sorted({(task.engine, lane) for task in plan.tasks for lane in task.lanes})
    rows = []
    for engine, lane in lanes:
        tasks = [task for task in plan.tasks if task.engine == engine and lane in task.lanes]
        load = sum(task.wcet_ns / task.period_ns for task in tasks)
        rows.append(
            {"engine": engine, "lane": lane, "utilization": round(load, 6), "tasks": [task.name for task in tasks]}
        )
    return rows


UNITS = {1: "ns", 10**3: "us", 10**6: "ms", 10**9: "s"}


_FULL = {"reaction_time": "full reaction time", "data_age": "full data age"}
"""Measures that begin or end with the gap to the next job; the others are called reduced."""


def taskset_document(analysis: Analysis) -> dict[str, Any]:
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
        "tests": [_taskset_test(outcome, unit) for outcome in analysis.outcomes],
    }


def _taskset_test(outcome: Outcome, unit: int) -> dict[str, Any]:
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
    whole, rest = divmod(value, unit)
    return value / unit if rest else whole


def _text(value: int, unit: int) -> str:
    return f"{_in(value, unit)} {UNITS[unit]}"


def taskset_view(analysis: Analysis, shown: Mapping[str, Any]) -> RenderableType:
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


TEST = "schedule abstraction"
_SHOWN = 40


def jobs_document(name: str, jobs: Sequence[Job], scale: int, processors: int, verdict: Verdict) -> dict[str, Any]:
    """Return the verdict, the job that is late where one is, and the earliest and latest end of every job."""

    def in_unit(value: int) -> int | float:
        exact = Fraction(value, scale)
        return int(exact) if exact.denominator == 1 else float(exact)

    late = None
    if verdict.missed:
        job = jobs[verdict.missed[0]]
        late = {
            "task": job.task,
            "job": job.number,
            "end": in_unit(verdict.missed[1]),
            "deadline": in_unit(job.deadline),
        }
    rows = [
        {
            "task": job.task,
            "job": job.number,
            "earliest_end": in_unit(ends[0]),
            "latest_end": in_unit(ends[1]),
            "deadline": in_unit(job.deadline),
        }
        for job, ends in zip(jobs, verdict.completions, strict=False)
    ]
    return {
        "jobset": name,
        "processors": processors,
        "preemptive": False,
        "jobs": len(jobs),
        "verdict": VERDICTS[verdict.met],
        "decided_by": TEST if verdict.met is not None else "",
        "why": verdict.why,
        "states": verdict.states,
        "missed": late,
        "completions": rows,
        "proofs": {"page": PAGE, "sections": sections([TEST])},
    }


def jobs_view(shown: Mapping[str, Any]) -> RenderableType:
    """Return the tables that `socsched analyze` prints for a job set."""
    from rich.console import Group
    from rich.text import Text

    from socsched.reporting.terminal import rests_on, table

    style = {"feasible": "bold green", "infeasible": "bold red"}.get(shown["verdict"], "bold yellow")
    by = f" (by {shown['decided_by']})" if shown["decided_by"] else f" ({shown['why']})"
    count = f"{shown['jobs']} jobs without preemption, {shown['processors']} processor(s), {shown['states']} states"
    parts: list[Any] = [
        Text.assemble((shown["verdict"], style), f"  {shown['jobset']}: {count}", by),
        Text(rests_on(shown)),
        Text(""),
    ]
    if late := shown["missed"]:
        ends = f"ends at {late['end']}, after its deadline of {late['deadline']}"
        parts += [Text(f"Task {late['task']}, job {late['job']} {ends}, in a schedule that can happen."), Text("")]
    keys = ("task", "job", "earliest_end", "latest_end", "deadline")
    rows = [[str(row[key]) for key in keys] for row in shown["completions"][:_SHOWN]]
    if rows:
        more = f", the first {_SHOWN}; all with --json" if len(shown["completions"]) > _SHOWN else ""
        heads = ["task", "job", "ends from", "to at most", "deadline"]
        parts.append(table(f"Completion of jobs{more}", heads, rows, (0, 1, 2, 3, 4)))
    return Group(*parts)
