"""The search for a plan: a request, the strategies that it is tried with in order, and the loop through simulation.

A strategy is a function of the request and of what was found before; it returns what is found then: the best solution
of every mode, proofs where there are any, the plan.  `STRATEGIES` lists them; `run_pass` goes through the list once,
and `search` makes passes with ever larger budgets.

The planner may not import the simulator, which works on plans; so the request brings a function that simulates one.
A separate estimator of interference would diverge from the simulator; correcting the expected times without searching
again would leave the choice to the uncorrected ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from socsched.cost.cost import Cost
from socsched.cost.model import CostModel, WorkOf
from socsched.cost.profile import Profile
from socsched.cost.shares import Neighbour
from socsched.deadline import OutOfTime, check, kept, lifted, since_command, within
from socsched.descriptor.limits import Objective
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.models.parts import PART
from socsched.planning.assess import expected_latency
from socsched.planning.candidate import score
from socsched.planning.choices import deepened, may_be_deeper, settled, sliced
from socsched.planning.clock import FACTOR, FEW, LEAST, NO_CLOCK, Clock
from socsched.planning.cutting.divisible import Apart, Sliced
from socsched.planning.cutting.pipelines import RequiredCuts, cut_unmappable
from socsched.planning.cutting.search import Cutter, Divided, cut_further, cutter_of
from socsched.planning.feasibility.conflicts import ConflictSearch, conflict
from socsched.planning.feasibility.infeasible_plan import no_engine, unmappable_stages, unplaceable, without_tasks
from socsched.planning.feasibility.lower_bounds import SAMPLED, beyond_proof, least_latencies
from socsched.planning.feasibility.refutation import by_bounds, by_search, meet_requirements
from socsched.planning.feasibility.remedies import find_helpful_move, refusals
from socsched.planning.mapping import neighbourhoods
from socsched.planning.mapping.exact import prove
from socsched.planning.mapping.local_search import Solution, given, mend, restart, solve
from socsched.planning.mapping.program import SOLVERS, available, require
from socsched.planning.plan import BOUND, Conflict, Plan, SearchReport, gap
from socsched.planning.plan_writer import SPENT, cut_off, write_plan
from socsched.planning.uncertainty import uncertainty
from socsched.planning.workload import NO_LIMITS, NOTHING, Limits, Observed, Results, Workload, loads_of, place_of
from socsched.progress import notice
from socsched.schedulability.chains import Sources
from socsched.schedulability.high_level import is_mixed
from socsched.schedulability.plan_analysis import without_contradictions
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


# Data kept from one plan of a pipeline on a platform to the next: costs by mode, networks in units.


@dataclass(slots=True)
class CostCache:
    """Costs, and networks in units, of one pipeline on one platform; computed once for each mode.

    `undivided`: the costs of the platform whose engines this one divides, `others`: what runs beside a stage there
    (`planning.shares`).  `apart`: stages as networks in units, without costs; `adjust`: changes every cost
    (`CostModel`); `results`: analyses of mappings.
    """

    platform: Platform
    work: WorkOf
    profile: Profile | None = None
    _models: dict[str, CostModel] = field(default_factory=dict)
    _divided: dict[str, Divided] = field(default_factory=dict)
    apart: dict[str, Apart | None] = field(default_factory=dict)
    adjust: Callable[[Cost], Cost] | None = None
    results: Results = field(default_factory=Results)
    undivided: CostCache | None = None
    others: Mapping[str, Sequence[Neighbour]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let parts of a network share the analysis of the whole."""
        self.work = Sliced(self.work)

    def model(self, mode: PowerMode) -> CostModel:
        """Return the cost model of a mode."""
        if mode.name not in self._models:
            other = next(iter(self._models.values()), None)
            other = other or CostModel(self.platform, mode, self.work, self.profile, adjust=self.adjust)
            self._models[mode.name] = other.in_mode(mode)
            if self.undivided is not None:
                whole, model = self.undivided, self._models[mode.name]
                model.undivided, model.others = whole.model(whole.platform.mode(mode.name)), self.others
        return self._models[mode.name]

    def divided(self, mode: PowerMode) -> Divided:
        """Return the stages of a mode in units, as far as they have been divided."""
        return self._divided.setdefault(mode.name, {})


OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
POLICIES = ("edf", "fp")
AUTO = "auto"
"""As a policy: EDF, and fixed priorities if no plan is found."""
PORTFOLIO = "portfolio"
"""As a solver: all of them in order."""
_NAMES = {"heft": "list search", "restarts": "restarts", "cpsat": "CP-SAT", "auto": "CP-SAT if installed"}

# Shares of a budget.  Each step takes one of what the steps before have left.
BEFORE_OTHERS = 1 / 3
"""Of all, for a list search that others may follow."""
FIRST = 0.7
"""For the first plan when further plans follow from its simulation."""
SHALLOW = 0.7
"""For queues of one frame, where deeper ones may be chosen."""
SEARCH = 0.7
"""For each step of a search: the search itself, its proof or repair, other modes."""
RESTARTING = 0.8
"""Of a wider search, for stages as a whole, before networks are cut."""
PROVING = 0.9
"""The same where a solver is to use up the budget."""
STARTING = 0.15
"""For moves of single stages, where neighbourhoods of many are searched next, which take `NEAR` of the rest."""
NEAR = 0.8
MENDING = 0.5
"""For moves of many stages by thorough analyses, where a plan is near; single moves and proofs follow."""
_LAST = 0.85
"""For all further searches; the rest explains a plan that is not feasible."""
# Restarts come before CP-SAT, which excludes mappings one by one: WATERS 2019 with 15 ms takes the former four local
# searches, the latter over a hundred proposals.  In parallel, the first to finish would depend on the machine.
_WEIGHTS = {"restarts": 2, "cpsat": 1}
"""Weights of further searches among which their share is divided: of the plans found late, restarts find most."""
EXPLAINED = 2000
"""Evaluations for conflicts and levers, and as many for uncertainties, of at most `FEW` stages."""
PROOF = 6000
"""Evaluations for a proof without a budget."""

MOVES = 8
"""Mappings that a search may try for each stage of a pipeline of more than `FEW`."""
MORE = 4
"""Times as much work as stated that searches of a pipeline of more than `FEW` stages may take, in proportion."""
SHORT_S, LEAST_S = 5, 4.5
"""A limit (s) below which a search may take `LEAST_S` to its first plan: less is mostly no plan at all."""
ENDING, WRITING, SHOWING = 0.94, 0.8e-3, 4e-3
"""Of a time limit, the share after which what goes on ends where it is, and what a plan takes (s) a stage to be
written, and to be shown by a command too."""
SEARCHING = 0.9
"""Of a time limit, the share after which nothing new is tried: what goes on then ends within the rest."""
ROUNDS, MANY_ROUNDS, STALLED = 8, 24, 12
"""Maximum number of simulated plans, of those of more than `FEW` stages, and of these in a row that are no better."""
STEP = 1 / 8
"""Share of the work, and of the stages, that a search of many stages may take and move before the next simulation."""
JOBS = 20_000
"""Maximum number of simulated jobs, unless a single hyperperiod has more; see `steady_ns`."""
MOST = 2_000_000
"""A plan with more jobs than this in two of its longest periods is not simulated."""
_PERIODS = 20
_SECOND = 10**9
VALUES: Mapping[str, Callable[[Iterable[int]], int]] = {"latency": sum, "longest": max}
"""The value of an objective that a simulation finds, of the latencies of chains."""


@dataclass(frozen=True, slots=True)
class Means:
    """Means over a simulation: response times of chains, and of jobs from their activation (ns)."""

    chains: Mapping[str, int]
    jobs: Mapping[str, int]


Simulate = Callable[[Plan, int], Means]
"""The simulation of a plan for so long (ns)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A way to search: a solver under a policy."""

    policy: str
    solver: str

    @property
    def name(self) -> str:
        """Return the name that reports state."""
        return f"{_NAMES.get(self.solver, self.solver)} under {self.policy}"


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search for, and within which limits; nothing in it changes while the search goes on.

    `modes`: those to try, in this order.  `goals`: objectives, the most important first.  `attempts`: the way to
    search, and those that follow where it finds no plan and no lower bound rules one out, within the work of `whole`.
    `limits`: caps in addition to the mode's; `cuts`: networks may be split between engines; `explain`: conflicts,
    levers and uncertainties are wanted.  At most `budget` mappings are evaluated per mode, and as many again with
    networks cut, within the work of `clock` altogether, that of `rounds` together with what follows from simulations:
    equal inputs give equal plans unless the guard rail of clocks, after `time_limit` (s), is reached.  `evaluations`:
    the budget of `search`, None for no limit but that of each step.
    `observed`: times from a simulation of an earlier plan; `simulate`: how to simulate one, None for plans by estimate
    alone; `start`: the mapping of that plan, or of a search before, from which the search of many stages goes on.
    """

    pipeline: Pipeline
    costs: CostCache
    modes: tuple[PowerMode, ...]
    goals: tuple[Objective, ...]
    attempts: tuple[Attempt, ...]
    limits: Limits = NO_LIMITS
    cuts: bool = True
    explain: bool = True
    budget: int = 400
    clock: Clock = NO_CLOCK
    rounds: Clock = NO_CLOCK
    whole: Clock = NO_CLOCK
    evaluations: int | None = None
    time_limit: float | None = None
    observed: Observed = NOTHING
    simulate: Simulate | None = None
    start: Mapping[str, Cost] = field(default_factory=dict)

    @staticmethod
    def of(
        pipeline: Pipeline,
        platform: Platform,
        mode: str | None = None,
        objective: str = "latency",
        policy: str = "edf",
        solver: str = "heft",
        **options: Any,
    ) -> SearchRequest:
        """Return the request for a plan in a mode, in any for None or "auto"; UsageError for unknown names.

        `options`: fields of the class; instead of `costs`, `work` gives the work of a stage in a precision, `profile`
        measured costs.  MachineError for cpsat without OR-Tools.
        """
        work, profile = options.pop("work", None), options.pop("profile", None)
        goals, policies = objectives(objective), POLICIES if policy == AUTO else (policy,)
        if policies[0] not in POLICIES:
            raise UsageError(f"policy {policy!r} cannot be analysed", f"one of {', '.join(POLICIES)}")
        if solver not in (PORTFOLIO, *SOLVERS):
            raise UsageError(f"unknown solver {solver!r}", f"one of {', '.join(SOLVERS)}")
        if solver == "cpsat":
            require()
        attempts = tuple(Attempt(one, solver) for one in policies)
        if solver == PORTFOLIO:
            # CP-SAT minimises no objective but latency, and ends by its budget alone.  Restarts begin with a list
            # search, so that only the first policy needs one of its own.
            exact = goals[0] == "latency" and available() and options.get("evaluations") is not None
            solvers = ("restarts", "cpsat") if exact else ("restarts",)
            further = (Attempt(one, solver) for solver in solvers for one in policies)
            attempts = Attempt(policies[0], "heft"), *further
        costs = options.pop("costs", None) or CostCache(platform, work, profile)
        return SearchRequest(pipeline, costs, modes_of(platform, mode, costs.profile), goals, attempts, **options)

    @property
    def policy(self) -> str:
        """Return the policy to plan for."""
        return self.attempts[0].policy

    @property
    def solver(self) -> str:
        """Return the solver to search with."""
        return self.attempts[0].solver

    @property
    def proving(self) -> bool:
        """Return whether a solver is to use up the work in a proof, or for a better mapping."""
        return self.solver == "cpsat" or (self.solver == "auto" and available())


def objectives(text: str) -> tuple[Objective, ...]:
    """Return the objectives in a list such as "energy,latency", most important first; UsageError for a bad list."""
    names = tuple(name.strip() for name in text.split(","))
    known = {str(goal): goal for goal in OBJECTIVES}
    for name in names:
        if name not in known:
            raise UsageError(
                f"unknown objective {name!r}", f"one of {', '.join(OBJECTIVES)}, or several: energy,latency"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"objectives {text!r}: one appears twice", "a second objective breaks ties in the first")
    return tuple(known[name] for name in names)


def modes_of(platform: Platform, name: str | None, profile: Profile | None = None) -> tuple[PowerMode, ...]:
    """Return the power modes to plan for, all of them for "auto"; UsageError for an unknown name.

    For None those that a profile measured, since times of others are not comparable with its own; all without one.
    """
    if name is None and profile is not None and profile.platform == platform.name:
        known = {cost.mode.lower() for cost in profile.costs if cost.kind == "measured"}
        measured = tuple(m for m in platform.modes if not known.isdisjoint(n.lower() for n in (m.name, *m.aliases)))
        if 0 < len(measured) < len(platform.modes):
            names = ", ".join(mode.name for mode in measured)
            notice("modes", f"the profile was measured in {names}: no other mode is tried (-m auto tries them all)")
            return measured
    if name is None or name == "auto":
        return platform.modes
    try:
        return (platform.mode(name),)
    except KeyError:
        modes = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"platform {platform.name!r} has no mode {name!r}", f"its modes: {modes}") from None


def make_plan(
    pipeline: Pipeline,
    platform: Platform,
    mode: str | None = None,
    objective: str = "latency",
    policy: str = "edf",
    **options: Any,
) -> Plan:
    """Return the plan of one pass through the strategies; arguments as of `SearchRequest.of`.

    The verdict is "infeasible" only with a proof (`solver.proof`), "undecided" if no mapping was found that meets
    every requirement.  With `cuts`, a network that no engine takes whole is planned in parts; a stage that no engine
    can run makes the plan infeasible, without tasks.
    """
    request = SearchRequest.of(pipeline, platform, mode, objective, policy, **options)
    found = run_pass(request)
    return found.finished(request.clock) if request.explain else found.written


# -- the outcome of strategies


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found: a solution for every mode, and the best of them, for a pipeline as it was searched.

    `tried`: the names of the searches so far; `plan`: what was found as a plan, after which no other search is tried.
    There is no solution where some stage has no engine: the plan has no tasks then.
    """

    pipeline: Pipeline
    solutions: tuple[Solution, ...] = ()
    best: Solution | None = None
    tried: tuple[str, ...] = ()
    plan: Plan | None = None

    @property
    def feasible(self) -> bool:
        """Return whether the best solution meets every requirement."""
        return self.best is not None and self.best.candidate.verdict == "feasible"

    @property
    def written(self) -> Plan:
        """Return the plan, which a pass through the strategies has written."""
        assert self.plan is not None
        return self.plan

    @property
    def mapping(self) -> Mapping[str, Cost]:
        """Return the best mapping, empty without a solution."""
        return self.best.candidate.deployment.mapping if self.best else {}

    def finished(self, clock: Clock = NO_CLOCK) -> Plan:
        """Return the plan with its uncertainty, as far as it is known when the `clock` runs out."""
        check()
        plan = self.written
        if self.best is None:
            return plan
        doubts = uncertainty(plan, _load(self.best), self.mapping, plan.solver.objective[0], clock)
        return replace(plan, uncertainty=doubts)

    def open_modes(self) -> tuple[PowerMode, ...]:
        """Return the modes that no proof rules out, that of the best mapping first."""
        ordered = sorted(self.solutions, key=_order)
        return tuple(_load(solution).model.mode for solution in ordered if solution.open)

    def with_best(self, best: Solution) -> Found:
        """Return the same with the best solution replaced."""
        solutions = tuple(best if solution is self.best else solution for solution in self.solutions)
        return replace(self, best=best, solutions=solutions)


Strategy = Callable[[SearchRequest, Found], Found]


def _order(solution: Solution) -> tuple[float, ...]:
    return (float(solution.candidate.verdict != "feasible"), *solution.score)


def _load(solution: Solution) -> Workload:
    return solution.candidate.deployment.workload


# -- strategies


def every_mode(request: SearchRequest, found: Found) -> Found:
    """Search each mode by lists and single moves, cut networks, and try to prove what remains unmet."""
    costs, modes = request.costs, request.modes
    pipeline = sliced(found.pipeline, costs.platform)
    models = [costs.model(mode) for mode in modes]
    required = cut_unmappable(pipeline, models) if request.cuts else RequiredCuts(pipeline)
    graph = task_graph(required.pipeline)
    usable = [mode for mode, model in zip(modes, models, strict=True) if not unmappable_stages(graph, model)]
    excluded = all(no_engine(graph, costs.model(mode), request.cuts) for mode in modes if mode not in usable)
    restarting = request.solver == "restarts"
    share = 1.0 if restarting else PROVING if request.proving else SEARCH
    solutions: list[Solution] = []
    for number, mode in enumerate(usable):
        if restarting and any(solution.candidate.verdict == "feasible" for solution in solutions):
            break  # a wider search ends with the first mode in which it finds a plan
        clock = request.clock.part(share / (1 if restarting else len(usable) - number))
        try:
            solution = _in_mode(request, graph, mode, required, clock)
        except OutOfTime:
            if not solutions:
                raise
            break
        if required.floors:
            floors, notes = {**solution.floors, **required.floors}, {**solution.notes, **required.notes}
            solution = replace(solution, floors=floors, notes=notes)
        solutions.append(solution)
    if not solutions:
        model = costs.model(next((mode for mode in modes if mode.default), modes[0]))
        necessities = no_engine(graph, model, request.cuts) if excluded else ()
        plan = unplaceable(graph, model, request.policy, request.goals, necessities)
        return replace(found, pipeline=required.pipeline, plan=plan)
    if not excluded:
        solutions = [replace(solution, proof=None) for solution in solutions]
    return replace(found, pipeline=required.pipeline, solutions=tuple(solutions), best=min(solutions, key=_order))


def _in_mode(
    request: SearchRequest, graph: TaskGraph, mode: PowerMode, required: RequiredCuts, clock: Clock
) -> Solution:
    costs, goals, proving = request.costs, request.goals, request.proving
    workload = Workload.of(graph, costs.model(mode), request.policy, request.observed, request.limits, costs.results)
    many = neighbourhoods.suits(workload)
    start = clock.part(STARTING) if many else clock.part(0.5) if request.cuts or proving else clock
    if many and (known := _here(workload, request.start)):
        solution = given(workload, known, goals)
    else:
        listed = solution = solve(workload, goals, request.budget, start)
        if many and solution.candidate.verdict != "feasible":
            solution = kept(listed, lambda: neighbourhoods.levelled(listed, workload, goals, clock))
    simulated = request.observed is not NOTHING or request.simulate is None
    if many and (simulated or solution.candidate.verdict != "feasible"):  # estimates alone mislead many moves
        enough = 0.0 if request.solver == "restarts" else -1.0
        near = bool(request.start) and request.observed is not NOTHING
        share, most = (NEAR * STEP, round(len(graph.order) * STEP)) if near else (NEAR, len(graph.order))
        mine, first = clock.part(share), solution
        solution = kept(
            first, lambda: neighbourhoods.search(first, workload, goals, request.budget, mine, enough, most)
        )
    return kept(solution, lambda: _further(request, solution, workload, required, clock, many))


def _here(workload: Workload, start: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return a mapping of another search by the costs of this one, empty where a stage has no such place here."""
    options = workload.options()
    if start.keys() != options.keys():
        return {}
    places = {name: {place_of(cost): cost for cost in costs} for name, costs in options.items()}
    known = {name: places[name].get(place_of(cost)) for name, cost in start.items()}
    return {name: cost for name, cost in known.items() if cost} if all(known.values()) else {}


def _further(
    request: SearchRequest, solution: Solution, workload: Workload, required: RequiredCuts, clock: Clock, many: bool
) -> Solution:
    """Return a solution with networks cut, proved, or met by more searches, as the request asks for."""
    goals, proving, mode, costs = request.goals, request.proving, workload.model.mode, request.costs
    cutter = None
    if request.cuts:
        cutter = cutter_of(required.pipeline, workload, goals, costs.divided(mode), clock, costs.apart)
    if request.solver == "restarts":
        mine = clock.part(RESTARTING) if cutter and cutter.stages else clock
        if not many:
            solution = restart(solution, workload, goals, mine)
        elif solution.candidate.verdict != "feasible":
            solution = neighbourhoods.search(solution, workload, goals, request.budget, mine, 0.0, None, True)
        if solution.candidate.verdict == "feasible":
            return solution
    if cutter is not None:
        solution = cut_further(solution, cutter, request.budget, clock.part(0.5) if proving else clock)
    if proving and goals[0] == "latency":
        solution = prove(solution, workload, goals, clock if clock.limited else clock.next(PROOF), cutter)
    if solution.candidate.verdict != "feasible" and request.solver != "restarts":
        solution = _met_or_refuted(request, solution, workload, cutter, tuple(required.floors))
    return solution


def _met_or_refuted(
    request: SearchRequest, solution: Solution, workload: Workload, cutter: Cutter | None, parts: tuple[str, ...]
) -> Solution:
    """Return a solution that meets every requirement if single moves reach one, else one with a proof if there is one.

    `workload` has all stages whole, except for the `parts` of networks that must be cut, but may be cut elsewhere; the
    `cutter` knows which stages may be cut, None if all are to stay whole.
    """
    clock = request.clock.part(SEARCH)
    divided, unknown = (cutter.stages, (*cutter.left, *parts)) if cutter else ({}, parts)
    if proof := by_bounds(workload, divided, unknown):
        return replace(solution, proof=proof)
    if beyond := beyond_proof(workload, divided, unknown):
        return replace(solution, beyond=beyond, least=least_latencies(workload, divided, unknown))
    check()
    if neighbourhoods.suits(workload):
        mine = clock.part(MENDING)
        solution = neighbourhoods.search(solution, workload, request.goals, request.budget, mine, 0.0, None, True)
    else:
        solution = mend(solution, request.goals, request.budget, clock)
    candidate = solution.candidate
    if candidate.violations:
        moved = find_helpful_move(_load(solution), candidate.deployment.mapping, candidate.violations, clock)
        solution = solution if moved is None else _moved(solution, moved, request.goals)
    if solution.candidate.verdict == "feasible":
        return solution
    if not divided and not unknown:
        solution = replace(solution, proof=by_search(workload, clock if clock.limited else clock.next(PROOF)))
    return solution if solution.proof else replace(solution, least=least_latencies(workload, divided, unknown))


def _moved(solution: Solution, mapping: Mapping[str, Cost], goals: Sequence[str]) -> Solution:
    """Return a solution with another mapping if that meets every requirement, else the given one."""
    candidate = meet_requirements(_load(solution), mapping)
    if candidate is None:
        return solution
    return replace(solution, candidate=candidate, score=score(candidate, goals), proof=None)


def shallow_queues(request: SearchRequest, found: Found) -> Found:
    """Search every mode, for a list search with one frame at most waiting where the pipeline states no queue."""
    deep = deepened(request.pipeline)
    if request.solver != "heft":
        return every_mode(request, replace(found, pipeline=deep))
    clock = request.clock if deep is request.pipeline else request.clock.part(SHALLOW)
    return every_mode(replace(request, clock=clock), replace(found, pipeline=request.pipeline))


def deep_queues(request: SearchRequest, found: Found) -> Found:
    """Search again with the deepest queues, where queues that the planner may choose keep a plan from being found."""
    deep, modes = deepened(request.pipeline), found.open_modes()
    if request.solver != "heft" or deep is request.pipeline or found.feasible or not modes:
        return found
    unmet = ((_load(one), violation) for one in found.solutions if one.open for violation in one.candidate.violations)
    if not any(may_be_deeper(workload, violation) for workload, violation in unmet):
        return found
    return every_mode(replace(request, modes=modes), replace(found, pipeline=deep))


def settle_choices(request: SearchRequest, found: Found) -> Found:
    """Choose the longest slices, then the shallowest queues, that leave the best solution feasible."""
    return found if found.best is None else found.with_best(settled(found.best, request.goals))


def further_attempts(request: SearchRequest, found: Found) -> Found:
    """Search in the other ways, in order, until one finds a plan.

    Each is limited by counters of work, and the order is fixed: plans do not depend on the speed of the machine unless
    the guard rail on time ends a search.  Searches know planned times alone; what they find may not be proved at the
    high level of criticality, and is then searched for further.
    """
    few = len(request.pipeline.stages) <= FEW  # a program of more takes its share to be built
    others = [other for other in request.attempts[1:] if few or other.solver != "cpsat"]
    modes = found.open_modes()
    mixed = any(stage.high is not None for stage in found.pipeline.stages)
    if not others or not (found.feasible or modes):
        return found
    if found.feasible and not (mixed and _written(request, found).verdict != "feasible"):
        return found
    clock = request.whole.part(_LAST)
    for number, attempt in enumerate(others):
        if clock.over():
            break
        found = replace(found, tried=(*found.tried, attempt.name))
        weights = [_WEIGHTS.get(other.solver, 1) for other in others[number:]]
        mine = clock.part(weights[0] / sum(weights))
        start = dict(found.mapping) if found.best else request.start
        small = replace(request, attempts=(attempt,), modes=modes, clock=mine, explain=False, start=start)
        other = run_pass(small, PLACING)
        if other.written.verdict == "feasible":
            report = replace(other.written.solver, portfolio=found.tried, found_by=attempt.name)
            return replace(other, tried=found.tried, plan=replace(other.written, solver=report))
    return found


def write(request: SearchRequest, found: Found) -> Found:
    """Write the plan, with conflicts and levers if the request explains: these take a while and may lead to a plan yet.

    The time that is left never keeps it from being written.
    """
    if found.plan is not None:
        return found
    assert found.best is not None
    best = found.best
    if "energy" in request.goals and (request.explain or found.feasible):
        notes = dict(best.notes)
        for name, text in kept(list[tuple[str, str]](), lambda: list(refusals(best.candidate))):
            notes[name] = f"{notes[name]}; {text}" if name in notes else text
        found = replace(found, best=replace(best, notes=notes))
    if request.explain and (explained := kept(None, lambda: _explained(request, found))):
        return explained
    return replace(found, plan=_written(request, found))


def _written(request: SearchRequest, found: Found) -> Plan:
    assert found.best is not None
    with lifted():
        return write_plan(found.best, found.solutions, request.goals, None, found.pipeline)


# -- explanations


def _explained(request: SearchRequest, found: Found) -> Found:
    clock = request.clock.next(_explaining(request)) if request.clock.limited else request.clock
    assert found.best is not None
    best, conflicts = _conflicts(found.best, request.goals, clock.part(SEARCH))
    solutions = found.solutions
    if best.candidate.verdict == "feasible":
        solutions = tuple(best if s.candidate.deployment.workload is _load(best) else s for s in solutions)
        found = replace(found, best=best, solutions=solutions).with_best(settled(best, request.goals))
    else:
        found = replace(found, best=best)
    alternatives = _alternatives(request, found, clock.part(SEARCH))
    assert found.best is not None
    plan = write_plan(found.best, found.solutions, request.goals, alternatives, found.pipeline, clock)
    return replace(found, plan=replace(plan, conflicts=conflicts))


def _explaining(request: SearchRequest) -> int:
    """Return the evaluations that explanations may take: of many stages, less than a third of all."""
    stages = len(request.pipeline.stages)
    if stages <= FEW or request.evaluations is None:
        return EXPLAINED
    return min(EXPLAINED, request.evaluations * FEW // (2 * stages))


def _conflicts(best: Solution, goals: Sequence[str], clock: Clock) -> tuple[Solution, tuple[Conflict, ...]]:
    """Return the solution, replaced if this search meets every requirement, and the requirements that conflict."""
    candidate = best.candidate
    if candidate.verdict == "feasible":
        return best, ()
    if best.beyond:  # these conflict with the analysis, each alone
        return best, ()
    if best.proof is not None and best.proof.method == BOUND:
        return best, tuple(Conflict((one.unmet,), True, True, 0) for one in best.proof.necessities)
    conflicts = ConflictSearch(_load(best), clock)
    found = conflict(_load(best), candidate.violations, search=conflicts)
    for violated, hit in conflicts.met:
        if not violated and best.proof is None:
            best = _moved(best, hit.deployment.mapping, goals)
    return best, () if best.candidate.verdict == "feasible" else found


def _alternatives(request: SearchRequest, found: Found, clock: Clock) -> list[Solution]:
    """Return quick solutions in the other modes, as levers for a plan that is not feasible."""
    if found.feasible:
        return []
    assert found.best is not None
    graph, costs = task_graph(found.pipeline), request.costs
    others = [solution for solution in found.solutions if solution is not found.best]
    names = {_load(solution).model.mode.name for solution in (found.best, *others)}
    for mode in costs.platform.modes:
        if mode.name not in names and not clock.over():
            model = costs.model(mode)
            if not unmappable_stages(graph, model):
                workload = Workload.of(graph, model, request.policy)
                others.append(solve(workload, request.goals, 24, clock.part(0.5)))
    return others


# -- the loop: search, simulate, search again


def refine_by_simulation(request: SearchRequest, found: Found) -> Found:
    """Simulate the plan, search again with the simulated times until both agree, and keep the best simulation.

    An estimate without interference cannot distinguish two mappings whose stages wait for each other differently.  The
    waiting times and co-running traffic seen in the simulation of a plan enter the next search, in the plan's mode and
    as it was found.  Only times change if the first objective is neither latency nor the longest chain's latency.
    """
    first, *others = request.attempts
    plan, simulate = found.written, request.simulate
    used = next((other for other in others if other.name == plan.solver.found_by), first)
    clock = request.rounds if used is first else request.whole
    means = means_of(plan, simulate, clock) if simulate and plan.tasks else None
    value = VALUES.get(request.goals[0])
    if means is None or simulate is None:
        return found
    if used.solver not in ("heft", "auto") or value is None:
        return replace(found, plan=with_means(plan, means))
    deep = any("queue" in choices for choices in (plan.solver.chosen or {}).values())
    like_it = replace(
        request,
        pipeline=deepened(request.pipeline) if deep else request.pipeline,
        modes=modes_of(request.costs.platform, plan.mode),
        attempts=(used,),
        cuts=any(PART in task.params for task in plan.tasks),
        explain=False,
        clock=clock,
    )
    best, tried, observed = found, [_places(plan)], _observed(plan, means)
    anchor, rounds, fixed, stalled, evaluated = observed, 1, False, 0, plan.solver.evaluated or 0
    most = MANY_ROUNDS if observed.loads else ROUNDS
    while rounds < most and (stalled < STALLED or not observed.loads) and not clock.over():
        try:
            other = run_pass(replace(like_it, observed=observed, start=best.mapping), PLACING)
        except OutOfTime:
            break
        evaluated += other.written.solver.evaluated or 0
        if _places(other.written) in tried or other.written.verdict != "feasible":
            fixed = True
            break
        tried.append(_places(other.written))
        other_means = means_of(other.written, simulate, clock)
        if other_means is None:
            break
        rounds += 1
        more, stalled = _observed(other.written, other_means), stalled + 1
        if value(other_means.chains.values()) < value(means.chains.values()):
            best, means, anchor, stalled = other, other_means, more, 0
        last = anchor if more.loads else more  # what the next search starts from is known as it was seen
        extra = {**observed.extra_ns, **more.extra_ns, **last.extra_ns}
        offset = {**observed.offset_ns, **more.offset_ns, **last.offset_ns}
        observed = replace(last, extra_ns=extra, offset_ns=offset)
    report = best.written.solver
    report = replace(report, notes={**(report.notes or {}), **(plan.solver.notes or {})})
    if evaluated and len(plan.tasks) > FEW and report.evaluated is not None:
        report = replace(report, evaluated=evaluated)
    refined = with_means(replace(best.written, solver=report), means, rounds, fixed)
    return replace(best, tried=found.tried, plan=refined)


PLACING: tuple[Strategy, ...] = (shallow_queues, deep_queues, settle_choices)
"""The strategies that map stages, in one way to search."""
STRATEGIES: tuple[Strategy, ...] = (*PLACING, further_attempts, write, refine_by_simulation)
"""The strategies in order."""


def run_pass(request: SearchRequest, strategies: Sequence[Strategy] = STRATEGIES) -> Found:
    """Return what strategies find, one after the other, and its plan; the deadline ends a strategy, not the pass."""
    found = Found(request.pipeline, tried=(request.attempts[0].name,))
    for strategy in strategies:
        try:
            found = strategy(request, found)
        except OutOfTime:
            if found.best is None:
                raise
    return write(request, found)


def search(request: SearchRequest) -> Plan:
    """Return the best plan of passes with ever larger budgets, with its uncertainty if `explain` is set.

    Each budget is `FACTOR` times the one before.  A larger one divides its evaluations otherwise, and what is better by
    estimate may be worse by simulation; so a search with all smaller budgets before it is what makes a longer one never
    worse.  The series ends where a budget was not used up: a larger one would find the same.
    """
    stages, allowed, spent = len(request.pipeline.stages), request.time_limit or math.inf, since_command()
    rest = allowed - (spent or 0.0)
    ending = max(min(ENDING * rest, rest - (WRITING if spent is None else SHOWING) * stages), 0.0)
    guard = Clock.of(None, None if math.isinf(rest) else min(SEARCHING * rest, ending))
    request = replace(request, budget=request.budget if stages <= FEW else max(request.budget, MOVES * stages))
    budgets: list[float] = [LEAST if request.evaluations is not None else math.inf]
    while request.evaluations is not None and budgets[-1] * FACTOR <= request.evaluations:
        budgets.append(budgets[-1] * FACTOR)
    more = min(max(stages // FEW, 1) * 2, MORE) if stages > FEW else 1
    series = list[Found]()
    with within(max(ending, LEAST_S) if allowed < SHORT_S else ending):
        try:
            while budgets:
                whole = guard.afresh(budgets.pop(0) * more)
                rounds = whole.part(BEFORE_OTHERS) if request.solver == "heft" else whole
                clock = rounds.part(FIRST) if request.simulate and request.solver != "cpsat" else rounds
                start = _best(series).mapping if series else {}
                last = not budgets and all(found.written.verdict != "feasible" for found in series)
                settings = replace(request, explain=request.explain and last, start=start)
                series.append(run_pass(replace(settings, clock=clock, rounds=rounds, whole=whole)))
                complete, verdict = not guard.spent, series[-1].written.verdict
                if guard.cut_off or (complete and verdict == "feasible"):
                    break
                if complete or verdict == "infeasible":
                    del budgets[:-1]
        except OutOfTime:
            guard.late()  # the search may not have read the clock since its time ended
        found = _best(series) if series else _unmapped(request)
        if request.explain:
            clock = guard.next(_explaining(request))
            found = replace(found, plan=kept(found.written, lambda: found.finished(clock)))
    return without_contradictions(_undecided(replace(found, plan=cut_off(found.written, guard)), request))


def _unmapped(request: SearchRequest) -> Found:
    """Return the plan without tasks of a search whose time was over before it had a first mapping."""
    mode = next((mode for mode in request.modes if mode.default), request.modes[0])
    workload = Workload(task_graph(request.pipeline), request.costs.model(mode), request.policy)
    plan = without_tasks(workload, request.goals, SearchReport(status="no time for a first mapping of all stages"))
    return Found(request.pipeline, tried=(request.attempts[0].name,), plan=plan)


def _best(series: Sequence[Found]) -> Found:
    """Return what has the best feasible plan, the last of equal ones, else the last, with the evaluations of all.

    Values of latency are simulated ones where they can be.
    """
    feasible = [found for found in series if found.written.verdict == "feasible"]
    best = min(reversed(feasible), key=lambda found: float(found.written.solver.value or 0), default=series[-1])
    report = best.written.solver
    if report.evaluated is None:
        return best
    report = replace(report, evaluated=sum(found.written.solver.evaluated or 0 for found in series))
    return replace(best, plan=replace(best.written, solver=report))


def refine(plan: Plan, simulate: Simulate, clock: Clock = NO_CLOCK) -> Plan:
    """Return the plan with expected times from its simulation, or as it is where it is not simulated (`means_of`)."""
    means = means_of(plan, simulate, clock)
    return plan if means is None else with_means(plan, means)


def means_of(plan: Plan, simulate: Simulate, clock: Clock) -> Means | None:
    """Return the means over a simulation of a plan.

    None for an infeasible plan, because its queues grow without bound, one with more than `MOST` jobs to simulate, and
    one that is ready too late.
    """
    # one simulation even where the budget is spent: an estimate would win over what another budget found and simulated
    length = steady_ns(plan)
    jobs = sum(length // max(task.period_ns, 1) for task in plan.tasks)
    if plan.verdict != "feasible" or clock.late() or jobs > MOST:
        return None
    try:
        with within(clock.seconds()):
            return simulate(plan, length)
    except OutOfTime:
        clock.late()  # the simulation reads the deadline only, and the plan says whether the clock ran out
        return None


def with_means(plan: Plan, means: Means, rounds: int = 1, fixed_point: bool = True) -> Plan:
    """Return a plan with expected times from its simulation, the last of so many, and whether they agree with it."""
    chains = tuple(replace(c, expected_ns=means.chains.get(c.name, c.expected_ns)) for c in plan.chains)
    notes = dict(plan.solver.notes or {})
    report = replace(plan.solver, notes=notes, rounds=rounds, fixed_point=fixed_point)
    value = VALUES.get(next(iter(report.objective), ""))
    if value is not None:
        reached = float(value(chain.expected_ns for chain in chains))
        report = replace(report, value=reached, gap=gap(reached, report.bound))
    return replace(plan, chains=chains, solver=report)


def steady_ns(plan: Plan) -> int:
    """Return the simulation length for steady means (ns).

    It is two hyperperiods and no fewer than 20 of the longest periods, or the time that `JOBS` jobs take.
    """
    periods = [max(task.period_ns, 1) for task in plan.tasks]
    rate = sum(_SECOND / period for period in periods)
    length = max(2 * math.lcm(*periods), _PERIODS * max(periods))
    return max(min(length, int(JOBS / rate * _SECOND)), 2 * max(periods))


def _observed(plan: Plan, means: Means) -> Observed:
    extra = {
        (task.name, task.engine): means.jobs[task.name] - task.cost_ns for task in plan.tasks if task.name in means.jobs
    }
    waiting = Observed(extra)
    typical, loads = dict[str, int](), dict[str, tuple[float, int]]()
    if sum(task.kind == "stage" for task in plan.tasks) > FEW:  # many moves at once would seek engines that look free
        shared: dict[str, list[int]] = {}
        for (_, engine), value in extra.items():
            shared.setdefault(engine, []).append(value)
        typical = {engine: sum(values) // len(values) for engine, values in shared.items()}
        used = loads_of(plan.tasks)
        loads = {engine.id: (used.get(engine.id, 0.0), engine.lanes) for engine in plan.engines}
    sources, ends = Sources.of(plan.tasks, plan.sensors), dict[str, int]()
    offset = {
        chain.name: means.chains[chain.name] - expected_latency(sources.stretches(chain.path), sources, ends, waiting)
        for chain in plan.chains
        if chain.name in means.chains
    }
    return Observed(extra, offset, typical, loads)


def _places(plan: Plan) -> tuple[tuple[str, str, str, tuple[int, ...]], ...]:
    return tuple((task.name, task.engine, task.precision, task.lanes) for task in plan.tasks)


def _undecided(found: Found, request: SearchRequest) -> Plan:
    """Return an undecided plan with the searches tried and what would decide it; any other plan as it is."""
    plan, tried = found.written, found.tried
    if plan.verdict != "undecided":
        return plan
    beyond = found.best.beyond if found.best else ()  # requirements that no mapping's bounds meet in its mode
    lines = []
    for one in beyond:
        sampled = sum(value for term, value in one.terms if SAMPLED in term)
        lines.append(
            f"{one.requirement}: at least {format_duration(one.demand)}, below which no mapping is proved, or fewer "
            f"stages on its way that sample instead of being triggered: {format_duration(sampled)} of it"
        )
    if beyond and len(request.modes) == 1:
        return replace(plan, solver=replace(plan.solver, portfolio=tried, decide=tuple(lines)))
    if plan.solver.cut_off:
        lines.append(f"more time than {request.time_limit:g} s, which cut the search off: --time-limit")
    elif plan.solver.status == SPENT and request.evaluations is not None:
        lines.append(f"more evaluations than {request.evaluations}, which ended the search: --evaluations")
    if not any(_NAMES["cpsat"] in name for name in tried):
        if not available():
            lines.append("an exact search, for which OR-Tools is not installed: pip install ortools")
        elif request.goals[0] != "latency":
            lines.append("an exact search: --objective latency --solver cpsat")
        else:
            lines.append("an exact search: --solver cpsat")
    if {attempt.policy for attempt in request.attempts} == {"edf"} and is_mixed(plan):
        lines.append("fixed priorities, under which more is proved at the high level of criticality: --policy fp")
    unbounded = [chain.name for chain in plan.chains if chain.bound_ns is None]
    if unbounded and not plan.violations and not plan.solver.cut_off:
        lines.append(f"a bound for {', '.join(unbounded)}: no analysis has one (socsched analyze gives the reasons)")
    return replace(plan, solver=replace(plan.solver, portfolio=tried, decide=tuple(lines)))
