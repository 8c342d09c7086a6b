"""Plans for all cells of a book: searched where needed, shared where one cell's placement holds in another.

Cells are visited from the strongest to the weakest.  A placement that is in the book already and meets every
requirement in the next cell is taken over, the best of them by the objective.  Otherwise the cell is searched, unless
the search of a stronger cell (the same engines or more, none slower) found nothing.  Such a cell is infeasible if lower
bounds prove it, else undecided: a search of its own might still find a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from socsched import __version__
from socsched.api.planning import PlanOptions, plan_with
from socsched.graph.taskgraph import task_graph
from socsched.modebook.cells import NONE, Axes, Cell, Surroundings
from socsched.modebook.sharing import Placed, placement, plan_of, rank, transplant
from socsched.planning.plan import Plan
from socsched.planning.refutation import by_bounds
from socsched.planning.search_report import Proof
from socsched.planning.unplaceable import unmappable_stages
from socsched.planning.workload import Workload
from socsched.progress import tell
from socsched.reporting.view_model import formatter

BOUND = "lower bound"
"""Method of a proof that `refutation.by_bounds` gives."""
QUICK = 5.0
"""Time limit (s) of the search for a plan that only shows what is unmet."""
SEARCHED, SHARED, DOMINATED = "searched", "shared", "dominated"


@dataclass(frozen=True, slots=True)
class Entry:
    """The plan of a cell, and how it was made: searched, shared with the cell `of`, or dominated by it.

    A dominated cell was not searched, because the search of the stronger cell `of` found no feasible plan; its plan is
    the placement that comes nearest, without tasks where a stage has no engine.  `why`: the unmet requirements.
    """

    cell: Cell
    plan: Plan
    made: str
    of: str
    why: tuple[str, ...]


def build_entries(axes: Axes, options: PlanOptions, around: Surroundings) -> list[Entry]:
    """Return the plans of all cells, in the order of `Axes.cells`; `options` apply to every search."""
    cells = list(axes.cells())
    made: dict[Cell, Entry] = {}
    donors: dict[tuple[frozenset[Placed], str], Entry] = {}
    for number, cell in enumerate(sorted(cells, key=lambda one: (one.condition, -around.strength(one)))):
        tell("planning cells", number, len(cells), "cells")
        entry = _entry(cell, around, options, list(donors.values()), made)
        made[cell] = entry
        if entry.plan.tasks:
            donors.setdefault((placement(entry.plan), entry.plan.policy), entry)
    return [made[cell] for cell in cells]


def _entry(
    cell: Cell, around: Surroundings, options: PlanOptions, donors: list[Entry], made: dict[Cell, Entry]
) -> Entry:
    judged = [
        (rank(found, options.objective), number, found, donor)
        for number, donor in enumerate(donors)
        if (found := transplant(donor.plan, cell, around)) is not None
    ]
    best = min(judged, default=None, key=lambda one: one[:2])
    if best is not None and best[2].verdict == "feasible":
        plan = _stamped(plan_of(best[2], cell, around, options.objective, str(best[3].cell)))
        return Entry(cell, plan, SHARED, str(best[3].cell), ())
    lacking = unmappable_stages(task_graph(around.workload(cell)), around.known(cell).model(around.mode(cell)))
    stronger = next((entry for entry in made.values() if _settles(entry, cell, around)), None)
    if stronger is not None and not lacking:
        if best is None:  # no placement of the book runs here: the nearest one of a quick search
            quick = replace(options, solver="heft", refine=False, cuts=False, explain=False, time_limit=QUICK)
            plan = _planned(cell, around, quick)
        else:
            plan = _stamped(plan_of(best[2], cell, around, options.objective, str(best[3].cell)))
        plan = _refuted(plan, stronger, cell, around)
        return Entry(cell, plan, DOMINATED, str(stronger.cell), _reasons(plan, cell))
    plan = _planned(cell, around, options)
    return Entry(cell, plan, SEARCHED, "", _reasons(plan, cell))


def _planned(cell: Cell, around: Surroundings, options: PlanOptions) -> Plan:
    board = around.board(cell.loss)
    return plan_with(around.workload(cell), board, around.mode(cell).name, options, around.known(cell))


def _settles(entry: Entry, cell: Cell, around: Surroundings) -> bool:
    """Return whether an entry without a feasible plan shows that searching a weaker cell is in vain."""
    plan = entry.plan
    return (
        entry.made == SEARCHED
        and plan.verdict != "feasible"
        and bool(plan.tasks)
        and not any(violation.requirement == "mean power" for violation in plan.violations)
        and around.stronger(entry.cell, cell)
    )


def _refuted(plan: Plan, stronger: Entry, cell: Cell, around: Surroundings) -> Plan:
    """Return the plan of a dominated cell with its verdict: infeasible with a proof, here or in the stronger cell."""
    proof = stronger.plan.solver.proof
    if stronger.plan.verdict == "infeasible" and proof is not None and proof.method == BOUND:
        # lower bounds hold without contention, so that slower engines can only raise them
        proof = replace(proof, text=f"{proof.text}; shown for {stronger.cell}, which is at least as fast")
        return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=proof))
    graph = task_graph(around.workload(cell))
    workload = Workload.of(graph, around.known(cell).model(around.mode(cell)), plan.policy, limits=around.limits)
    # Networks may be cut, and costs of cuts were not computed here: bounds that count on whole stages prove nothing.
    found = by_bounds(workload, {}, tuple(name for name in graph.order if graph.stage(name).modelled))
    if found is not None:
        proof = Proof(found.method, found.text)
        return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=proof))
    return replace(plan, verdict="undecided")


def _stamped(plan: Plan) -> Plan:
    return replace(plan, tool={**plan.tool, "version": __version__})


def _reasons(plan: Plan, cell: Cell) -> tuple[str, ...]:
    """Return the unmet requirements of a plan, and the proof that no plan meets them, a line each."""
    if plan.verdict == "feasible":
        return ()
    lines = [] if cell.loss == NONE else [f"{cell.loss} is lost"]
    if plan.solver.proof is not None:
        lines.append(f"proved by {plan.solver.proof.method}: {plan.solver.proof.text}")
    for violation in plan.violations:
        if not plan.tasks:
            refusals = [lever for lever in violation.levers if lever.startswith("not on ")]
            lines.append(": ".join(part for part in (f"no {violation.requirement[3:]}", "; ".join(refusals)) if part))
            continue
        shown = formatter(violation.unit)
        lines.append(f"{violation.requirement}: {shown(violation.demand)}, allowed {shown(violation.bound)}")
    if not plan.violations:
        lines.append("no bound exists for some response time")
    return tuple(lines)
