"""Plans for all cells of a book: searched where needed, shared where one cell's placement holds in another.

Cells are visited from the strongest to the weakest.  A placement that is in the book already and meets every
requirement in the next cell is taken over, the best of them by the objective.  Otherwise the cell is searched, unless
the search of a stronger cell (the same engines or more, none slower) found nothing.  Such a cell is infeasible if lower
bounds prove it, else undecided: a search of its own might still find a plan.  Processes search further cells ahead, of
which this order then uses those that it comes to; plans that are not asked for in the end are given up, so that the
book does not depend on what was searched ahead, unless a time limit cuts a search off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

from socsched.cost.cost import Cost
from socsched.graph.taskgraph import task_graph
from socsched.modebook.cells import NONE, Axes, Cell, CellContext
from socsched.models.parts import part_of
from socsched.planning.candidate import Candidate, judge, score
from socsched.planning.cutting.pipelines import as_planned
from socsched.planning.feasibility.infeasible_plan import unmappable_stages
from socsched.planning.feasibility.refutation import by_bounds, told
from socsched.planning.mapping.local_search import Improved, Solution
from socsched.planning.plan import BOUND, Plan, Proof, SearchReport
from socsched.planning.plan_writer import write_plan
from socsched.planning.search import objectives
from socsched.planning.workload import Unconnectable, Workload
from socsched.pool import Pool
from socsched.progress import tell
from socsched.reporting.view_model import formatter

SEARCHED, SHARED, DOMINATED = "searched", "shared", "dominated"


class CellPlanner(Protocol):
    """How the plan of a cell is searched for, and what a finished one says of its making; sent to other processes."""

    @property
    def objective(self) -> str: ...

    def search(self, cell: Cell, context: CellContext, quick: bool = False) -> Plan:
        """Return the plan of a cell by a search of its own; `quick`: one that only shows what is unmet."""

    def stamped(self, plan: Plan, cell: Cell, context: CellContext) -> Plan:
        """Return a plan with its inputs and options."""


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


def build_entries(axes: Axes, planner: CellPlanner, context: CellContext, workers: int = 1) -> list[Entry]:
    """Return the plans of all cells, in the order of `Axes.cells`; `workers` processes search."""
    cells = list(axes.cells())
    order = sorted(cells, key=lambda one: (one.condition, -context.strength(one)))
    with _Searches(context, planner, min(workers, len(cells))) as searches:
        builder = _Builder(context, planner, searches)
        for number, cell in enumerate(order):
            tell("planning cells", number, len(cells), "cells")
            builder.add(cell, order[number + 1 :])
    return [builder.made[cell] for cell in cells]


Placed = tuple[str, str, str, str, int]
"""A stage, its cut if it is a part of a network, its engine, data type and number of lanes."""
Placing = tuple[frozenset[Placed], str]
"""A placement and its policy."""


@dataclass(slots=True)
class _Builder:
    """Entries made so far, and the plans among them whose placements differ."""

    context: CellContext
    planner: CellPlanner
    searches: _Searches
    made: dict[Cell, Entry] = field(default_factory=dict)
    _donors: dict[Placing, Entry] = field(default_factory=dict)
    _judged: dict[Cell, dict[Placing, Candidate | None]] = field(default_factory=dict)

    def add(self, cell: Cell, following: Sequence[Cell]) -> None:
        """Make the entry of a cell, the next in order before the `following` ones."""
        entry = self._entry(cell, following)
        self.made[cell] = entry
        self._judged.pop(cell, None)
        if entry.plan.tasks:
            self._donors.setdefault((placement(entry.plan), entry.plan.policy), entry)

    def _nearest(self, cell: Cell) -> tuple[Candidate, Entry] | None:
        """Return the placement of the book that is best in a cell, None if none runs there."""
        judged = self._judged.setdefault(cell, {})
        for key, donor in self._donors.items():
            if key not in judged:
                judged[key] = transplant(donor.plan, cell, self.context)
        able = [(one, self._donors[key]) for key in self._donors if (one := judged[key]) is not None]
        return min(able, default=None, key=lambda one: rank(one[0], self.planner.objective))

    def _lacking(self, cell: Cell) -> bool:
        graph = task_graph(self.context.workload(cell))
        return bool(unmappable_stages(graph, self.context.known(cell).model(self.context.mode(cell))))

    def _stronger(self, cell: Cell) -> Entry | None:
        """Return the entry of a stronger cell whose search found nothing, if there is one."""
        return next((entry for entry in self.made.values() if _settles(entry, cell, self.context)), None)

    def _likely(self, cell: Cell, following: Sequence[Cell]) -> Iterator[Cell]:
        """Yield cells to search, whatever the searches of `cell` and of those yielded find, as far as can be seen."""
        pending = [cell]
        for other in following:
            if any(self.context.stronger(one, other) for one in pending) or self._lacking(other):
                continue
            nearest = self._nearest(other)
            if (nearest is None or nearest[0].verdict != "feasible") and self._stronger(other) is None:
                pending.append(other)
                yield other

    def _entry(self, cell: Cell, following: Sequence[Cell]) -> Entry:
        context, best = self.context, self._nearest(cell)
        if best is not None and best[0].verdict == "feasible":
            return Entry(cell, self._taken(best, cell), SHARED, str(best[1].cell), ())
        lacking, stronger = self._lacking(cell), self._stronger(cell)
        if stronger is not None and not lacking:
            if best is None:  # no placement of the book runs here: the nearest one of a quick search
                plan = self.planner.search(cell, context, quick=True)
            else:
                plan = self._taken(best, cell)
            plan = _refuted(plan, stronger, cell, context)
            return Entry(cell, plan, DOMINATED, str(stronger.cell), _reasons(plan, cell))
        plan = (
            self.planner.search(cell, context) if lacking else self.searches.plan(cell, self._likely(cell, following))
        )
        return Entry(cell, plan, SEARCHED, "", _reasons(plan, cell))

    def _taken(self, best: tuple[Candidate, Entry], cell: Cell) -> Plan:
        context = self.context
        plan = plan_of(best[0], cell, context, self.planner.objective, str(best[1].cell))
        return self.planner.stamped(plan, cell, context)


def _settles(entry: Entry, cell: Cell, context: CellContext) -> bool:
    """Return whether an entry without a feasible plan shows that searching a weaker cell is in vain."""
    plan = entry.plan
    return (
        entry.made == SEARCHED
        and plan.verdict != "feasible"
        and bool(plan.tasks)
        and not any(violation.requirement == "mean power" for violation in plan.violations)
        and context.stronger(entry.cell, cell)
    )


def _refuted(plan: Plan, stronger: Entry, cell: Cell, context: CellContext) -> Plan:
    """Return the plan of a dominated cell with its verdict: infeasible with a proof, here or in the stronger cell."""
    proof = stronger.plan.solver.proof
    if stronger.plan.verdict == "infeasible" and proof is not None and proof.method == BOUND:
        # lower bounds hold without contention, so that slower engines can only raise them; they may draw less power
        kept = tuple(one for one in proof.necessities if one.theorem != "power")
        if kept:
            text = f"{told(kept[0])}; shown for {stronger.cell}, which is at least as fast"
            proof = Proof(BOUND, text, kept)
            return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=proof))
    graph = task_graph(context.workload(cell))
    workload = Workload.of(graph, context.known(cell).model(context.mode(cell)), plan.policy, limits=context.limits)
    # Networks may be cut, and costs of cuts were not computed here: bounds that count on whole stages prove nothing.
    found = by_bounds(workload, {}, tuple(name for name in graph.order if graph.stage(name).modelled))
    if found is not None:
        return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=found))
    return replace(plan, verdict="undecided")


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


_WAIT = 0.2
"""Seconds to wait for a plan before further cells are searched ahead."""


@dataclass(slots=True)
class _Searches:
    """_Searches by `workers` processes, a context; by this process if it is one."""

    context: CellContext
    planner: CellPlanner
    workers: int = 1
    _pool: Pool | None = None
    _asked: set[Cell] = field(default_factory=set)
    _plans: dict[Cell, Plan] = field(default_factory=dict)

    def __enter__(self) -> _Searches:
        if self.workers > 1:
            fresh = replace(self.context, _boards={}, _pipelines={}, _known={})  # costs are not worth a transfer
            self._pool = Pool(_setup_search, (fresh, self.planner), self.workers)
            self._pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, at)

    def plan(self, cell: Cell, likely: Iterator[Cell]) -> Plan:
        """Return the plan of a cell; processes without work meanwhile search cells `likely` to be asked for."""
        if self._pool is None:
            return self.planner.search(cell, self.context)
        self._submit(self._pool, cell)
        left = True
        while cell not in self._plans:
            if left and self._pool.outstanding < self.workers:
                following = next(likely, None)
                left = following is not None
                if following is not None:
                    self._submit(self._pool, following)
                continue
            self._plans.update(self._pool.finished(_WAIT))
        return self._plans.pop(cell)

    def _submit(self, pool: Pool, cell: Cell) -> None:
        if cell not in self._asked:
            self._asked.add(cell)
            pool.submit(cell)


def _setup_search(context: CellContext, planner: CellPlanner) -> Callable[[Cell], Plan]:
    return lambda cell: planner.search(cell, context)


def placement(plan: Plan) -> frozenset[Placed]:
    """Return where a plan runs its stages; plans with equal placements run the same compiled artefacts."""
    return frozenset(
        (task.name, part.cut if (part := part_of(task.params)) else "", task.engine, task.precision, len(task.lanes))
        for task in plan.tasks
        if task.kind == "stage"
    )


def transplant(donor: Plan, cell: Cell, context: CellContext) -> Candidate | None:
    """Return a plan's placement judged in another cell, None where an engine lacks or refuses it."""
    board, mode = context.board(cell.loss), context.mode(cell)
    engines = {engine.id: engine for engine in board.engines}
    graph = task_graph(as_planned(context.workload(cell), donor))
    model = context.known(cell).model(mode)
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
        return judge(Workload.of(graph, model, donor.policy, limits=context.limits), mapping)
    except Unconnectable:
        return None


def rank(candidate: Candidate, objective: str) -> tuple[float, ...]:
    """Return the order of candidates: feasible ones first, then by unmet requirements and objectives."""
    return (float(candidate.verdict != "feasible"), *score(candidate, objectives(objective)))


def plan_of(candidate: Candidate, cell: Cell, context: CellContext, objective: str, of: str) -> Plan:
    """Return a judged placement as the plan of its cell; `of`: the cell that it was found for."""
    goals = objectives(objective)
    value = score(candidate, goals)
    solution = Solution(candidate, Improved(dict(candidate.deployment.mapping), value, 1, True), value)
    plan = write_plan(solution, [solution], goals, None, context.workload(cell))
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
