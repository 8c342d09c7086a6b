"""Solve a mapping problem: a list schedule first, a beam search, then proof by exhaustion, enumeration or CP-SAT.

Every schedule is judged by its exact evaluation, contention included.  Bounds come from the relaxation and from CP-SAT.
For networks that are chains they also come from exhaustion of rising limits (`destructive` without contention, `guided`
with it) and from enumeration of every state whose bound is below the best makespan.

"optimal" means that no schedule is better by more than `TOLERANCE` of the value.  The bounds of the relaxation, of
CP-SAT and of exhaustion without contention hold for every real execution.  Enumeration, guided or not, covers every
choice and order in which jobs start as soon as they can or at the end of another job; with contention, starts at other
instants can be better still (CP-SAT considers them).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from socsched.planning.mapping.cpsat import Program
from socsched.planning.mapping.overlaps import PAIRS
from socsched.planning.mapping.problem import JobKey, Problem, Schedule
from socsched.planning.mapping.solvers import available, linear
from socsched_literature.mapping.beam import beam_search, enumerate_below
from socsched_literature.mapping.destructive import exhaust, suitable
from socsched_literature.mapping.evaluate import Evaluation, Impossible, evaluate
from socsched_literature.mapping.guided import rise
from socsched_literature.mapping.guided import search as guided_search
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.mapping.relaxation import Relaxed, relax
from socsched_literature.mapping.tables import chains, enumerable

TOLERANCE = 5e-4
STATES = ((10_000, True), (60_000, False), (500_000, True))
"""Enumerations tried in sequence: maximum states per step, and whether lanes may wait."""
HUGE = 20_000
"""Pairs of groups of different networks beyond which enumeration and CP-SAT proved nothing in a minute."""
WIDTHS = 3
"""Number of beams guided by the schedule suffixes, each four times as wide as the previous one."""
ROUNDS = 4
"""Rounds of solving, evaluating and increasing durations, used if the program cannot model all overlaps."""


@dataclass(frozen=True, slots=True)
class Result:
    """The best schedule with its evaluation; per objective its value and a lower bound.

    `status`: optimal, feasible (limits kept, `gap` open), undecided (no schedule within the limits found), infeasible
    (there is none).  `solver` names the solver that found the schedule.  `model_value`: the value of the schedule in
    the model of CP-SAT.
    """

    status: str
    solver: str
    schedule: Schedule
    evaluation: Evaluation
    values: Mapping[str, int]
    bounds: Mapping[str, int]
    gap: float
    seconds: float
    model_value: int | None = None


@dataclass(slots=True)
class _Best:
    problem: Problem
    objectives: tuple[str, ...]
    schedule: Schedule
    evaluation: Evaluation
    solver: str

    def key(self, evaluation: Evaluation) -> tuple[float, ...]:
        over = sum((value - limit) / max(limit, 1) for _, value, limit in evaluation.excess)
        return (over, *(evaluation.value(name) for name in self.objectives))

    def offer(self, schedule: Schedule | None, solver: str) -> Evaluation | None:
        """Keep a schedule if it is better; return its evaluation, None if it cannot run."""
        if schedule is None:
            return None
        try:
            found = evaluate(self.problem, schedule)
        except Impossible:
            return None
        if schedule.holds or schedule.earliest:
            plain = replace(schedule, holds=(), earliest=())
            freed = evaluate(self.problem, plain)
            if self.key(freed) <= self.key(found):
                schedule, found = plain, freed
        if self.key(found) < self.key(self.evaluation):
            self.schedule, self.evaluation, self.solver = schedule, found, solver
        return found


def solve(problem: Problem, solver: str = "auto", time_limit: float = 10.0, workers: int = 1, seed: int = 0) -> Result:
    """Return the best schedule found within `time_limit` seconds; raises MachineError for `cpsat` without OR-Tools.

    auto: CP-SAT if OR-Tools is installed, else the list schedule and its descent.  The same input gives the same result
    unless the wall clock ends the search early.  Raises Impossible if groups cannot be connected at all.
    """
    started = time.monotonic()
    first = list_schedule(problem)
    best = _Best(problem, problem.objectives, first, evaluate(problem, first), "heft")
    bounds = dict.fromkeys(problem.objectives, 0)
    if solver == "heft" or (solver == "auto" and not available()):
        return _result(best, bounds, "feasible", started)
    relaxed = {name: relax(problem, name, linear()) for name in problem.objectives}
    bounds = {name: found.bound for name, found in relaxed.items()}
    main = problem.objectives[0]
    if main in ("makespan", "latency") and chains(problem):
        prices = relaxed["makespan"] if "makespan" in relaxed else relax(problem, "makespan", linear())
        # For problems too large for the program only the beam improves anything.  Otherwise it leaves half of the
        # time to the other solvers, or more if exhaustion can prove a bound and guide beams better.
        huge = _pairs(problem) > HUGE
        share = 0.9 if huge else 0.1 if _exhaustible(problem, prices) else 0.5
        _beams(best, prices, started + time_limit * share, bounds)
        if huge:
            return _result(best, bounds, "optimal" if _proven(best, bounds) else "feasible", started)
    until = started + time_limit
    if (
        problem.objectives == ("makespan",)
        and not any(n.limit_ns for n in problem.requirements)
        and enumerable(problem)
    ):
        if _exhaustible(problem, relaxed["makespan"]) and not _proven(best, bounds):
            _exhausted(best, relaxed["makespan"], (started + time_limit * 0.5, started + time_limit * 0.95), bounds)
        for states, waiting in STATES[:1] if _pairs(problem) <= PAIRS else STATES:
            if not _proven(best, bounds):
                _enumerated(best, relaxed["makespan"], states, waiting, until, bounds)
    if _proven(best, bounds):
        return _result(best, bounds, "optimal", started)
    return _exact(best, bounds, started, time_limit, workers, seed)


def _exhaustible(problem: Problem, relaxed: Relaxed) -> bool:
    """Return whether exhaustion without contention is promising: not if memory bandwidth is the bottleneck."""
    if problem.objectives != ("makespan",) or any(need.limit_ns for need in problem.requirements):
        return False
    return _pairs(problem) > PAIRS and relaxed.memory_price < 1e-9 and suitable(problem)


def _pairs(problem: Problem) -> int:
    sizes = [len(chain) for chain in chains(problem) or ()]
    return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2


def _exhausted(best: _Best, relaxed: Relaxed, until: tuple[float, float], bounds: dict[str, int]) -> None:
    """Raise the bound by exhaustion: without contention until the first instant, with contention until the second.

    A schedule found without contention may also be the best with contention.
    """
    problem = best.problem
    plain = replace(problem, bandwidth=0)
    upper = math.floor(best.evaluation.makespan_ns * (1 - TOLERANCE))
    first = until[0] if problem.bandwidth else until[1]
    result = exhaust(plain, relax(plain, "makespan", linear()), upper, TOLERANCE, first, exact=not problem.bandwidth)
    best.offer(result.schedule, "exhaustion")
    bounds["makespan"] = max(bounds["makespan"], result.bound)
    if result.ends is None or not problem.bandwidth:
        return
    for step in range(WIDTHS):
        best.offer(guided_search(problem, relaxed, result.ends, 256 << (2 * step)), "guided beam")
    while not _proven(best, bounds):
        upper = math.floor(best.evaluation.makespan_ns * (1 - TOLERANCE))
        found, reached = rise(problem, relaxed, result.ends, bounds["makespan"], upper, TOLERANCE, until[1])
        bounds["makespan"] = max(bounds["makespan"], reached)
        before = best.evaluation.makespan_ns
        best.offer(found, "exhaustion")
        if best.evaluation.makespan_ns >= before:
            return


def _enumerated(
    best: _Best, relaxed: Relaxed, states: int, waiting: bool, until: float, bounds: dict[str, int]
) -> None:
    """Enumerate potentially better schedules until none is left or coverage is incomplete."""
    while True:
        limit = math.floor(best.evaluation.makespan_ns * (1 - TOLERANCE))
        found, complete = enumerate_below(best.problem, relaxed, limit, states, until, waiting)
        before = best.evaluation.makespan_ns
        best.offer(found, "enumeration")
        if complete:
            # The schedule found need not be the shortest: pruning used the limit of the previous best schedule.
            bounds["makespan"] = max(bounds["makespan"], min(limit, best.evaluation.makespan_ns))
            return
        if best.evaluation.makespan_ns >= before:
            return


def _beams(best: _Best, prices: Relaxed, until: float, bounds: Mapping[str, int]) -> None:
    """Search with ever more states; each width takes at least twice the time of the previous one."""
    took = 0.0
    # With few pairs, enumeration is faster than wide beams.
    for width in (16 << step for step in range(3 if _pairs(best.problem) <= PAIRS else 10)):
        begun = time.monotonic()
        if begun + took * 2.5 > until or _proven(best, bounds):
            return
        best.offer(beam_search(best.problem, prices, width), f"beam {width}")
        took = time.monotonic() - begun


def _proven(best: _Best, bounds: Mapping[str, int]) -> bool:
    if best.evaluation.excess:
        return False
    # Rounding may cost a ns; energy is an integer and has no such error.
    return all(
        best.evaluation.value(name) * (1 - TOLERANCE) <= bound + (name != "energy") for name, bound in bounds.items()
    )


def _exact(best: _Best, bounds: dict[str, int], started: float, limit: float, workers: int, seed: int) -> Result:
    problem, grown = best.problem, dict[tuple[int, int], int]()
    model_value: int | None = None
    infeasible = False
    for turn in range(ROUNDS):
        left = limit - (time.monotonic() - started)
        if left <= 0.05:
            break
        program = Program(problem, grown=grown)
        rounds = 1 if program.contended or not problem.bandwidth else ROUNDS - turn
        program.hint(best.schedule, {s.key: (s.start_ns, s.end_ns) for s in best.evaluation.spans})
        for name in problem.objectives:
            left = limit - (time.monotonic() - started)
            if left <= 0.05:
                break
            # A program with increased durations gives no valid bound for the original problem.
            floor = 0 if grown else bounds[name]
            answer = program.solve(name, left / rounds, workers, seed, floor)
            infeasible = answer.status == "infeasible" and not grown
            if answer.schedule is None:
                break
            if not grown:
                bounds[name] = max(bounds[name], answer.bound)
            clocked = tuple((key, start * program.grain) for key, start in answer.starts.items())
            found = best.offer(replace(answer.schedule, earliest=clocked), "cpsat")
            if name == problem.objectives[0]:
                model_value = answer.value
            if answer.status != "optimal":
                break
            program.keep()
        if infeasible or program.contended or not problem.bandwidth or _proven(best, bounds) or answer.schedule is None:
            break
        if found is None or not _grow(problem, answer.schedule, found, grown):
            break
    if infeasible:
        return _result(best, bounds, "infeasible", started, model_value)
    return _result(best, bounds, "optimal" if _proven(best, bounds) else "feasible", started, model_value)


def _grow(problem: Problem, schedule: Schedule, found: Evaluation, grown: dict[tuple[int, int], int]) -> bool:
    """Set the durations of the chosen options as evaluated; return whether any changed by more than a thousandth."""
    changed = False
    worst: dict[int, int] = {}
    for span in found.spans:
        if not span.key.conversion:
            index = span.key.index
            worst[index] = max(worst.get(index, 0), span.end_ns - span.start_ns - span.alone_ns)
    for index, more in worst.items():
        key = (index, schedule.choice[index])
        changed |= abs(more - grown.get(key, 0)) * 1000 > problem.groups[index].options[key[1]].time_ns
        grown[key] = more
    return changed


def _result(
    best: _Best, bounds: Mapping[str, int], status: str, started: float, model_value: int | None = None
) -> Result:
    values = {name: best.evaluation.value(name) for name in best.objectives}
    main = best.objectives[0]
    gap = max(values[main] - bounds[main], 0) / values[main] if values[main] and bounds[main] else 1.0
    if best.evaluation.excess and status != "infeasible":
        status = "undecided"
    seconds = time.monotonic() - started
    return Result(status, best.solver, best.schedule, best.evaluation, values, dict(bounds), gap, seconds, model_value)


def starts(evaluation: Evaluation) -> dict[JobKey, int]:
    """Return the start of every job."""
    return {span.key: span.start_ns for span in evaluation.spans}
