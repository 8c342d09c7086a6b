"""Plans for all cells of a book: searched where needed, shared where one cell's placement holds in another.

Cells are visited from the strongest to the weakest.  A placement that is in the book already and meets every
requirement in the next cell is taken over, the best of them by the objective.  Otherwise the cell is searched, unless
the search of a stronger cell (the same engines or more, none slower) found nothing.  Such a cell is infeasible if lower
bounds prove it, else undecided: a search of its own might still find a plan.  Processes search further cells ahead, of
which this order then uses those that it comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from socsched.api.planning import PlanOptions
from socsched.api.stamp import stamped
from socsched.graph.taskgraph import task_graph
from socsched.modebook.cells import NONE, Axes, Cell, Surroundings
from socsched.modebook.searches import Searches, search
from socsched.modebook.sharing import Placed, placement, plan_of, rank, transplant
from socsched.planning.candidate import Candidate
from socsched.planning.necessity import BOUND, Proof
from socsched.planning.plan import Plan
from socsched.planning.refutation import by_bounds, told
from socsched.planning.unplaceable import unmappable_stages
from socsched.planning.workload import Workload
from socsched.progress import tell
from socsched.reporting.view_model import formatter

QUICK = 500
"""Budget (evaluations) of the search for a plan that only shows what is unmet."""
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


def build_entries(axes: Axes, options: PlanOptions, around: Surroundings, workers: int = 1) -> list[Entry]:
    """Return the plans of all cells, in the order of `Axes.cells`; `options` apply to every search, by `workers`."""
    cells = list(axes.cells())
    order = sorted(cells, key=lambda one: (one.condition, -around.strength(one)))
    with Searches(around, options, min(workers, len(cells))) as searches:
        builder = _Builder(around, options, searches)
        for number, cell in enumerate(order):
            tell("planning cells", number, len(cells), "cells")
            builder.add(cell, order[number + 1 :])
    return [builder.made[cell] for cell in cells]


Placing = tuple[frozenset[Placed], str]
"""A placement and its policy."""


@dataclass(slots=True)
class _Builder:
    """Entries made so far, and the plans among them whose placements differ."""

    around: Surroundings
    options: PlanOptions
    searches: Searches
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
                judged[key] = transplant(donor.plan, cell, self.around)
        found = [(one, self._donors[key]) for key in self._donors if (one := judged[key]) is not None]
        return min(found, default=None, key=lambda one: rank(one[0], self.options.objective))

    def _lacking(self, cell: Cell) -> bool:
        graph = task_graph(self.around.workload(cell))
        return bool(unmappable_stages(graph, self.around.known(cell).model(self.around.mode(cell))))

    def _stronger(self, cell: Cell) -> Entry | None:
        """Return the entry of a stronger cell whose search found nothing, if there is one."""
        return next((entry for entry in self.made.values() if _settles(entry, cell, self.around)), None)

    def _likely(self, cell: Cell, following: Sequence[Cell]) -> Iterator[Cell]:
        """Yield cells to search, whatever the searches of `cell` and of those yielded find, as far as can be seen."""
        pending = [cell]
        for other in following:
            if any(self.around.stronger(one, other) for one in pending) or self._lacking(other):
                continue
            nearest = self._nearest(other)
            if (nearest is None or nearest[0].verdict != "feasible") and self._stronger(other) is None:
                pending.append(other)
                yield other

    def _entry(self, cell: Cell, following: Sequence[Cell]) -> Entry:
        around, options, best = self.around, self.options, self._nearest(cell)
        if best is not None and best[0].verdict == "feasible":
            return Entry(cell, self._taken(best, cell), SHARED, str(best[1].cell), ())
        lacking, stronger = self._lacking(cell), self._stronger(cell)
        if stronger is not None and not lacking:
            if best is None:  # no placement of the book runs here: the nearest one of a quick search
                quick = replace(options, solver="heft", refine=False, cuts=False, explain=False, evaluations=QUICK)
                plan = search(cell, around, quick)
            else:
                plan = self._taken(best, cell)
            plan = _refuted(plan, stronger, cell, around)
            return Entry(cell, plan, DOMINATED, str(stronger.cell), _reasons(plan, cell))
        plan = search(cell, around, options) if lacking else self.searches.plan(cell, self._likely(cell, following))
        return Entry(cell, plan, SEARCHED, "", _reasons(plan, cell))

    def _taken(self, best: tuple[Candidate, Entry], cell: Cell) -> Plan:
        around = self.around
        plan = plan_of(best[0], cell, around, self.options.objective, str(best[1].cell))
        return stamped(plan, around.workload(cell), around.board(cell.loss), around.mode(cell).name, self.options)


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
        # lower bounds hold without contention, so that slower engines can only raise them; they may draw less power
        kept = tuple(one for one in proof.necessities if one.theorem != "power")
        if kept:
            text = f"{told(kept[0])}; shown for {stronger.cell}, which is at least as fast"
            proof = Proof(BOUND, text, kept)
            return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=proof))
    graph = task_graph(around.workload(cell))
    workload = Workload.of(graph, around.known(cell).model(around.mode(cell)), plan.policy, limits=around.limits)
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
