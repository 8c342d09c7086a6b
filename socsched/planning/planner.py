"""Plan a pipeline on a platform: choose mode, engines, precisions and shares, and check every requirement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from socsched.cost.cost import Cost
from socsched.cost.model import WorkOf
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.planning.candidate import OBJECTIVES, Candidate, judge, objective_value, objectives, score
from socsched.planning.choices import deepened, may_be_deeper, settled, sliced
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.cost_cache import Known
from socsched.planning.cutting.pipelines import RequiredCuts, cut_unmappable
from socsched.planning.cutting.search import Cutter, cut_further, cutter_of
from socsched.planning.draft import Draft
from socsched.planning.feasibility.conflicts import Search, conflict
from socsched.planning.feasibility.energy_tradeoffs import refusals
from socsched.planning.feasibility.infeasible_plan import no_engine, unmappable_stages, unplaceable
from socsched.planning.feasibility.lower_bounds import least_latencies
from socsched.planning.feasibility.refutation import by_bounds, by_search, meet_requirements
from socsched.planning.feasibility.remedies import find_helpful_move
from socsched.planning.mapping.local_search import Solution, mend, restart, solve
from socsched.planning.mapping.program import SOLVERS, available, require
from socsched.planning.plan import BOUND, Conflict, Necessity, Plan, Violation
from socsched.planning.plan_writer import write_plan
from socsched.planning.workload import NO_LIMITS, NOTHING, Limits, Observed, Workload

if TYPE_CHECKING:
    from socsched.cost.profile import Profile

POLICIES = ("edf", "fp")
SEARCH = 0.7
"""Share of the remaining budget for each step: the search, its proof or repair, other modes."""
RESTARTING = 0.8
"""Share of a wider search's budget for stages as a whole, before networks are cut."""
PROVING = 0.9
"""The same share where a solver is to use up the budget."""
SHALLOW = 0.7
"""Share of the budget for queues of one frame, where deeper ones may be chosen."""
EXPLAINED = 2000
"""Evaluations for conflicts and levers, whatever the search took."""
PROOF = 6000
"""Evaluations for a proof without a budget."""
__all__ = [
    "OBJECTIVES",
    "Candidate",
    "draft_plan",
    "judge",
    "make_plan",
    "modes_of",
    "objective_value",
    "solve",
    "write_plan",
]


def make_plan(
    pipeline: Pipeline,
    platform: Platform,
    mode: str | None = None,
    objective: str = "latency",
    policy: str = "edf",
    *,
    clock: Clock = NO_CLOCK,
    explain: bool = True,
    **options: Any,
) -> Plan:
    """Return a complete plan with its verdict; arguments as in `draft_plan`, `explain` also adds the uncertainty."""
    options |= {"clock": clock, "explain": explain}
    draft = draft_plan(pipeline, platform, mode, objective, policy, **options)
    return draft.finished(clock) if explain else draft.plan


def draft_plan(
    pipeline: Pipeline,
    platform: Platform,
    mode: str | Sequence[str] | None = None,
    objective: str = "latency",
    policy: str = "edf",
    *,
    work: WorkOf,
    profile: Profile | None = None,
    clock: Clock = NO_CLOCK,
    budget: int = 400,
    solver: str = "heft",
    cuts: bool = True,
    observed: Observed = NOTHING,
    limits: Limits = NO_LIMITS,
    explain: bool = True,
    known: Known | None = None,
    otherwise: Callable[[Sequence[str]], Draft | None] | None = None,
) -> Draft:
    """Return a plan with its verdict, and what its uncertainty follows from; every mode is tried for None or "auto".

    `mode` may be several, in the order in which they are tried.
    `objective` is one of `OBJECTIVES`, or several in order of importance.  `work` gives the work of a stage in a
    precision; at most `budget` mappings are evaluated per mode, and as many again with networks cut between engines
    unless `cuts` is False, within the work of `clock` altogether: equal inputs give equal plans unless its guard
    rail is reached.  With the `solver` cpsat, or auto where OR-Tools is installed, the rest of the work goes into a
    proof, or a better mapping.  `observed`: times from a simulation of an earlier plan; `limits`: caps in addition to
    the mode's; `explain` adds conflicts and levers, which take a while; `known` keeps costs from one plan of the
    pipeline on the platform to the next; `otherwise` is called where no feasible plan was found and no bound rules one
    out, or the plan found is not proved at the high level of criticality, with the modes that may have one, that of the
    best mapping first, and a draft that it returns replaces this one.
    Where no plan is found with a frame waiting at every stage that states no queue, deeper queues are tried.

    The verdict is "infeasible" only with a proof (`solver.proof`), "undecided" if no mapping was found that meets
    every requirement.  With `cuts`, a network that no engine takes whole is planned in parts; a stage that no engine
    can run makes the plan infeasible, without tasks.  Raises UsageError for unknown names, MachineError for cpsat
    without OR-Tools.
    """
    goals = objectives(objective)
    if policy not in POLICIES:
        raise UsageError(f"policy {policy!r} cannot be analysed", f"one of {', '.join(POLICIES)}")
    if solver not in SOLVERS:
        raise UsageError(f"unknown solver {solver!r}", f"one of {', '.join(SOLVERS)}")
    proving = solver == "cpsat" or (solver == "auto" and available())
    if proving:
        require()
    known = Known(platform, work, profile) if known is None else known
    solutions: list[Solution] = []
    modes = modes_of(platform, mode)
    stated, deep = pipeline, deepened(pipeline)
    pipeline = sliced(stated if solver == "heft" else deep, platform)
    whole = clock
    clock = whole.part(SHALLOW) if solver == "heft" and deep is not stated else whole
    required = cut_unmappable(pipeline, [known.model(option) for option in modes]) if cuts else RequiredCuts(pipeline)
    pipeline = required.pipeline
    graph = task_graph(pipeline)
    usable = [option for option in modes if not unmappable_stages(graph, known.model(option))]
    excluded = all(no_engine(graph, known.model(option), cuts) for option in modes if option not in usable)
    for number, option in enumerate(usable):
        if solver == "restarts" and any(found.candidate.verdict == "feasible" for found in solutions):
            break  # a wider search ends with the first mode in which it finds a plan
        model = known.model(option)
        left = 1 if solver == "restarts" else len(usable) - number
        mine = clock.part((1.0 if solver == "restarts" else PROVING if proving else SEARCH) / left)
        workload = Workload.of(graph, model, policy, observed, limits, known.results)
        solution = solve(workload, goals, budget, mine.part(0.5) if cuts or proving else mine)
        cutter = cutter_of(pipeline, workload, goals, known.divided(option), mine, known.apart) if cuts else None
        if solver == "restarts":
            solution = restart(solution, workload, goals, mine.part(RESTARTING) if cutter and cutter.stages else mine)
        if solver == "restarts" and solution.candidate.verdict == "feasible":
            solutions.append(_noted(solution, required))
            continue
        if cutter is not None:
            solution = cut_further(solution, cutter, budget, mine.part(0.5) if proving else mine)
        if proving and goals[0] == "latency":
            from socsched.planning.mapping.exact import prove

            solution = prove(solution, workload, goals, mine if mine.limited else mine.next(PROOF), cutter)
        if solution.candidate.verdict != "feasible" and solver != "restarts":
            solution = _settled(solution, workload, cutter, tuple(required.floors), goals, budget, clock)
        solutions.append(_noted(solution, required))
    if not solutions:
        option = next((m for m in modes if m.default), modes[0])
        necessities = no_engine(graph, known.model(option), cuts) if excluded else ()
        return Draft(unplaceable(graph, known.model(option), policy, goals, necessities), None, goals[0])
    if not excluded:
        solutions = [replace(solution, proof=None) for solution in solutions]
    best = min(solutions, key=_order)
    open_modes = [_load(found).model.mode.name for found in sorted(solutions, key=_order) if found.proof is None]
    if best.candidate.verdict != "feasible" and open_modes:
        if deep is not stated and solver == "heft" and any(map(_shallow, solutions)):
            return draft_plan(
                deep,
                platform,
                open_modes,
                objective,
                policy,
                work=work,
                profile=profile,
                clock=whole,
                budget=budget,
                cuts=cuts,
                observed=observed,
                limits=limits,
                explain=explain,
                known=known,
                otherwise=otherwise,
            )
        found = otherwise(open_modes) if otherwise is not None else None
        if found is not None:
            return found
    best, solutions = _chosen(best, solutions, goals)
    mixed = best.candidate.verdict == "feasible" and any(stage.high is not None for stage in pipeline.stages)
    # Searches know planned times alone; what they find may not be proved at the high level of criticality.
    if otherwise is not None and mixed and write_plan(best, solutions, goals, None, pipeline).verdict != "feasible":
        found = otherwise(open_modes)
        if found is not None:
            return found
    if "energy" in goals and (explain or best.candidate.verdict == "feasible"):
        best = replace(best, notes=_joined(best.notes, refusals(best.candidate)))
    if not explain:
        return Draft(write_plan(best, solutions, goals, None, pipeline), best, goals[0])
    clock = clock.next(EXPLAINED) if clock.limited else clock
    best, conflicts = _conflicts(best, goals, clock.part(SEARCH))
    if best.candidate.verdict == "feasible":
        solutions = [best if s.candidate.deployment.workload is _load(best) else s for s in solutions]
        best, solutions = _chosen(best, solutions, goals)
    alternatives = _alternatives(best, solutions, graph, known, policy, goals, clock.part(SEARCH))
    plan = write_plan(best, solutions, goals, alternatives, pipeline, clock)
    return Draft(replace(plan, conflicts=conflicts), best, goals[0])


def _shallow(solution: Solution) -> bool:
    """Return whether deeper queues may lead to a plan."""
    return solution.proof is None and any(
        may_be_deeper(_load(solution), violation) for violation in solution.candidate.violations
    )


def _chosen(best: Solution, solutions: list[Solution], goals: Sequence[str]) -> tuple[Solution, list[Solution]]:
    """Return the best solution with its slices and queues settled, and all solutions with it."""
    found = settled(best, goals)
    return found, [found if solution is best else solution for solution in solutions]


def _order(solution: Solution) -> tuple[float, ...]:
    return (float(solution.candidate.verdict != "feasible"), *solution.score)


def _load(solution: Solution) -> Workload:
    return solution.candidate.deployment.workload


def _settled(
    solution: Solution,
    workload: Workload,
    cutter: Cutter | None,
    parts: tuple[str, ...],
    goals: Sequence[str],
    budget: int,
    clock: Clock,
) -> Solution:
    """Return a solution that meets every requirement if single moves reach one, else one with a proof if there is one.

    `workload` has all stages whole, except for the `parts` of networks that must be cut, but may be cut elsewhere; the
    `cutter` knows which stages may be cut, None if all are to stay whole.
    """
    clock = clock.part(SEARCH)
    divided, unknown = (cutter.stages, (*cutter.left, *parts)) if cutter else ({}, parts)
    if proof := by_bounds(workload, divided, unknown):
        return replace(solution, proof=proof)
    solution = mend(solution, goals, budget, clock)
    candidate = solution.candidate
    if candidate.violations:
        moved = find_helpful_move(judge, _load(solution), candidate.deployment.mapping, candidate.violations, clock)
        solution = solution if moved is None else _taken(solution, moved, goals)
    if solution.candidate.verdict == "feasible":
        return solution
    if not divided and not unknown:
        proof = by_search(workload, clock if clock.limited else clock.next(PROOF))
        solution = replace(solution, proof=proof)
    return solution if solution.proof else replace(solution, least=least_latencies(workload, divided, unknown))


def _noted(solution: Solution, required: RequiredCuts) -> Solution:
    """Return a solution with the bounds and notes of networks that must be cut."""
    if not required.floors:
        return solution
    floors, notes = {**solution.floors, **required.floors}, {**solution.notes, **required.notes}
    return replace(solution, floors=floors, notes=notes)


def _taken(solution: Solution, mapping: Mapping[str, Cost], goals: Sequence[str]) -> Solution:
    """Return a solution with another mapping if that meets every requirement, else the given one."""
    found = meet_requirements(_load(solution), mapping)
    return solution if found is None else replace(solution, candidate=found, score=score(found, goals), proof=None)


def _conflicts(best: Solution, goals: Sequence[str], clock: Clock) -> tuple[Solution, tuple[Conflict, ...]]:
    """Return the solution, replaced if this search meets every requirement, and the requirements that conflict."""
    candidate = best.candidate
    if candidate.verdict == "feasible":
        return best, ()
    if best.proof is not None and best.proof.method == BOUND:
        return best, tuple(Conflict((_unmet(one),), True, True, 0) for one in best.proof.necessities)
    search = Search(_load(best), judge, clock)
    found = conflict(_load(best), judge, candidate.violations, search=search)
    for violated, hit in search.met:
        if not violated and best.proof is None:
            best = _taken(best, hit.deployment.mapping, goals)
    return best, () if best.candidate.verdict == "feasible" else found


def _unmet(one: Necessity) -> Violation:
    """Return a necessity as an unmet requirement, of the least demand that there is."""
    return Violation(one.requirement, one.demand, one.bound, one.demand - one.bound, one.unit, one.terms, ())


def modes_of(platform: Platform, name: str | Sequence[str] | None) -> tuple[PowerMode, ...]:
    """Return the power modes to plan for, all of them for None or "auto"; UsageError for an unknown name."""
    if name is None or name == "auto":
        return platform.modes
    if not isinstance(name, str):
        return tuple(mode for one in name for mode in modes_of(platform, one))
    try:
        return (platform.mode(name),)
    except KeyError:
        modes = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"platform {platform.name!r} has no mode {name!r}", f"its modes: {modes}") from None


def _alternatives(
    best: Solution,
    solutions: Sequence[Solution],
    graph: TaskGraph,
    known: Known,
    policy: str,
    goals: Sequence[str],
    clock: Clock,
) -> list[Solution]:
    """Return quick solutions in the other modes, as levers for a plan that is not feasible."""
    if best.candidate.verdict == "feasible":
        return []
    here = best.candidate.deployment.workload.model.mode.name
    tried = [s for s in solutions if s is not best]
    names = {here, *(s.candidate.deployment.workload.model.mode.name for s in tried)}
    for mode in known.platform.modes:
        if mode.name not in names and not clock.over():
            model = known.model(mode)
            if not unmappable_stages(graph, model):
                tried.append(solve(Workload.of(graph, model, policy), goals, 24, clock.part(0.5)))
    return tried


def _joined(notes: Mapping[str, str], more: Iterable[tuple[str, str]]) -> dict[str, str]:
    result = dict(notes)
    for name, text in more:
        result[name] = f"{result[name]}; {text}" if name in result else text
    return result
