"""A placement found for one cell of a book, judged in another: the same engines, data types, cores and cuts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from socsched.graph.taskgraph import task_graph
from socsched.models.parts import part_of
from socsched.planning.candidate import Candidate, judge, objectives, score
from socsched.planning.cutting.restore import as_planned
from socsched.planning.mapping.mapper import Improved
from socsched.planning.plan import Plan
from socsched.planning.plan_writer import write_plan
from socsched.planning.search_report import SearchReport
from socsched.planning.solution import Solution
from socsched.planning.workload import Unconnectable, Workload

if TYPE_CHECKING:
    from socsched.cost.cost import Cost
    from socsched.modebook.cells import Cell, Surroundings

Placed = tuple[str, str, str, str, int]
"""A stage, its cut if it is a part of a network, its engine, data type and number of lanes."""


def placement(plan: Plan) -> frozenset[Placed]:
    """Return where a plan runs its stages; plans with equal placements run the same compiled artefacts."""
    return frozenset(
        (task.name, part.cut if (part := part_of(task.params)) else "", task.engine, task.precision, len(task.lanes))
        for task in plan.tasks
        if task.kind == "stage"
    )


def transplant(donor: Plan, cell: Cell, around: Surroundings) -> Candidate | None:
    """Return a plan's placement judged in another cell, None where an engine lacks or refuses it."""
    board, mode = around.board(cell.loss), around.mode(cell)
    engines = {engine.id: engine for engine in board.engines}
    graph = task_graph(as_planned(around.workload(cell), donor))
    model = around.known(cell).model(mode)
    mapping: dict[str, Cost] = {}
    for task in donor.tasks:
        if task.kind != "stage":
            continue
        engine = engines.get(task.engine)
        if engine is None or mode.engines[engine.id].units < (len(task.lanes) if engine.shares == "unit" else 1):
            return None
        share = len(task.lanes) if engine.shares == "unit" else mode.engines[engine.id].units
        cost = model.at(graph.stage(task.name), task.engine, task.precision, share)
        if cost is None:
            return None
        mapping[task.name] = cost
    if set(mapping) != set(graph.order):
        return None
    try:
        return judge(Workload.of(graph, model, donor.policy, limits=around.limits), mapping)
    except Unconnectable:
        return None


def rank(candidate: Candidate, objective: str) -> tuple[float, ...]:
    """Return the order of candidates: feasible ones first, then by unmet requirements and objectives."""
    return (float(candidate.verdict != "feasible"), *score(candidate, objectives(objective)))


def plan_of(candidate: Candidate, cell: Cell, around: Surroundings, objective: str, of: str) -> Plan:
    """Return a judged placement as the plan of its cell; `of`: the cell that it was found for."""
    goals = objectives(objective)
    value = score(candidate, goals)
    found = Solution(candidate, Improved(dict(candidate.deployment.mapping), value, 1, True), value)
    plan = write_plan(found, [found], goals, None, around.workload(cell))
    report = SearchReport(
        name="book",
        status=f"placement of {of}",
        objective=goals,
        value=plan.solver.value,
        overrun=plan.solver.overrun,
        evaluated=1,
        modes=plan.solver.modes,
    )
    return replace(plan, solver=report)
