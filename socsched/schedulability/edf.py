"""EDF over a whole plan: local deadlines are tested component by component, then shrunk as far as the test allows.

A job activated by a predecessor is activated by the predecessor's local deadline at the latest; as the first missed
deadline would require an earlier miss or an overfull interval, testing all components with these windows suffices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from socsched.deadline import check
from socsched.schedulability.native_demand import LARGEST, Demand
from socsched.schedulability.native_responses import Busy
from socsched.schedulability.published.earliest_deadline_first import (
    DemandTask,
    Overload,
    Responses,
    native_answers,
    overload,
)
from socsched.schedulability.published.model import Problem
from socsched.schedulability.tasks import (
    Activation,
    Response,
    RtTask,
    Terms,
    activation,
    as_taskset,
    ceil_div,
    components,
    latest_ns,
    single_resource,
    topological,
)

Deadlines = Mapping[str, int]
ALLOWED = "EDF slack up to local deadline"
"""Term of a response that is a local deadline: the slack beyond the WCET."""


@dataclass(frozen=True, slots=True)
class System:
    """Tasks with all deadline-independent data: components, precedence order, and the hopeless part.

    `hopeless` are tasks on overutilised lanes, and everything such tasks can delay.
    """

    tasks: Mapping[str, RtTask]
    groups: tuple[tuple[RtTask, ...], ...]
    order: tuple[str, ...]
    hopeless: frozenset[str]
    demand: Demand = field(compare=False, repr=False)

    @staticmethod
    def of(tasks: Mapping[str, RtTask]) -> System:
        """Return the system of these tasks."""
        groups = tuple(tuple(group) for group in components(tasks.values()))
        order, hopeless = tuple(topological(tasks)), _hopeless(tasks, groups)
        return System(tasks, groups, order, hopeless, Demand(tasks, groups, order, hopeless))


def _hopeless(tasks: Mapping[str, RtTask], groups: Sequence[Sequence[RtTask]]) -> frozenset[str]:
    lost: set[str] = set()
    for group in groups:
        for lane in {lane for task in group for lane in task.lanes}:
            if sum(task.utilisation for task in group if lane in task.lanes) > 1 - 1e-9:
                lost |= {task.name for task in group}
    while True:
        reached = {n for n, t in tasks.items() if lost & set(t.after)}
        more = {t.name for group in groups if any(x.name in reached for x in group) for t in group} - lost
        if not more:
            return frozenset(lost)
        lost |= more


def latest_activations(system: System, deadlines: Deadlines) -> dict[str, Activation]:
    """Return the latest activation of every task if all predecessors meet their local deadlines.

    A deadline counts from the actual release, which may itself be late by the release jitter.
    """
    finish = {name: deadlines[name] + system.tasks[name].release_jitter for name in system.order}
    return {name: activation(system.tasks[name], system.tasks, finish) for name in system.order}


def test(system: System, deadlines: Deadlines) -> Overload | None:
    """Return an overfull interval of a component that is not hopeless, None if every job there meets `deadlines`."""
    if system.demand.factor(deadlines, (), -1):
        return None
    jitter = {name: a.jitter for name, a in latest_activations(system, deadlines).items()}
    for group in system.groups:
        check()
        if group[0].name not in system.hopeless:
            found = _test_group(group, deadlines, jitter)
            if found is not None:
                return found
    return None


def _test_group(group: Sequence[RtTask], deadlines: Deadlines, jitter: Mapping[str, int]) -> Overload | None:
    if single_resource(group):
        return overload([_demand_task(t, deadlines, jitter, 1) for t in group])
    lanes = len({lane for task in group for lane in task.lanes})
    if all(task.preemption == "full" for task in group):
        # A job with the earliest deadline always runs, so the component meets its deadlines if one processor would.
        found = overload([_demand_task(t, deadlines, jitter, 2 * lanes) for t in group])
        if found is None:
            return None
    return _test_gangs(group, deadlines, jitter)


def _demand_task(task: RtTask, deadlines: Deadlines, jitter: Mapping[str, int], switches: int) -> DemandTask:
    return DemandTask(
        name=task.name,
        wcet=task.wcet + switches * task.switch,
        period=task.period,
        window=deadlines[task.name] - jitter[task.name],
        deadline=deadlines[task.name],
        segment=task.segment + (task.switch if task.segment else 0),
        release_jitter=task.release_jitter,
    )


def _test_gangs(group: Sequence[RtTask], deadlines: Deadlines, jitter: Mapping[str, int]) -> Overload | None:
    plain = {task.name: _demand_task(task, deadlines, jitter, 0) for task in group}
    for task in group:
        check()
        sharing = [plain[t.name] for t in group if t is not task and t.lanes & task.lanes]
        window = max(plain[task.name].window, 0)
        events = 2 * sum(
            ceil_div(window + deadlines[t.name] + t.release_jitter, t.period) for t in group if t is not task
        )
        found = gang_overload(plain[task.name], sharing, events * len(task.lanes) * task.switch)
        if found is not None:
            return found
    return None


def gang_overload(task: DemandTask, sharing: Sequence[DemandTask], switches: int) -> Overload | None:
    """Return the interval of a job of a gang `task` if it can be overfull, else None.

    The interval of each job holds the demand of every task that shares a lane with it (after Bertogna, Cirinei, Lipari,
    ECRTS 2005, with intersecting lanes instead of all processors).

    `sharing` are the tasks that can keep it from a lane; `switches` (ns) all context switches in the interval.  A job
    due within the interval counts with its whole demand, the earliest one with the part that fits after its start.
    """
    terms = [("wcet", task.wcet)]
    for other in sharing:
        terms.append((f"interference by {other.name}", _gang_demand(other, max(task.window, 0))))
    earlier = max(ceil_div(task.window + task.release_jitter, task.period) - 1, 0)
    terms += [("earlier frames of its own", earlier * task.wcet), ("context switches", switches)]
    terms = [term for term in terms if term[1]]
    need = sum(value for _, value in terms)
    return Overload(task.window, need, tuple(terms)) if need > task.window else None


def _gang_demand(task: DemandTask, interval: int) -> int:
    if task.segment:
        # It cannot be preempted at once, so all its work that may run in the interval counts, due within it or not.
        return ceil_div(interval + task.deadline, task.period) * task.wcet
    whole, rest = divmod(interval + task.release_jitter, task.period)
    return whole * task.wcet + min(task.wcet, rest)


def responses(system: System, deadlines: Deadlines, holds: bool) -> dict[str, Response]:
    """Return local deadlines as responses after the nominal release, unbounded where the test does not hold.

    The terms of a task are its WCET and the rest of its window.
    """
    latest, result = latest_activations(system, deadlines), {}
    for name in system.order:
        task, at = system.tasks[name], latest[name]
        value = deadlines[name] + task.release_jitter
        start = deadlines[at.via] + system.tasks[at.via].release_jitter if at.via else task.release_jitter
        jitter = (("release jitter", task.release_jitter),) if task.release_jitter and not at.via else ()
        terms = (*jitter, ("wcet", task.wcet), (ALLOWED, value - start - task.wcet))
        result[name] = Response(value, holds and name not in system.hopeless, terms, at.via)
    return {name: result[name] for name in system.tasks}


def scale_deadlines(system: System, deadlines: Deadlines, factors: Mapping[str, float]) -> dict[str, int]:
    """Return deadlines times the factors of tasks that have one, rounded, at least 1 ns."""
    return {
        name: max(round(deadlines[name] * factors[name]) if name in factors else deadlines[name], 1)
        for name in system.order
    }


def smallest_factor(system: System, deadlines: Deadlines, names: frozenset[str], steps: int) -> float | None:
    """Return the smallest factor on the deadlines of `names` found to pass by bisection, None if none up to 64 does."""

    if names <= system.hopeless:
        return None
    found = system.demand.factor(deadlines, names, steps)
    if found is not None:
        return found or None

    def passes(factor: float) -> bool:
        return test(system, scale_deadlines(system, deadlines, dict.fromkeys(names, factor))) is None

    high = 1.0
    while not passes(high):
        high *= 1.5
        if high > LARGEST:
            return None
    low = high / 1.5 if high > 1 else 0.0
    for _ in range(steps):
        middle = (low + high) / 2
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


# Responses and activation jitters, iterated until neither grows: Spuri, "Holistic analysis for deadline scheduled
# real-time distributed systems", INRIA RR-2873 1996, as Tindell & Clark 1994 for fixed priorities, with the responses
# of INRIA RR-2772.  Local deadlines only order jobs here; a response may be shorter or longer than its local deadline,
# and is a bound either way. A chain can so meet its deadline although no local deadlines pass a demand test, unless
# jobs are aborted at them; local deadlines as bounds are a third longer.  The iteration may overshoot: any
# self-consistent solution is a bound.

ROUNDS = 30
"""Rounds after which the iteration is abandoned."""
PATIENCE = 10
"""Rounds after which growing holistic_responses are extrapolated, and rounds in which they are then tightened again."""
REACH = 16
"""Multiple of the longest period above which a response counts as unbounded."""
WORK = 20_000
"""Task pairs at arrivals examined per round (some 20 ms); a resource beyond that keeps its local deadlines."""
HOLISTIC = "EDF response times, holistic"
HOLISTIC_SOURCE = (
    "Spuri, INRIA RR-2873 1996, with the responses of INRIA RR-2772; George, Rivierre, Spuri, RR-2966 1996"
)


def holistic_responses(
    system: System, deadlines: Mapping[str, int], own: Mapping[str, Response]
) -> dict[str, Response]:
    """Return the shorter of `own` and the holistic response of every task; `own` where there is no holistic one.

    Resources whose tasks occupy different lanes, or whose releases have jitter of their own, keep their own bounds;
    where these have none, their dependents have none either.
    """
    groups = [group for group in system.groups if _fits(group, system)]
    inside = {task.name for group in groups for task in group}
    lost = {name for name in system.order if name not in inside and not own[name].bounded}
    groups, inside = _reachable(groups, lost)
    finish: dict[str, int] = {}
    for name in system.order:
        start = activation(system.tasks[name], system.tasks, finish).jitter
        finish[name] = start + system.tasks[name].wcet if name in inside else own[name].value
    horizon = REACH * max((task.period for task in system.tasks.values()), default=0)
    starts = {name: response.value for name, response in own.items()}
    step = _Step(system, deadlines, own, groups, inside)
    for turn in range(ROUNDS):
        found = step.values(finish)
        if found is None or any(value > horizon for value in found.values()):
            return dict(own)
        if all(value <= finish[name] for name, value in found.items()):
            finish = step.tightened(finish, found)
            answers = {**own, **step.responses(finish)}
            return {n: _settled(answers[n], answers, finish if n in inside else starts) for n in own}
        # Any self-consistent assignment is a bound, least or not: responses that keep growing are extrapolated.
        more = 1 << min(turn - PATIENCE, 6) if turn >= PATIENCE else 0
        for name, value in found.items():
            grown = max(value - finish[name], 0)
            finish[name] += grown * (1 + more)
    return dict(own)


@dataclass(slots=True)
class _Step:
    """One round of the iteration; results of a resource are kept while its activations stay the same."""

    system: System
    deadlines: Mapping[str, int]
    own: Mapping[str, Response]
    groups: Sequence[Sequence[RtTask]]
    inside: set[str]
    done: dict[int, tuple[tuple[int, ...], Sequence[tuple[int | None, Busy]]]] = field(default_factory=dict)

    def values(self, finish: Mapping[str, int]) -> dict[str, int] | None:
        """Return the responses (ns) if every task finishes by `finish` (ns from its nominal release), None without."""
        tasks = self.system.tasks
        found: dict[str, int] = {}
        for number, group in enumerate(self.groups):
            check()
            jitter = tuple(latest_ns(task, tasks, finish) for task in group)
            if number not in self.done or self.done[number][0] != jitter:
                self.done[number] = jitter, self._answers(group, jitter)
            for task, (value, _) in zip(group, self.done[number][1], strict=True):
                mine = self.own[task.name]
                if value is None:
                    return None
                found[task.name] = mine.value if mine.bounded and mine.value <= value else value
        return found

    def _answers(self, group: Sequence[RtTask], jitter: Sequence[int]) -> Sequence[tuple[int | None, Busy]]:
        whole, due = all(task.preemption == "none" for task in group), self.deadlines
        rows = tuple(
            (
                task.wcet + task.switch,  # each arrival is charged one preemption, to the preempting task
                task.period,
                due[task.name] + task.release_jitter,
                late,
                max(_region(task, whole) - 1, 0),
            )
            for task, late in zip(group, jitter, strict=True)
        )
        found = _of_rows(rows, whole)
        return self._resource(group, jitter).answers if found is None else found

    def _resource(self, group: Sequence[RtTask], jitter: Sequence[int], solved: bool = True) -> Responses:
        latest = {task.name: late for task, late in zip(group, jitter, strict=True)}
        taskset = as_taskset("edf", group, latest, self.deadlines)
        problem = Problem(taskset, taskset.tasks, taskset.ranks, 1)
        return Responses.of(problem, WORK) if solved else Responses.to_come(problem)

    def tightened(self, finish: dict[str, int], found: dict[str, int]) -> dict[str, int]:
        """Return self-consistent bounds, iterated down while that helps; every intermediate one is valid."""
        for _ in range(PATIENCE):
            lower = {**finish, **found}
            more = None if lower == finish else self.values(lower)
            if more is None:
                break
            finish, found = lower, more
        return finish

    def responses(self, finish: Mapping[str, int]) -> dict[str, Response]:
        """Return the responses if every task finishes by `finish` (ns from its nominal release), with their terms."""
        found, result = self.values(finish), dict[str, Response]()
        assert found is not None
        for number, group in enumerate(self.groups):
            resource = replace(self._resource(group, self.done[number][0], False), answers=self.done[number][1])
            for place, task in enumerate(group):
                check()
                at, mine = activation(task, self.system.tasks, finish), self.own[task.name]
                if mine.bounded and mine.value <= (resource.answers[place][0] or 0):
                    terms: Terms = (("wcet", task.wcet), (ALLOWED, mine.value - at.jitter - task.wcet))
                else:
                    terms = resource.terms(place)
                result[task.name] = Response(found[task.name], True, (*at.terms, *terms), at.via)
        return result


def _region(task: RtTask, whole: bool) -> int:
    if whole:
        return task.wcet + task.switch
    return task.segment + task.switch if task.preemption == "segment" else 0


@lru_cache(maxsize=1 << 14)
def _of_rows(rows: tuple[tuple[int, int, int, int, int], ...], whole: bool) -> Sequence[tuple[int | None, Busy]] | None:
    """Return the answers of a resource; kept, as mappings that differ elsewhere ask for the same resources again."""
    return native_answers(rows, whole, WORK)


def _settled(response: Response, answers: Mapping[str, Response], begun: Mapping[str, int]) -> Response:
    """Return a response whose terms begin at its predecessor's final value, not at the assumed one."""
    rest = begun[response.via] - answers[response.via].value if response.via else 0
    return replace(response, terms=(*response.terms, ("release jitter from predecessor", rest))) if rest else response


def _fits(group: Sequence[RtTask], system: System) -> bool:
    alone = single_resource(group) and not any(task.release_jitter for task in group)
    return alone and not any(task.name in system.hopeless for task in group)


def _reachable(groups: list[tuple[RtTask, ...]], lost: set[str]) -> tuple[list[tuple[RtTask, ...]], set[str]]:
    """Return the groups in which no task waits for one without a bound, and their tasks."""
    while True:
        kept = [group for group in groups if not any(lost & set(task.after) for task in group)]
        if len(kept) == len(groups):
            return kept, {task.name for group in kept for task in group}
        lost |= {task.name for group in groups if group not in kept for task in group}
        groups = kept
