"""A whole plan under its own analysis: responses of tasks, bounds of chains, and unmet requirements.

There is one analysis a policy, as one bound for both would be unsound for one of them: holistic response times under
fixed priorities, under EDF the demand of connected sets of lanes and holistic response times.  Windows of paths then
shorten the bounds of either.  Traffic of tasks that cannot run together leaves a WCET only after bounds with it have
shown that (`Corunning`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from socsched.cost.contention import ContentionModel, contention_model
from socsched.deadline import check
from socsched.planning.execution import slowed_by_lanes, with_wcet
from socsched.planning.plan import ChainResult, Plan, PlannedEngine, Task, Violation
from socsched.schedulability import edf, path_windows
from socsched.schedulability.chains import Sources, Stretch, data_age, reaction_time
from socsched.schedulability.holistic import holistic
from socsched.schedulability.tasks import Names, Response, RtTask, longest_segment, relatives, topological

Quieter = Callable[[Mapping[str, RtTask], Mapping[str, Response]], dict[str, RtTask] | None]
"""Tasks and responses that hold -> the tasks with the shorter execution times that follow, None if none is."""
DEMAND = "local deadlines (EDF demand bound)"
FIXED = "response times of fixed priorities, holistic"


@dataclass(frozen=True, slots=True)
class Whole:
    """Responses by the policy's simplest test (`own`; EDF: local deadlines), `holistic`, and the shortest, `tight`."""

    own: Mapping[str, Response]
    holistic: Mapping[str, Response]
    tight: Mapping[str, Response]

    def test(self, name: str, policy: str) -> str:
        """Return the name of the analysis that bounds a task, empty if none does."""
        if not self.tight[name].bounded:
            return ""
        if path_windows.bounds(self.tight[name]):
            return path_windows.NAME
        if policy != "edf":
            return FIXED
        mine = self.own[name]
        return DEMAND if mine.bounded and mine.value <= self.tight[name].value else edf.HOLISTIC


def respond(
    policy: str,
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None = None,
    quieter: Quieter | None = None,
) -> Whole:
    """Return the responses of tasks under ``edf`` or ``fp``; `deadlines` (ns) replace their own under EDF.

    `quieter` shortens execution times that include traffic which the responses exclude.
    """
    simple = respond_simply(policy, tasks, deadlines)
    return replace(simple, tight=shorten(tasks, due_of(policy, tasks, deadlines), simple.holistic, quieter))


def respond_simply(
    policy: str, tasks: Mapping[str, RtTask], deadlines: Mapping[str, int] | None = None, explained: bool = True
) -> Whole:
    """Return the responses of `respond` without windows of paths: `tight` is `holistic`; `explained`: as there."""
    due = due_of(policy, tasks, deadlines)
    if due is None:
        found = holistic(tasks, explained=explained)
        return Whole(found, found, found)
    system = edf.System.of(tasks)
    own = edf.responses(system, due, edf.test(system, due) is None)
    found = edf.holistic_responses(system, due, own)
    return Whole(own, found, found)


def due_of(policy: str, tasks: Mapping[str, RtTask], deadlines: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the local deadlines (ns) under EDF, the tasks' own unless others are given; None under ``fp``."""
    if policy != "edf":
        return None
    return dict(deadlines) if deadlines else {name: task.deadline for name, task in tasks.items()}


def shorten(
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None,
    responses: Mapping[str, Response],
    quieter: Quieter | None,
    like: path_windows.PathSystem | None = None,
) -> dict[str, Response]:
    """Return responses shortened by windows of paths; `deadlines`: under EDF; `quieter` as in `respond`."""
    found = path_windows.tighten(tasks, deadlines, responses, like)
    less = quieter(tasks, found) if quieter else None
    return path_windows.tighten(less, deadlines, found, like) if less else found


def stretches(plan: Plan, chain: ChainResult) -> tuple[Stretch, ...]:
    """Return the data-triggered stretches of a plan's chain."""
    return _sources(plan).stretches(chain.path)


_LATEST: list[tuple[Plan, Sources]] = []


def _sources(plan: Plan) -> Sources:
    """Return the sources of a plan; those of the last plan are kept, since all of its chains ask for them."""
    kept = _LATEST[0] if _LATEST else None
    if kept is None or kept[0] is not plan:
        kept = plan, Sources.of(plan.tasks, plan.sensors)
        _LATEST[:] = [kept]
    return kept[1]


def chain_bounds(plan: Plan, responses: Mapping[str, Response]) -> dict[str, tuple[int | None, int | None]]:
    """Return the bounds (ns) on reaction time and data age of every chain, None where there is none."""
    result = {}
    sources = Sources.of(plan.tasks, plan.sensors)
    for chain in plan.chains:
        parts = sources.stretches(chain.path)
        reaction, age = reaction_time(parts, responses), data_age(parts, responses)
        result[chain.name] = (reaction[0] if reaction[1] else None, age[0] if age[1] else None)
    return result


def without_contradictions(plan: Plan) -> Plan:
    """Return a plan without bounds below the expected latency of their chain, which no bound can be.

    A feasible plan that loses a bound is undecided, with the contradiction as its reason.
    """
    wrong = [chain for chain in plan.chains if chain.bound_ns is not None and chain.bound_ns < chain.expected_ns]
    if not wrong:
        return plan
    kept = tuple(replace(chain, bound_ns=None, test="") if chain in wrong else chain for chain in plan.chains)
    found = tuple(
        Violation(
            f"bound of chain {chain.name}, withdrawn because its expected latency is longer",
            chain.expected_ns,
            chain.bound_ns or 0,
            chain.expected_ns - (chain.bound_ns or 0),
            "ns",
            (("expected latency", chain.expected_ns),),
            (),
        )
        for chain in wrong
    )
    verdict = "undecided" if plan.verdict == "feasible" else plan.verdict
    return replace(plan, chains=kept, violations=(*plan.violations, *found), verdict=verdict)


def unmet(plan: Plan, responses: Mapping[str, Response]) -> list[str]:
    """Return the names of requirements not proved by responses (ns from nominal releases)."""
    found = []
    bounds = chain_bounds(plan, responses)
    for chain in plan.chains:
        reaction, age = bounds[chain.name]
        if reaction is None or reaction > chain.deadline_ns:
            found.append(f"deadline of chain {chain.name}")
        if chain.max_age_ns is not None and (age is None or age > chain.max_age_ns):
            found.append(f"data age of chain {chain.name}")
    sources = Sources.of(plan.tasks, plan.sensors)
    for task in plan.tasks:
        answer = responses[task.name]
        if not answer.bounded or answer.value > sources.room(task):
            found.append(f"queue of {task.name} ({task.queue} may wait)")
        elif plan.policy == "edf" and task.on_late != "continue" and answer.value > task.deadline_ns:
            found.append(f"local deadline of {task.name}, after which its jobs {task.on_late}")
    return found


_Apart = tuple[tuple[str, Set[str]], ...]
"""Tasks with those that never run concurrently."""


@dataclass(slots=True)
class Corunning:
    """The tasks, engines and contention model from which execution times follow; results are kept.

    `modelled`: whether the times of all tasks are those of the model.
    """

    tasks: Sequence[Task]
    engines: Sequence[PlannedEngine]
    contention: ContentionModel
    modelled: bool = False
    _near: Mapping[str, Set[str]] = field(default_factory=dict)
    _groups: Sequence[Sequence[str]] = ()
    _begins: Mapping[str, int] = field(default_factory=dict)
    _done: dict[_Apart, dict[str, tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> Corunning:
        """Return the co-running of a plan's tasks."""
        kinds = {engine.id: engine.kind for engine in plan.engines}
        return Corunning(plan.tasks, plan.engines, contention_model(plan.contention, plan.dram_bandwidth, kinds))

    def without_absent(
        self, tasks: Mapping[str, RtTask], responses: Mapping[str, Response]
    ) -> dict[str, RtTask] | None:
        """Return the tasks with times that hold if `responses` do, None if no time is shorter.

        `tasks` have the times of the plan or longer ones.  A time that does not follow from the model stays.
        """
        if not self._groups:
            self._near, self._groups, self._begins = relatives(tasks), _groups(tasks), _begins(tasks)
        apart = tuple(pair for group in self._groups for pair in self._apart(group, tasks, responses) if pair[1])
        if apart not in self._done:
            self._done[apart] = self._saved(dict(apart)) if apart else {}
        saved = self._done[apart]
        if not saved:
            return None
        return {
            name: replace(task, wcet=task.wcet - saved[name][0], segment=task.segment - saved[name][1])
            if name in saved
            else task
            for name, task in tasks.items()
        }

    def _apart(self, group: Sequence[str], tasks: Mapping[str, RtTask], responses: Mapping[str, Response]) -> _Apart:
        """Return which tasks of a common phase never run concurrently: each runs from its begin to its response."""
        bounded = [name for name in group if responses[name].bounded]
        ends = {name: tasks[name].offset + responses[name].value for name in bounded}
        begins, near = self._begins, self._near
        period = tasks[group[0]].period
        together = len({begins[name] for name in group}) == 1 and len(bounded) == len(group)
        if together and max(ends.values()) - begins[group[0]] <= period:
            return tuple((name, near[name]) for name in group)

        def apart(one: str, kin: Set[str], other: str) -> bool:
            if one == other or tasks[other].period != tasks[one].period:
                return False
            if other in kin:  # one after the other, and before the next frame
                return max(ends[one] - begins[other], ends[other] - begins[one]) <= tasks[one].period
            if tasks[one].sporadic or tasks[other].sporadic:
                return False
            later = (begins[other] - ends[one]) // period  # `one` ends that many periods before `other` begins
            return ends[other] <= begins[one] + (later + 1) * period

        number = {name: place for place, name in enumerate(tasks)}

        def never_with(one: str) -> Names:
            check()
            kin = frozenset(near[one])
            return Names.of(number, (other for other in bounded if apart(one, kin, other)))

        return tuple((one, never_with(one)) for one in bounded)

    def _saved(self, without: Mapping[str, Set[str]]) -> dict[str, tuple[int, int]]:
        full = self.tasks
        if not self.modelled:
            full = slowed_by_lanes(with_wcet(self.tasks, self.contention), self.engines)
        engines = {engine.id: engine for engine in self.engines}
        less = slowed_by_lanes(with_wcet(self.tasks, self.contention, apart=without), self.engines)
        found = {}
        for given, worst, task in zip(self.tasks, full, less, strict=True):
            if task.wcet_ns < worst.wcet_ns == given.wcet_ns:
                engine = engines[task.engine]
                before = longest_segment(given, engine.preemption, engine.in_flight)
                after = longest_segment(task, engine.preemption, engine.in_flight)
                found[task.name] = worst.wcet_ns - task.wcet_ns, max(before - after, 0)
        return found


def _groups(tasks: Mapping[str, RtTask]) -> list[list[str]]:
    """Return the tasks by sources of a common phase."""
    found: dict[str, list[str]] = {}
    for name, source in path_windows.sources_of(tasks).items():
        found.setdefault(source, []).append(name)
    return list(found.values())


def _begins(tasks: Mapping[str, RtTask]) -> dict[str, int]:
    """Return when the first job of each task may begin (ns): once its sources have, if all others take no time."""
    found: dict[str, int] = {}
    for name in topological(tasks):
        task = tasks[name]
        before = [found[other] for other in task.after if other in tasks]
        found[name] = max([task.offset, *before, *(arrival.offset for arrival in task.arrivals)])
    return found
