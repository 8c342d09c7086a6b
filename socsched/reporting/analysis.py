"""The analysis of a plan as plain data: bounds with their terms, utilisation, sensitivity."""

from __future__ import annotations

from typing import Any

from socsched.planning.plan import Plan
from socsched.planning.recheck import UNCHECKED, Recheck
from socsched.planning.sensitivity import Spare, co_runner, spare
from socsched.schedulability.applicable import applicable_tests
from socsched.schedulability.assumptions import PAGE, chain_sections, union
from socsched.schedulability.compare_bounds import Resource, bounds, chain_bound
from socsched.schedulability.miss_probability import SECTION, miss_probabilities


def analysis(checked: Recheck) -> dict[str, Any]:
    """Return chains (ns), utilisation of every used lane, tests with their bounds, and the remaining slack."""
    plan = checked.plan
    found = bounds(plan)
    tightest = {chain.name: chain_bound(plan, chain, found.rows) for chain in plan.chains}
    spares = None if checked.outside else _spares(plan)
    proofs = {chain.name: chain_sections(plan, chain) for chain in plan.chains}
    late = miss_probabilities(plan)
    for name in (name for name, probability in late.items() if probability):
        proofs[name] = [*proofs[name], SECTION]
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
                "miss_probability": late[chain.name],
                "tightest": _tightest(tightest[chain.name]),
                "ways": [{"test": n, "bound_ns": b, "reason": why} for n, b, why in found.chains[chain.name]],
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
            for b in found.rows
        ],
        "resources": [_resource(resource) for resource in found.resources],
        "growth": {
            "all": spares["all"]["factor"] if spares else None,
            "tasks": {t.name: spares["stages"][t.name]["factor"] if spares else None for t in plan.tasks},
        },
        "sensitivity": spares,
    }


def _spares(plan: Plan) -> dict[str, Any] | None:
    """Return the margins for growth of tasks and for traffic of a co-runner; None if the deadlines are not proved."""
    everything, traffic = (spare(plan), co_runner(plan)) if plan.tasks else (None, None)
    if everything is None or traffic is None:
        return None
    stages = {task.name: spare(plan, frozenset([task.name])) or everything for task in plan.tasks}
    return {
        "all": _spare(everything),
        "stages": {name: _spare(margin) for name, margin in stages.items()},
        "co_runner": {"bytes_per_s": traffic.value, "first": list(traffic.first), "whole": traffic.whole},
    }


def _spare(found: Spare) -> dict[str, Any]:
    return {
        "spare_ns": found.value,
        "factor": round(found.factor, 6),
        "first": list(found.first),
        "whole": found.whole,
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


def _tightest(found: tuple[int, tuple[str, ...]] | None) -> dict[str, Any]:
    return {"bound_ns": found[0], "tests": list(found[1])} if found else {"bound_ns": None, "tests": []}


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
