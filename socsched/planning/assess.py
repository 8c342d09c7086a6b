"""Analyse a deployment under a policy: deadlines, priorities, responses, bounds and expected latencies of chains.

Local deadlines divide a chain's deadline in proportion to weights along the longest path through a task (Kao &
Garcia-Molina, IEEE TPDS 8(12) 1997, "proportional" subtask deadlines); priorities are deadline monotonic (Leung &
Whitehead 1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.deadline import check
from socsched.descriptor.pipeline import Pipeline
from socsched.graph.taskgraph import TaskGraph
from socsched.planning.deployment import Deployment
from socsched.planning.plan import ChainResult, Task
from socsched.planning.task import changed
from socsched.planning.workload import MOST_RESULTS, MOST_TERMS, NOTHING, Observed
from socsched.schedulability import edf, path_windows
from socsched.schedulability.chains import Sources, Stretch, data_age, reaction_time
from socsched.schedulability.holistic import assign_priorities, holistic
from socsched.schedulability.plan_analysis import DEMAND, FIXED, Corunning, Quieter, shorten
from socsched.schedulability.published.earliest_deadline_first import Overload
from socsched.schedulability.tasks import (
    Lane,
    Response,
    RtTask,
    activation,
    convert,
    timer_jitter,
    topological,
    upstream,
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit (ns) on the summed responses, after nominal releases, of tasks that end data-triggered stretches."""

    ends: tuple[str, ...]
    budget: int


def requirements(pipeline: Pipeline, tasks: Sequence[Task], sources: Sources | None = None) -> list[Requirement]:
    """Return the requirements on responses: those of every chain, and that no task's queue overflows.

    They order deployments; a chain's own bound, which may be shorter, decides whether it meets its requirements.
    """
    sources, result = sources or Sources.of(tasks, pipeline.sensors), []
    for chain in pipeline.chains:
        parts = sources.stretches(chain.path)
        ends = tuple(part.last for part in parts if part.last)
        begun = sum(part.lead for part in parts)
        waits = sum(part.period for part in parts[1:])
        result.append(Requirement(ends, chain.deadline_ns - waits + begun + parts[0].jitter * bool(parts[0].last)))
        for index in range(1, len(parts)):  # the first samplings may wait for a timer that begins late
            first = parts[index].begin - parts[0].begin
            if first > sum(part.period for part in parts[1 : index + 1]):
                rest = first + sum(part.period for part in parts[index + 1 :])
                later = sum(part.lead for part in parts[index:])
                result.append(Requirement(ends[-len(parts) + index :], chain.deadline_ns - rest + later))
        if chain.max_age_ns is not None:
            kept = sum(part.period for part in parts[:-1]) + (0 if parts[0].last else parts[0].jitter)
            arrived = parts[0].jitter if len(parts) == 1 else 0
            result.append(Requirement(ends, chain.max_age_ns - kept + begun + arrived))
    return [*result, *(Requirement((task.name,), sources.room(task)) for task in tasks)]


def local_deadlines(
    tasks: Mapping[str, RtTask], needs: Sequence[Requirement], weights: Mapping[str, int]
) -> dict[str, int]:
    """Divide every requirement in proportion to `weights`; the tightest share of a task counts."""
    order = topological(tasks)
    before = _longest_before(tasks, order, weights)
    result = {name: 64 * task.period for name, task in tasks.items()}
    for need in needs:
        check()
        total = sum(before[end] for end in need.ends)
        after = need.budget - sum(tasks[end].release_jitter for end in need.ends)  # from the latest releases
        for end in need.ends:
            budget = max(after, total) * before[end] // max(total, 1)
            for name, behind in _ancestors(tasks, end, weights).items():
                way = before[name] + behind
                result[name] = min(result[name], max(budget * before[name] // max(way, 1), 1))
    return result


def _longest_before(tasks: Mapping[str, RtTask], order: Sequence[str], weights: Mapping[str, int]) -> dict[str, int]:
    longest: dict[str, int] = {}
    for name in order:
        longest[name] = weights[name] + max((longest[p] for p in tasks[name].after if p in tasks), default=0)
    return longest


def _ancestors(tasks: Mapping[str, RtTask], end: str, weights: Mapping[str, int]) -> dict[str, int]:
    """Return `end` and the tasks that trigger it, each with the weight of the longest path that follows it."""
    behind = {end: 0}
    queue = [end]
    while queue:
        name = queue.pop(0)
        for before in tasks[name].after:
            if before in tasks and behind[name] + weights[name] > behind.get(before, -1):
                behind[before] = behind[name] + weights[name]
                queue.append(before)
    return behind


def weightings(tasks: Mapping[str, RtTask]) -> list[dict[str, int]]:
    """Return the weightings of tasks: by WCET; and by WCET plus the longest segment that can block them."""
    longest: dict[Lane, list[RtTask]] = {}
    for task in sorted(tasks.values(), key=lambda task: -task.segment):
        for lane in task.lanes:
            longest.setdefault(lane, []).append(task)
    blocked = {
        name: max((next((t.segment for t in longest[lane] if t is not task), 0) for lane in task.lanes), default=0)
        for name, task in tasks.items()
    }
    return [
        {name: task.wcet for name, task in tasks.items()},
        {name: task.wcet + blocked[name] for name, task in tasks.items()},
    ]


def priorities(deadlines: Mapping[str, int]) -> dict[str, int]:
    """Return unique priorities, 0 highest, by local deadline (ties in the given order)."""
    ranked = sorted(deadlines, key=lambda name: deadlines[name])
    return {name: index for index, name in enumerate(ranked)}


def expected_latencies(
    graph: TaskGraph, tasks: Sequence[Task], observed: Observed = NOTHING, sources: Sources | None = None
) -> dict[str, int]:
    """Return the latency (ns) of every chain: without interference, except for what was observed.

    `sources`: of the tasks, if they are known.
    """
    sources, observed = sources or Sources.of(tasks, graph.pipeline.sensors), observed.beside(tasks)
    known: dict[str, int] = {}
    for task in tasks:  # those of a deployment are in order; `expected_end` finds what others lack
        if task.timer or all(other in known or other not in sources.tasks for other in task.after):
            known[task.name] = _end(task, sources, known, observed)
    return {
        chain.name: expected_latency(sources.stretches(chain.path), sources, known, observed)
        + observed.offset_ns.get(chain.name, 0)
        for chain in graph.pipeline.chains
    }


def expected_latency(
    parts: Sequence[Stretch], sources: Sources, known: dict[str, int], observed: Observed = NOTHING
) -> int:
    """Return the latency (ns): critical paths, plus half a period wherever data are sampled.

    `known` caches the results of `expected_end`.
    """
    total = 0
    for index, part in enumerate(parts):
        total += part.period // 2 if index else 0
        total += expected_end(part.last, sources, known, observed) - part.begin if part.last else 0
    return total


def expected_end(name: str, sources: Sources, known: dict[str, int], observed: Observed = NOTHING) -> int:
    """Return when the first frame of a task ends (ns) if it never waits: offsets and costs along the longest path.

    `known` caches results: in a network cut into parts, the number of paths multiplies.
    """
    tasks = sources.tasks

    def before(name: str) -> Iterable[str]:
        return () if tasks[name].timer else (other for other in tasks[name].after if other in tasks)

    if name not in known:
        for each in upstream(name, before, known):
            known[each] = _end(tasks[each], sources, known, observed)
    return known[name]


def _end(task: Task, sources: Sources, known: Mapping[str, int], observed: Observed) -> int:
    if task.timer:
        begin = task.offset_ns
    else:
        begin = max([known[n] if n in known else sources.sensors[n].offset_ns for n in task.after])
    return begin + task.cost_ns + observed.extra(task.name, task.engine)


@dataclass(frozen=True, slots=True)
class Age:
    """The limiting data age of a chain: the bound (ns) if there is one, and the terms that add up to `value`."""

    value: int
    bounded: bool
    terms: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The analysis result of a deployment.

    `responses` by task; `ages` by chain; `overload`: an interval in which EDF cannot meet the required local deadlines,
    if no deadlines could be found for that reason.
    """

    tasks: tuple[Task, ...]
    responses: Mapping[str, Response]
    chains: tuple[ChainResult, ...]
    ages: Mapping[str, Age]
    overload: Overload | None


@dataclass(frozen=True, slots=True)
class _Choice:
    """Local deadlines or priorities with the responses that follow; `load`: the share of the worst budget used."""

    deadlines: dict[str, int]
    responses: dict[str, Response]
    load: float
    rank: dict[str, int]
    overload: Overload | None = None


def assess(deployment: Deployment, thorough: bool = True) -> Assessment:
    """Set deadlines and priorities and run the analysis; `thorough` spends more steps on tight EDF deadlines."""
    workload = deployment.workload
    places = tuple((task.lanes, task.wcet_ns) for task in deployment.tasks)
    key = (workload.key(), tuple(deployment.mapping.values()), places, thorough)
    results = workload.results.analyses
    assessment = results.get(key)
    if assessment is None:
        graph, tasks = workload.graph, deployment.tasks
        rt = convert(tasks, workload.engines(), workload.sensors())
        needs = requirements(graph.pipeline, tasks, workload.sources(tasks))
        quieter = Corunning(tasks, workload.engines(), workload.contention(), True).without_absent
        if workload.policy == "edf":
            movable = all(task.on_late == "continue" for task in tasks)
            choice = _edf(rt, needs, 12 if thorough else 5, movable, quieter)
        else:
            choice = _fp(rt, needs, thorough, quieter)
        late, responses = timer_jitter(tasks), choice.responses
        tasks = tuple(
            changed(
                task,
                deadline_ns=_deadline(task, choice.deadlines[task.name], responses[task.name], workload.policy)
                + late[task.name],
                priority=choice.rank[task.name],
                jitter_ns=_jitter(responses, task.name, rt),
            )
            for task in tasks
        )
        chains, ages = _chains(graph, workload.sources(tasks), responses, workload.policy)
        assessment = Assessment(tasks, responses, chains, ages, choice.overload)
        terms = sum(len(response.terms) for response in responses.values())
        if len(results) < min(MOST_RESULTS, MOST_TERMS // max(terms, 1)):
            results[key] = assessment
    if workload.observed is NOTHING:
        return assessment
    tasks = assessment.tasks
    expected = expected_latencies(workload.graph, tasks, workload.observed, workload.sources(tasks))
    chains = tuple(replace(chain, expected_ns=expected[chain.name]) for chain in assessment.chains)
    return replace(assessment, chains=chains)


def unanalysed(deployment: Deployment) -> Assessment:
    """Return what is known of a deployment that there was no time to analyse: no task has a bound.

    Its responses (ns) are those of jobs that nothing delays.
    """
    workload, tasks = deployment.workload, deployment.tasks
    rt = convert(tasks, workload.engines(), workload.sensors())
    finish, responses = dict[str, int](), dict[str, Response]()
    for name in topological(rt):
        at = activation(rt[name], rt, finish)
        finish[name] = at.jitter + rt[name].wcet
        responses[name] = Response(finish[name], False, (*at.terms, ("wcet", rt[name].wcet)), at.via)
    late = timer_jitter(tasks)
    tasks = tuple(
        changed(
            task,
            deadline_ns=task.period_ns + late[task.name],
            priority=rank,
            jitter_ns=_jitter(responses, task.name, rt),
        )
        for rank, task in enumerate(tasks)
    )
    sources = workload.sources(tasks)
    chains, ages = _chains(workload.graph, sources, responses, workload.policy)
    return Assessment(tasks, responses, chains, ages, None)


def _deadline(task: Task, deadline: int, response: Response, policy: str) -> int:
    """Return a task's deadline from its latest release; a task that drops late jobs gets all the time it may need.

    Under fixed priorities a local deadline does not order jobs, and a chain may meet its own deadline although a local
    one is exceeded.  Dropping the job then would invalidate the bounds of chains that sample it.  EDF keeps the
    deadlines it was given.
    """
    if policy == "edf" or task.on_late not in ("skip", "abort") or not response.bounded:
        return deadline
    return max(deadline, response.value)


def _jitter(responses: Mapping[str, Response], name: str, tasks: Mapping[str, RtTask]) -> int:
    via = responses[name].via
    if not via:
        return tasks[name].release_jitter
    return max(responses[via].value + tasks[via].offset - tasks[name].offset, tasks[name].release_jitter)


def _fp(tasks: Mapping[str, RtTask], needs: Sequence[Requirement], thorough: bool, quieter: Quieter) -> _Choice:
    """Return the result of the priorities that meet the requirements best.

    These are deadline-monotonic in two weightings.  A `thorough` search goes on where they fail: by Audsley's
    algorithm, and with budgets divided in proportion to the responses found (Gutiérrez García, González Harbour,
    "Optimized priority assignment for tasks and messages in distributed hard real-time systems", WPDRTS 1995).
    """
    best: _Choice | None = None
    for weights in weightings(tasks):
        deadlines = local_deadlines(tasks, needs, weights)
        best = _better(best, tasks, needs, deadlines, priorities(deadlines), thorough, quieter)
    assert best is not None
    if thorough and 1 < best.load <= _NEAR:
        options = list(weightings(tasks))
        for turn in range(_TURNS):
            for weights in options if turn == 0 else [_own(best.responses, tasks)]:
                deadlines = local_deadlines(tasks, needs, weights)
                found = _better(None, tasks, needs, deadlines, assign_priorities(tasks, deadlines), True, quieter)
                plain = _better(found, tasks, needs, deadlines, priorities(deadlines), True, quieter)
                best = min(best, plain, key=lambda choice: choice.load)
            if best.load <= 1:
                break
    return best


_TURNS = 6
"""Divisions of the budgets tried by `_fp` where the first fails."""


def _better(
    best: _Choice | None,
    tasks: Mapping[str, RtTask],
    needs: Sequence[Requirement],
    deadlines: dict[str, int],
    rank: dict[str, int],
    thorough: bool,
    quieter: Quieter,
) -> _Choice:
    ranked = _ranked(tasks, deadlines, rank)
    responses, load = _windows(ranked, None, holistic(ranked), needs, thorough, quieter)
    return _Choice(deadlines, responses, load, rank) if best is None or load < best.load else best


def _own(responses: Mapping[str, Response], tasks: Mapping[str, RtTask]) -> dict[str, int]:
    """Return the part of every response (ns) that follows the task's activation, as weights."""
    return {name: max(sum(value for _, value in responses[name].terms), task.wcet, 1) for name, task in tasks.items()}


def _ranked(tasks: Mapping[str, RtTask], deadlines: Mapping[str, int], rank: Mapping[str, int]) -> dict[str, RtTask]:
    return {n: replace(t, deadline=deadlines[n], priority=rank[n]) for n, t in tasks.items()}


def _load(needs: Sequence[Requirement], finish: Mapping[str, int], responses: Mapping[str, Response]) -> float:
    """Return the share of its budget that the worst requirement uses; every unbounded response adds a heavy penalty."""
    used = [sum(finish[end] for end in need.ends) / max(need.budget, 1) for need in needs]
    lost = sum(not response.bounded for response in responses.values())
    return max(used, default=0.0) + 1000.0 * lost


def _windows(
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None,
    responses: dict[str, Response],
    needs: Sequence[Requirement],
    thorough: bool,
    quieter: Quieter,
) -> tuple[dict[str, Response], float]:
    """Return responses and their load, shortened by windows of paths if `thorough` or if this may meet requirements."""
    load = _load(needs, {name: response.value for name, response in responses.items()}, responses)
    if thorough or 1 < load <= _FAR:
        responses = shorten(tasks, deadlines, responses, quieter)
        load = _load(needs, {name: response.value for name, response in responses.items()}, responses)
    return responses, load


def _edf(
    tasks: Mapping[str, RtTask], needs: Sequence[Requirement], steps: int, movable: bool, quieter: Quieter
) -> _Choice:
    """Try several sets of local deadlines (proportional, and fixed-priority responses) and keep the best-fitting one.

    `movable`: no job is dropped at its local deadline, so a response may be longer.
    """
    system = edf.System.of(tasks)
    options = [local_deadlines(tasks, needs, weights) for weights in weightings(tasks)]
    first = options[0]
    rank = priorities(first)
    # Hopeless tasks delay no others, and computing their responses takes longer than all the rest.
    rest = {name: task for name, task in tasks.items() if name not in system.hopeless}
    fixed = holistic(_ranked(rest, first, rank), explained=False)
    if all(response.bounded for response in fixed.values()):
        options.append({**first, **{name: max(fixed[name].value - tasks[name].release_jitter, 1) for name in rest}})
    everybody = frozenset(tasks) - system.hopeless
    best: tuple[float, dict[str, int], float] | None = None
    for deadlines in options:
        factor = edf.smallest_factor(system, deadlines, everybody, steps)
        if factor is not None:
            tight = edf.scale_deadlines(system, deadlines, dict.fromkeys(everybody, factor))
            load = max(
                sum(tight[end] + tasks[end].release_jitter for end in need.ends) / max(need.budget, 1) for need in needs
            )
            if best is None or load < best[0]:
                best = load, tight, factor
    overload = edf.test(system, first)
    if best is None:
        picked = _respond(system, needs, first, False, movable, steps > 5, quieter)
    else:
        tight = _tighten(system, best[1], steps) if steps > 5 else best[1]
        picked = _respond(system, needs, tight, True, movable, steps > 5, quieter)
    if movable and steps > 5 and 1 < picked.load <= _NEAR:
        # Local deadlines that fail the demand test still order jobs: the responses decide whether chains hold.
        more = [
            _respond(system, needs, option, edf.test(system, option) is None, True, True, quieter) for option in options
        ]
        picked = min([picked, *more], key=lambda choice: choice.load)
    late = picked.load > 1 and (best is None or best[0] > 1)
    rank = rank if best is None else priorities(picked.deadlines)
    return replace(picked, rank=rank, overload=overload if late else None)


_NEAR = 2.0
"""Load up to which more local deadlines are tried; a larger excess has other causes."""
_FAR = 4.0
"""Load up to which windows of paths may make the difference; under EDF they are a third of other bounds at times."""


def _respond(
    system: edf.System,
    needs: Sequence[Requirement],
    deadlines: dict[str, int],
    holds: bool,
    movable: bool,
    thorough: bool,
    quieter: Quieter,
) -> _Choice:
    """Return the shorter of local deadlines, where these hold, and responses, with the load on the requirements."""
    own = edf.responses(system, deadlines, holds)
    found = edf.holistic_responses(system, deadlines, own) if holds or movable else own
    return _Choice(deadlines, *_windows(system.tasks, deadlines, found, needs, thorough, quieter), {})


def _tighten(system: edf.System, deadlines: dict[str, int], steps: int) -> dict[str, int]:
    """Tighten the deadlines further group by group; a group is a set of tasks that trigger each other."""
    for group in _triggered_together(system):
        check()
        factor = edf.smallest_factor(system, deadlines, group, steps)
        if factor is not None and factor < 1:
            deadlines = edf.scale_deadlines(system, deadlines, dict.fromkeys(group, factor))
    return deadlines


def _triggered_together(system: edf.System) -> list[frozenset[str]]:
    groups: list[set[str]] = []
    for name in system.order:
        joined = {name}
        for other in [g for g in groups if g & set(system.tasks[name].after)]:
            joined |= other
            groups.remove(other)
        groups.append(joined)
    return [frozenset(group) for group in groups]


def _chains(
    graph: TaskGraph, sources: Sources, responses: Mapping[str, Response], policy: str
) -> tuple[tuple[ChainResult, ...], dict[str, Age]]:
    ends = dict[str, int]()
    results, ages = [], {}
    for chain in graph.pipeline.chains:
        parts = sources.stretches(chain.path)
        value, bounded, terms = reaction_time(parts, responses)
        expected = expected_latency(parts, sources, ends)
        bound = value if bounded else None
        tests = dict.fromkeys(_test(policy, responses[part.last]) for part in parts if part.last)
        test = " and ".join(tests) if bounded else ""
        limits = (chain.deadline_ns, expected, bound, chain.max_age_ns)
        results.append(ChainResult(chain.name, chain.path, *limits, terms, test))
        ages[chain.name] = Age(*data_age(parts, responses))
    return tuple(results), ages


def _test(policy: str, response: Response) -> str:
    if path_windows.bounds(response):
        return path_windows.NAME
    if policy != "edf":
        return FIXED
    return DEMAND if any(term == edf.ALLOWED for term, _ in response.terms) else edf.HOLISTIC
