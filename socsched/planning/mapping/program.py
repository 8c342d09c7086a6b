"""The mapping problem as a constraint program, solved by OR-Tools CP-SAT, if that is installed.

Time counts in grains: the greatest common divisor of all times, or a hundred-thousandth of the horizon, rounded down;
so the bound of a program solved to optimality holds for the problem, whatever the grain.

Contention for memory is the loss of any two overlapping jobs to each other: while it overlaps with j, group i loses the
share 1 - alone/stretched of that time, by the same max-min fair shares as elsewhere.  The duration of i is at least its
time alone plus its losses to the groups of any one other engine, which run in sequence.  With two engines this is the
fluid model itself; with more it is a lower bound, as a third engine only shrinks shares further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from socsched.cost.contention import demand, fair_shares, stretch
from socsched.cost.cost import Segment
from socsched.errors import MachineError
from socsched.planning.clock import NO_CLOCK, PER_SECOND, Clock, count
from socsched.planning.mapping.problem import Group, Hop, JobKey, Option, Problem, Schedule, alone_ns
from socsched.progress import listening, tell

SOLVERS = ("auto", "heft", "restarts", "cpsat")


def available() -> bool:
    """Return whether OR-Tools is installed."""
    import importlib.util

    return importlib.util.find_spec("ortools") is not None


def require() -> None:
    """Raise MachineError if OR-Tools is not installed."""
    if not available():
        raise _missing()


def linear() -> Any:
    """Return OR-Tools' module of linear solvers; MachineError if it is not installed."""
    try:
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]
    except ImportError:
        raise _missing() from None
    return pywraplp


def constraints() -> Any:
    """Return OR-Tools' module for constraint programs; MachineError if it is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise _missing() from None
    return cp_model


def _missing() -> MachineError:
    return MachineError(
        "the exact solver needs OR-Tools, which is not installed",
        "pip install ortools==9.15.*, or plan with --solver heft",
    )


GRAINS = 100_000
SCALE = 1 << 12
"""Losses are multiples of 1 / SCALE, rounded down."""


def successors(problem: Problem) -> list[set[int]]:
    """Return for every group all groups that follow it."""
    after: list[set[int]] = [set() for _ in problem.groups]
    for index in reversed(problem.order):
        for number in problem.after[index]:
            sink = problem.index[problem.edges[number].sink]
            after[index] |= {sink} | after[sink]
    return after


def pair_losses(first: Option, second: Option, bandwidth: int) -> tuple[int, int]:
    """Return the least loss of two options to each other while they overlap, whatever segments they are in."""
    pairs = [(a, b) for a in first.segments if a.time_ns for b in second.segments if b.time_ns]
    lost = [_lost(a, b, bandwidth) for a, b in pairs]
    return min((a for a, _ in lost), default=0), min((b for _, b in lost), default=0)


def _lost(a: Segment, b: Segment, bandwidth: int) -> tuple[int, int]:
    if not a.bytes or not b.bytes:
        return 0, 0
    shares = fair_shares([demand(a), demand(b)], bandwidth)
    paces = [stretch(segment, share) for segment, share in zip((a, b), shares, strict=True)]
    alone = [stretch(segment, min(demand(segment), bandwidth)) for segment in (a, b)]
    lost = [(pace - least) * SCALE // pace for pace, least in zip(paces, alone, strict=True)]
    return lost[0], lost[1]


def all_times(problem: Problem) -> list[int]:
    """Return all times that a program has to represent."""
    groups: Sequence[Group] = problem.groups
    times = [option.time_ns for group in groups for option in group.options]
    times += [value for group in groups for value in (group.release_ns, group.period_ns if group.frames > 1 else 0)]
    for edge in problem.edges:
        for hop in (hop for row in edge.hops for hop in row if hop):
            times += [hop.handoff_ns, hop.pickup_ns, hop.time_ns, hop.delay_ns]
    return times


def samplings(problem: Problem) -> list[int]:
    """Return the sampling time of each requirement."""
    return [need.sampling_ns for need in problem.requirements]


def time_unit(problem: Problem) -> int:
    """Return the time unit (ns) of a program."""
    common = math.gcd(*all_times(problem), *samplings(problem)) or 1
    fine = max(latest_end(problem) // GRAINS, 1)
    return fine if problem.bandwidth else max(common, fine)


def latest_end(problem: Problem) -> int:
    """Return a time by which all jobs are done, run one after the other at the worst slowdown."""
    total = 0
    for group in problem.groups:
        slowest = max(_worst(option.segments, problem.bandwidth) for option in group.options)
        total += group.frames * slowest
    for edge in problem.edges:
        hops = [hop for row in edge.hops for hop in row if hop]
        frames = problem.groups[problem.index[edge.source]].frames
        extra = (h.way_ns + _worst(h.segments, problem.bandwidth) for h in hops)
        total += frames * max(extra, default=0)
    return total + max(group.release_ns + (group.frames - 1) * group.period_ns for group in problem.groups)


def _worst(segments: Sequence[Segment], bandwidth: int) -> int:
    return 2 * sum(segment.time_ns for segment in segments) + (
        sum(segment.bytes for segment in segments) * 10**9 // bandwidth if bandwidth else 0
    )


@dataclass(slots=True)
class Job:
    """Start, end and duration; from `begun` to `over` the option itself runs, without pick-up and hand-over."""

    start: Any
    end: Any
    duration: Any
    begun: Any = None
    over: Any = None


class Jobs:
    """The variables of a problem: placement, timing and hand-overs.

    `taken[i][a]`: group i has option a; `flows[n][a][b]`: edge n leads from option a to option b; `intervals` and
    `loads` of every engine.  Where jobs are `contended`, their durations may exceed the time alone; `grown` lengthens
    option a of group i, as (i, a), by ns.
    """

    def __init__(self, problem: Problem, contended: bool, grown: Mapping[tuple[int, int], int]) -> None:
        self.problem, self.contended, self.grown = problem, contended, grown
        self.cp = constraints()
        self.model = self.cp.CpModel()
        self.grain = time_unit(problem)
        self.horizon = latest_end(problem) // self.grain + 2
        self.taken = [[self.model.new_bool_var("") for _ in group.options] for group in problem.groups]
        self.flows: list[list[list[Any]]] = []
        self.jobs: dict[JobKey, Job] = {}
        self.conversions: dict[JobKey, list[tuple[Any, str]]] = {}
        self.intervals: dict[str, list[tuple[Any, int]]] = {engine.id: [] for engine in problem.engines}
        self.loads: dict[str, list[Any]] = {engine.id: [] for engine in problem.engines}
        for row in self.taken:
            self.model.add_exactly_one(row)
        for row, group in zip(self.taken, problem.groups, strict=True):
            if group.twin:
                for x, y in zip(row, self.taken[problem.index[group.twin]], strict=True):
                    self.model.add(x == y)
        self._flows()
        self._groups()
        self._edges()

    def grains_of(self, value: int) -> int:
        """Return a time (ns) in grains, rounded down."""
        return value // self.grain

    def _flows(self) -> None:
        model, problem = self.model, self.problem
        for edge in problem.edges:
            sources, sinks = (self.taken[problem.index[name]] for name in (edge.source, edge.sink))
            flow = [[model.new_bool_var("") for _ in sinks] for _ in sources]
            for i, x in enumerate(sources):
                model.add(sum(flow[i]) == x)
            for j, x in enumerate(sinks):
                model.add(sum(row[j] for row in flow) == x)
            for row, hops in zip(flow, edge.hops, strict=True):
                for y, hop in zip(row, hops, strict=True):
                    if hop is None:
                        model.add(y == 0)
            self.flows.append(flow)

    def hops(self, number: int) -> list[tuple[Any, Hop]]:
        """Return the hops that edge `number` can take, each with the variable that selects it."""
        edge = self.problem.edges[number]
        return [
            (y, hop)
            for ys, hops in zip(self.flows[number], edge.hops, strict=True)
            for y, hop in zip(ys, hops, strict=True)
            if hop
        ]

    def _groups(self) -> None:
        model, problem = self.model, self.problem
        for index, group in enumerate(problem.groups):
            times = [
                self.grains_of(alone_ns(option, problem.bandwidth) + self.grown.get((index, number), 0))
                for number, option in enumerate(group.options)
            ]
            paid = self._paid(index)
            # In a contended schedule, rounded times need not differ by the rounded-down duration, so none is fixed.
            variable = self.contended or paid is not None
            for frame in range(group.frames):
                release = self.grains_of(group.release_ns + frame * group.period_ns)
                start = model.new_int_var(release, self.horizon, "")
                end = model.new_int_var(release, self.horizon, "")
                alone = sum(t * x for t, x in zip(times, self.taken[index], strict=True))
                if variable:
                    duration = model.new_int_var(min(times), self.horizon, "")
                    extra = 0 if paid is None else paid[0] + paid[1]
                    model.add(duration >= alone + extra if self.contended else duration == alone + extra)
                    model.add(end == start + duration)
                else:
                    duration = alone
                    model.add(end == start + alone)
                begun, over = (start, end) if paid is None else (start + paid[0], end - paid[1])
                self.jobs[JobKey(frame, index)] = Job(start, end, duration, begun, over)
                for x, option, time in zip(self.taken[index], group.options, times, strict=True):
                    size = duration if variable else time
                    interval = model.new_optional_interval_var(start, size, end, x, "")
                    self.intervals[option.engine].append((interval, option.share))
                    self.loads[option.engine].append(time * option.share * x)
                for engine, share in dict.fromkeys((option.engine, option.share) for option in group.options):
                    self.loads[engine] += self._picked(index, engine, share)
                if frame:
                    model.add(start >= self.jobs[JobKey(frame - 1, index)].end)

    def _paid(self, index: int) -> tuple[Any, Any] | None:
        """Return the pick-ups of a group and the longest hand-over it pays for, None if there is neither."""
        taken = [
            self.grains_of(hop.pickup_ns) * y
            for number in self.problem.before[index]
            for y, hop in self.hops(number)
            if hop.pickup_ns >= self.grain
        ]
        handed = self._handed(index)
        handed = 0 if handed is None and taken else handed
        return (sum(taken), handed) if taken or handed is not None else None

    def _picked(self, index: int, engine: str, share: int) -> list[Any]:
        """Return the terms that pick-ups add to the load of an engine."""
        return [
            self.grains_of(hop.pickup_ns) * share * y
            for number in self.problem.before[index]
            for ys, hops in zip(self.flows[number], self.problem.edges[number].hops, strict=True)
            for y, hop, option in zip(ys, hops, self.problem.groups[index].options, strict=True)
            if hop and hop.pickup_ns >= self.grain and option.engine == engine and option.share == share
        ]

    def _handed(self, index: int) -> Any:
        paying = [
            [(y, self.grains_of(hop.handoff_ns)) for y, hop in self.hops(number) if hop.handoff_ns >= self.grain]
            for number in self.problem.after[index]
        ]
        paying = [terms for terms in paying if terms]
        if not paying:
            return None
        paid = self.model.new_int_var(0, max(value for terms in paying for _, value in terms), "")
        self.model.add_max_equality(paid, [sum(value * y for y, value in terms) for terms in paying])
        return paid

    def _edges(self) -> None:
        model, problem = self.model, self.problem
        for number, edge in enumerate(problem.edges):
            source, sink = problem.index[edge.source], problem.index[edge.sink]
            hops = self.hops(number)
            delay = sum(self.grains_of(hop.delay_ns) * y for y, hop in hops if hop.delay_ns)
            converting = [(y, hop.engine, self.grains_of(hop.time_ns)) for y, hop in hops if hop.engine]
            for frame in range(problem.groups[source].frames):
                before, after = self.jobs[JobKey(frame, source)], self.jobs[JobKey(frame, sink)]
                if not converting:
                    model.add(after.start >= before.end + delay)
                    continue
                start = model.new_int_var(0, self.horizon, "")
                end = model.new_int_var(0, self.horizon, "")
                alone, duration = sum(time * y for y, _, time in converting), model.new_int_var(0, self.horizon, "")
                model.add(duration >= alone if self.contended else duration == alone)
                model.add(end == start + duration)
                model.add(start >= before.end)
                model.add(after.start >= end + delay)
                key = JobKey(frame, number, True)
                self.jobs[key] = Job(start, end, duration)
                self.conversions[key] = [(y, engine) for y, engine, _ in converting]
                for y, engine, time in converting:
                    size = duration if self.contended else time
                    self.intervals[engine].append((model.new_optional_interval_var(start, size, end, y, ""), 1))
                    self.loads[engine].append(time * y)


PAIRS = 400
"""Maximum number of job pairs whose overlap is modelled; each costs a dozen variables."""

Losses = Mapping[tuple[int, int, int, int], tuple[int, int]]
"""(i, a, j, b) -> losses of groups i and j with options a and b to each other (1 / SCALE of their overlap)."""


def losses_of(problem: Problem) -> Losses:
    """Return the losses of groups to each other; empty if more than `PAIRS` pairs of jobs would be modelled."""
    found = dict[tuple[int, int, int, int], tuple[int, int]]()
    related = successors(problem)
    several = {engine.id for engine in problem.engines if engine.count > 1}
    pairs = 0
    for i, left in enumerate(problem.groups):
        for j in range(i + 1, len(problem.groups)):
            right = problem.groups[j]
            if j in related[i] or i in related[j]:
                continue
            losses = {
                (i, a, j, b): lost
                for a, first in enumerate(left.options)
                for b, second in enumerate(right.options)
                if first.engine != second.engine or first.engine in several
                if any(lost := pair_losses(first, second, problem.bandwidth))
            }
            if losses:
                pairs += left.frames * right.frames
                found.update(losses)
            if pairs > PAIRS:
                return {}
    return found


def add_losses(of: Jobs, stretch: Losses) -> None:
    """Constrain every job to take at least its time alone plus its losses to overlapping jobs."""
    problem, model, groups = of.problem, of.model, of.problem.groups
    losses: dict[tuple[JobKey, str, int], list[Any]] = {}
    for i, j in dict.fromkeys((i, j) for i, _, j, _ in stretch):
        options = [(a, b, lost) for (x, a, y, b), lost in stretch.items() if (x, y) == (i, j)]
        for f in range(groups[i].frames):
            for g in range(groups[j].frames):
                overlap = _overlap(of, JobKey(f, i), JobKey(g, j))
                for side, (key, other) in enumerate(((JobKey(f, i), j), (JobKey(g, j), i))):
                    rows: dict[tuple[str, int], list[tuple[int, Any, int]]] = {}
                    for a, b, lost in options:
                        option = groups[other].options[b if side == 0 else a]
                        # On an engine with several lanes two jobs may run at once: each then bounds separately.
                        single = problem.lanes(option.engine) == 1
                        rows.setdefault((option.engine, -1 if single else other), []).append(
                            (lost[side], of.taken[i][a], b)
                        )
                    for (engine, number), terms in rows.items():
                        part = model.new_int_var(0, of.horizon * SCALE, "")
                        for factor, x, b in terms:
                            if factor:
                                model.add(part >= factor * (overlap - 3)).only_enforce_if([x, of.taken[j][b]])
                        losses.setdefault((key, engine, number), []).append(part)
    for (key, _, _), parts in losses.items():
        group = groups[key.index]
        alone = sum(
            of.grains_of(alone_ns(option, problem.bandwidth)) * x
            for x, option in zip(of.taken[key.index], group.options, strict=True)
        )
        ran = of.jobs[key].over - of.jobs[key].begun
        model.add(ran * SCALE >= alone * SCALE + sum(parts) - 3 * SCALE)


def _overlap(of: Jobs, first: JobKey, second: JobKey) -> Any:
    model, a, b = of.model, of.jobs[first], of.jobs[second]
    overlap = model.new_int_var(0, of.horizon, "")
    low, high = model.new_int_var(0, of.horizon, ""), model.new_int_var(0, of.horizon, "")
    model.add_max_equality(low, [a.begun, b.begun])
    model.add_min_equality(high, [a.over, b.over])
    model.add(overlap >= high - low)
    return overlap


@dataclass(frozen=True, slots=True)
class Answer:
    """The solver's result: optimal | feasible | infeasible | unknown, in terms of the program.

    `bound` holds for the problem (in the objective's unit), `value` is the program's makespan or other objective.
    """

    status: str
    schedule: Schedule | None
    value: int
    bound: int
    starts: Mapping[JobKey, int] = field(default_factory=dict)


class Program(Jobs):
    """A mapping problem as CP-SAT variables and constraints: jobs, contention losses, capacities and limits."""

    def __init__(
        self, problem: Problem, contention: bool = True, grown: Mapping[tuple[int, int], int] | None = None
    ) -> None:
        losses = losses_of(problem) if contention and problem.bandwidth else {}
        super().__init__(problem, bool(losses), grown or {})
        counted = (*all_times(problem), *samplings(problem))
        self.whole = not problem.bandwidth and not any(value % self.grain for value in counted)
        if losses:
            add_losses(self, losses)
        self._capacities()
        self._limits()

    # -- capacities and limits

    def _capacities(self) -> None:
        model, problem = self.model, self.problem
        first = self.grains_of(min(group.release_ns for group in problem.groups))
        self.makespan = model.new_int_var(0, self.horizon, "makespan")
        for engine in problem.engines:
            intervals = self.intervals[engine.id]
            if engine.count == 1:
                model.add_no_overlap([interval for interval, _ in intervals])
            else:
                model.add_cumulative([i for i, _ in intervals], [share for _, share in intervals], engine.count)
            model.add(engine.count * (self.makespan - first) >= sum(self.loads[engine.id]))
        for index, group in enumerate(problem.groups):
            if not problem.after[index]:
                model.add(self.makespan >= self.jobs[JobKey(group.frames - 1, index)].end)

    def _limits(self) -> None:
        model, problem = self.model, self.problem
        for budget in problem.budgets:
            terms = [
                amount * x
                for group, xs in zip(problem.groups, self.taken, strict=True)
                for x, option in zip(xs, group.options, strict=True)
                for name, amount in option.draws
                if name == budget.name
            ]
            terms += [
                amount * y
                for number in range(len(problem.edges))
                for y, hop in self.hops(number)
                for name, amount in hop.draws
                if name == budget.name
            ]
            model.add(sum(terms) <= budget.limit)
        self.latencies: list[Any] = []
        responses: dict[int, Any] = {}
        for need in problem.requirements:
            for end in (problem.index[name] for name in need.ends):
                if end not in responses:
                    group = problem.groups[end]
                    responses[end] = model.new_int_var(0, self.horizon, "")
                    for frame in range(group.frames):
                        release = self.grains_of(group.release_ns + frame * group.period_ns)
                        model.add(responses[end] >= self.jobs[JobKey(frame, end)].end - release)
            total = sum(responses[problem.index[name]] for name in need.ends) + self.grains_of(need.sampling_ns)
            self.latencies.append(total)
            if need.limit_ns is not None:
                # Rounding both ends of a span down can lengthen it by less than a grain.
                limit = need.limit_ns // self.grain
                model.add(total <= (limit if self.whole else limit + len(need.ends) + 1))

    def objective(self, name: str) -> tuple[Any, int]:
        """Return the expression of an objective, and the value of one unit of it."""
        problem = self.problem
        if name == "makespan":
            return self.makespan, self.grain
        if name == "latency":
            pairs = zip(problem.requirements, self.latencies, strict=True)
            return sum(need.weight * latency for need, latency in pairs), self.grain
        if name == "energy":
            terms = [
                option.energy_uj * group.frames * x
                for group, xs in zip(problem.groups, self.taken, strict=True)
                for x, option in zip(xs, group.options, strict=True)
            ]
            for number, edge in enumerate(problem.edges):
                frames = problem.groups[problem.index[edge.source]].frames
                terms += [hop.energy_uj * frames * y for y, hop in self.hops(number) if hop.energy_uj]
            return sum(terms), 1
        top = self.model.new_int_var(0, self.horizon * 10**6, "")
        if name == "interval":
            frames = max(group.frames for group in problem.groups)
            for engine in problem.engines:
                self.model.add(top * engine.count * frames >= sum(self.loads[engine.id]))
            return top, self.grain
        for need, latency in zip(problem.requirements, self.latencies, strict=True):
            if need.limit_ns is not None:
                self.model.add(top * need.limit_ns >= latency * (self.grain * 10**6))
        return top, 1

    # -- solving

    def hint(self, schedule: Schedule, starts: Mapping[JobKey, tuple[int, int]]) -> None:
        """Start the search from a schedule whose jobs have these starts and ends (ns)."""
        model = self.model
        model.clear_hints()
        for row, chosen in zip(self.taken, schedule.choice, strict=True):
            for number, x in enumerate(row):
                model.add_hint(x, int(number == chosen))
        for key, (start, end) in starts.items():
            if key in self.jobs:
                model.add_hint(self.jobs[key].start, self.grains_of(start))
                model.add_hint(self.jobs[key].end, self.grains_of(end))
        model.add_hint(self.makespan, self.grains_of(max(end for _, end in starts.values())))

    def solve(self, objective: str, seconds: float, workers: int, seed: int, floor: int = 0) -> Answer:
        """Minimise one objective; `floor` is a bound already known, in its unit.

        With one worker, or several that take turns (`interleave_search`), the same input gives the same answer unless
        the wall clock ends the search before its deterministic time does.
        """
        expression, unit = self.objective(objective)
        self.model.minimize(expression)
        if floor // unit > 0:
            self.model.add(expression >= floor // unit)
        return self._solved(expression, unit, objective, (seconds, seconds), workers, seed, floor)

    def solve_within(self, clock: Clock, objective: str, seed: int) -> Answer:
        """Minimise one objective with one worker, by an amount of work that the clock counts."""
        expression, unit = self.objective(objective)
        self.model.minimize(expression)
        return self._solved(expression, unit, objective, (clock.left() / PER_SECOND, clock.seconds()), 1, seed, 0)

    def _solved(
        self,
        expression: Any,
        unit: int,
        objective: str,
        limits: tuple[float, float],
        workers: int,
        seed: int,
        floor: int,
    ) -> Answer:
        """Return the answer within limits on deterministic time and on time (s)."""
        solver = self.cp.CpSolver()
        solver.parameters.max_deterministic_time, solver.parameters.max_time_in_seconds = limits
        solver.parameters.num_workers = workers
        solver.parameters.interleave_search = workers > 1
        solver.parameters.random_seed = seed
        status = solver.solve(self.model, *([self._watched(solver, min(limits))] if listening() else []))
        spent = float(solver.response_proto.deterministic_time)
        count(math.ceil(spent * PER_SECOND))
        names = {self.cp.OPTIMAL: "optimal", self.cp.FEASIBLE: "feasible", self.cp.INFEASIBLE: "infeasible"}
        name = names.get(status, "unknown")
        if name not in ("optimal", "feasible"):
            return Answer(name, None, 0, 0)
        bound = max(math.ceil(solver.best_objective_bound - 1e-6) * unit - self._slip(objective), floor)
        value = round(solver.objective_value)
        starts = {
            key: solver.value(job.start)
            for key, job in self.jobs.items()
            if not key.conversion or any(solver.value(y) for y, _ in self.conversions[key])
        }
        choice = tuple(next(n for n, x in enumerate(row) if solver.value(x)) for row in self.taken)
        place = {group: position for position, group in enumerate(self.problem.order)}
        order = sorted(starts, key=lambda key: (starts[key], self._rank(key, place), key))
        self.best = (expression, value)
        return Answer(name, Schedule(choice, tuple(order)), value * unit, bound, starts)

    def _watched(self, solver: Any, seconds: float) -> Any:
        """Report the gap whenever a better solution or bound is found; return the callback for the solver."""
        started, found = monotonic(), dict[str, float]()

        def told() -> None:
            detail = ""
            if len(found) == 2 and found["value"]:
                gap = (found["value"] - found["bound"]) / abs(found["value"])
                detail = f"gap {gap:.1%}"
            tell("proving", monotonic() - started, seconds, "s", detail)

        def risen(bound: float) -> None:
            found["bound"] = bound
            told()

        class Better(self.cp.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                found["value"], found["bound"] = self.objective_value, self.best_objective_bound
                told()

        told()
        solver.best_bound_callback = risen
        return Better()

    def _slip(self, objective: str) -> int:
        """Return the amount by which rounding may raise an objective above that of the schedule it stands for."""
        needs = self.problem.requirements
        if self.whole or objective in ("makespan", "energy", "interval"):
            return 0
        if objective == "latency":
            return self.grain * sum(need.weight * (len(need.ends) + 1) for need in needs)
        tight = min((need.limit_ns for need in needs if need.limit_ns), default=1)
        return -(-self.grain * 10**6 * max(len(need.ends) + 1 for need in needs) // tight)

    def keep(self) -> None:
        """Constrain later solutions to be no worse in the objective solved last."""
        expression, value = self.best
        self.model.add(expression <= value)

    def exclude(self, choice: Sequence[int]) -> None:
        """Exclude one choice of options."""
        self.model.add_bool_or([row[number].negated() for row, number in zip(self.taken, choice, strict=True)])

    def _rank(self, key: JobKey, place: Mapping[int, int]) -> tuple[int, int, bool]:
        """Return the order of jobs that start together, as jobs without duration may: by frame, then by precedence."""
        index = self.problem.index[self.problem.edges[key.index].sink] if key.conversion else key.index
        return key.frame, place[index], not key.conversion


def conflict(problem: Problem, clock: Clock = NO_CLOCK, seed: int = 0) -> tuple[str, ...]:
    """Return a minimal set of limits that cannot hold together, by deletion; () if infeasibility was not proved.

    The limits are those of requirements and budgets; a limit stays in the set unless the rest is infeasible without it.
    Source: Chinneck & Dravnieks, "Locating minimal infeasible constraint sets", ORSA J. Computing 3(2), 1991.
    """
    names = [need.name for need in problem.requirements if need.limit_ns is not None]
    names += [budget.name for budget in problem.budgets]
    each = clock.left() / (len(names) + 1)
    if not _infeasible(problem, names, clock.next(each), seed):
        return ()
    kept = list(names)
    for name in names:
        rest = [other for other in kept if other != name]
        if _infeasible(problem, rest, clock.next(each), seed):
            kept = rest
    return tuple(kept)


def _infeasible(problem: Problem, names: list[str], clock: Clock, seed: int) -> bool:
    kept = replace(
        problem,
        requirements=tuple(
            need if need.name in names else replace(need, limit_ns=None) for need in problem.requirements
        ),
        budgets=tuple(budget for budget in problem.budgets if budget.name in names),
        objectives=("makespan",),
    )
    return Program(kept).solve_within(clock, "makespan", seed).status == "infeasible"
