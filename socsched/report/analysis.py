"""What the analysis of a plan says, as plain data: bounds with their terms, utilisation, sensitivity."""

from __future__ import annotations

from typing import Any

from socsched.plan.plan import Plan
from socsched.plan.schedulability.beside import chain_bound, task_bounds
from socsched.plan.schedulability.used import used
from socsched.plan.sensitivity import growth


def analysis(plan: Plan) -> dict[str, Any]:
    """Return chains (ns), utilisation of every used lane, tests, and by what factor tasks may become slower."""
    bounds = task_bounds(plan)
    tightest = {chain.name: chain_bound(plan, chain, bounds) for chain in plan.chains}
    return {
        "verdict": plan.verdict,
        "chains": [
            {
                "name": chain.name,
                "deadline_ns": chain.deadline_ns,
                "bound_ns": chain.bound_ns,
                "slack_ns": None if chain.bound_ns is None else chain.deadline_ns - chain.bound_ns,
                "terms": [{"name": name, "ns": value} for name, value in chain.terms],
                "tightest": _tightest(tightest[chain.name]),
            }
            for chain in plan.chains
        ],
        "lanes": _lanes(plan),
        "tests": [
            {"name": row.name, "source": row.source, "bounds": list(row.bounds), "reason": row.reason}
            for row in used(plan)
        ],
        "tasks": [
            {"name": b.task, "own_bound_ns": b.own, "bound_ns": b.bound, "test": b.test, "reason": b.reason}
            for b in bounds
        ],
        "growth": {
            "all": growth(plan),
            "tasks": {task.name: growth(plan, frozenset([task.name])) for task in plan.tasks},
        },
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
