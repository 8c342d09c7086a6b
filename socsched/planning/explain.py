"""Reasons for a plan: why every task is placed where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.planning.deployment import Deployment
from socsched.planning.plan import Task, Violation
from socsched.units import format_duration

Judged = Mapping[str, tuple[str, Sequence[Violation], int]]
"""Mode name -> (verdict, violations, mean power in mW) of a quick plan in that mode."""


def reasons(deployment: Deployment) -> list[Task]:
    """Return the tasks with `why` filled in."""
    model, graph = deployment.workload.model, deployment.workload.graph
    result = []
    for task in deployment.tasks:
        if task.kind == "stage":
            options = model.candidates(graph.stage(task.name))
            hops = [t for t in deployment.transitions if t.sink == task.name and t.task]
            task = replace(
                task, why=_why(deployment.mapping[task.name], options, [(h.source, h.cost_ns) for h in hops])
            )
        result.append(task)
    return result


def _why(chosen: Cost, options: Sequence[Cost], conversions: Sequence[tuple[str, int]]) -> str:
    others = sorted((c for c in options if not _same(c, chosen)), key=lambda c: c.time_ns)
    text = f"{_name(chosen)} {format_duration(chosen.time_ns, 2)}"
    if not others:
        text = f"the only candidate: {text}"
    elif chosen.time_ns <= others[0].time_ns:
        text = f"fastest of {len(others) + 1} candidates: {text}, next {_name(others[0])} "
        text += format_duration(others[0].time_ns, 2)
    else:
        text = f"{text} gives a better plan than the fastest of {len(others) + 1} candidates, "
        text += f"{_name(others[0])} {format_duration(others[0].time_ns, 2)}"
    for source, cost in conversions:
        text += f"; conversion from {source} {format_duration(cost, 2)}"
    return text


def _same(a: Cost, b: Cost) -> bool:
    return (a.engine, a.precision, a.share) == (b.engine, b.precision, b.share)


def _name(cost: Cost) -> str:
    return f"{cost.engine} {cost.precision}" + (f" x{cost.share}" if cost.share > 1 else "")
