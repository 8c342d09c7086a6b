"""The verdict on a plan from the plan alone: bounds computed anew, requirements judged, and what neither covers.

Nothing is taken from the file that follows from other fields: execution times under contention, bounds, violations and
the verdict are recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.cost.contention import contention_model
from socsched.cost.cost import Segment
from socsched.descriptor.limits import Verdict
from socsched.planning.execution import slowed_by_lanes, with_wcet
from socsched.planning.plan import ChainResult, Necessity, Plan, Proof, Task, Theorem, Violation
from socsched.schedulability.chains import data_age, path_terms, reaction_time
from socsched.schedulability.coverage import outside, sources
from socsched.schedulability.high_level import judge_high_level
from socsched.schedulability.plan_analysis import Corunning, Whole, respond, stretches, without_contradictions
from socsched.schedulability.tasks import Response, rt_tasks

SECOND = 10**9
ELSEWHERE = "another mapping of the pipeline may do"
UNCHECKED = (
    "accuracy, memory and jobs that an engine keeps loaded follow from pipeline and platform, not from the tasks of "
    "the plan"
)
"""What `recheck` takes from the file."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """A plan with its verdict, bounds and violations computed anew, and the verdict that the file states.

    `outside`: what no analysis covers (`schedulability.coverage`); then no bound is known.  `changed`: times under
    contention that the file understates.  `whole`: the responses of tasks, where the plan is covered.
    """

    plan: Plan
    stated: str
    outside: tuple[str, ...]
    changed: tuple[str, ...]
    whole: Whole | None = None


def recheck(plan: Plan) -> Recheck:
    """Return the verdict on a plan: feasible if every requirement is proved, infeasible if one cannot be met."""
    timed, changed = with_worst_times(with_limits(plan))
    gaps = outside(timed)
    needed = tuple(_necessities(timed))
    verdict: Verdict = "infeasible" if needed else "undecided"
    proof = Proof("this deployment", f"in any order of its jobs; {ELSEWHERE}", needed) if needed else None
    if not plan.tasks:
        return Recheck(
            plan if plan.verdict == "infeasible" else replace(plan, verdict="undecided"), plan.verdict, gaps, ()
        )
    violated = tuple(one.unmet for one in needed)
    judged = replace(timed, verdict=verdict, violations=violated, solver=replace(timed.solver, proof=proof))
    if gaps:
        bare = tuple(replace(chain, bound_ns=None, terms=(), test="") for chain in timed.chains)
        return Recheck(replace(judged, chains=bare), plan.verdict, gaps, changed)
    whole = respond(timed.policy, rt_tasks(timed), None, Corunning.of(timed).without_absent)
    known = {violation.requirement for violation in violated}
    unproved = tuple(violation for violation in _unproved(timed, whole) if violation.requirement not in known)
    if not needed and not unproved and _bounded(timed, whole.tight):
        judged = judge_high_level(replace(judged, verdict="feasible"), hard_chains(plan))
    chains = tuple(_chain(timed, chain, whole) for chain in timed.chains)
    judged = replace(judged, chains=chains, violations=(*judged.violations, *unproved))
    return Recheck(without_contradictions(judged), plan.verdict, (), changed, whole)


def with_limits(plan: Plan) -> Plan:
    """Return a plan whose chains have the limits that were asked for, where those of the chains are looser."""
    asked = {(one.subject, one.kind): int(one.value) for one in plan.requirements if one.value is not None}

    def limited(chain: ChainResult) -> ChainResult:
        subject = f"chain {chain.name}"
        deadline = min(chain.deadline_ns, asked.get((subject, "deadline"), chain.deadline_ns))
        ages = [age for age in (chain.max_age_ns, asked.get((subject, "max age"))) if age is not None]
        return replace(chain, deadline_ns=deadline, max_age_ns=min(ages, default=None))

    return replace(plan, chains=tuple(map(limited, plan.chains)))


def hard_chains(plan: Plan) -> frozenset[str]:
    """Return the chains that were asked for as hard."""
    hard = (one.subject for one in plan.requirements if one.kind == "criticality" and one.names == ("hard",))
    return frozenset(subject.removeprefix("chain ") for subject in hard if subject.startswith("chain "))


def with_worst_times(plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan whose `wcet_ns` are at least those under its contention model, and the tasks that stated less."""
    whole = tuple(
        task if task.segments else replace(task, segments=(Segment(task.name, task.cost_ns, 0, task.bytes),))
        for task in plan.tasks
    )
    kinds = {engine.id: engine.kind for engine in plan.engines}
    model = contention_model(plan.contention, plan.dram_bandwidth, kinds)
    worst = slowed_by_lanes(with_wcet(whole, model), plan.engines)
    tasks, changed = [], []
    for task, other in zip(plan.tasks, worst, strict=True):
        if other.wcet_ns > task.wcet_ns:
            changed.append(
                f"task {task.name}: wcet_ns is {other.wcet_ns} under the contention of the plan, not {task.wcet_ns}"
            )
        tasks.append(replace(other, wcet_ns=max(task.wcet_ns, other.wcet_ns)))
    return replace(plan, tasks=tuple(tasks)), tuple(changed)


def _chain(plan: Plan, chain: ChainResult, whole: Whole) -> ChainResult:
    """Return a chain with its bound computed anew; the one of the file stays where it is the same."""
    parts = stretches(plan, chain)
    value, bounded, terms = reaction_time(parts, whole.tight)
    if not bounded:
        return replace(chain, bound_ns=None, terms=terms, test="")
    if value == chain.bound_ns and chain.test:
        return chain
    tests = dict.fromkeys(whole.test(part.last, plan.policy) for part in parts if part.last)
    return replace(chain, bound_ns=value, terms=terms, test=" and ".join(tests))


def _bounded(plan: Plan, responses: Mapping[str, Response]) -> bool:
    """Return whether every response, and every reaction and age that is limited, has a bound."""
    if not all(answer.bounded for answer in responses.values()):
        return False
    for chain in plan.chains:
        parts = stretches(plan, chain)
        if not reaction_time(parts, responses)[1]:
            return False
        if chain.max_age_ns is not None and not data_age(parts, responses)[1]:
            return False
    return True


def _unproved(plan: Plan, whole: Whole) -> Iterator[Violation]:
    """Yield the requirements of chains, queues and local deadlines that the bounds do not prove."""
    responses = whole.tight
    origins = sources(plan)
    for chain in plan.chains:
        parts = stretches(plan, chain)
        reaction, age = reaction_time(parts, responses), data_age(parts, responses)
        for text, limit, (value, bounded, terms) in (
            (f"deadline of chain {chain.name}", chain.deadline_ns, reaction),
            (f"data age of chain {chain.name}", chain.max_age_ns, age),
        ):
            if limit is not None and bounded and value > limit:
                yield _violation(text, value, limit, terms, "ns")
    for task in plan.tasks:
        answer = responses[task.name]
        if not answer.bounded:
            continue
        path = tuple(path_terms(task.name, responses))
        room = task.room_ns()
        if answer.value > room:
            yield _violation(f"queue of {task.name} ({task.queue} may wait)", answer.value, room, path, "ns")
        holds = plan.policy == "edf" and whole.own[task.name].bounded  # every job meets its local deadline
        # deadlines count from the release at the source, which only a lone one has a bound from
        late = min(
            [answer.value, *(value for _, value in answer.since)] if len(origins[task.name]) == 1 else [answer.value]
        )
        if task.on_late != "continue" and not holds and late > task.deadline_ns:
            path = (*path, ("counted from the release of its source", late - answer.value))
            yield _violation(
                f"local deadline of {task.name}, after which its jobs {task.on_late}",
                late,
                task.deadline_ns,
                path,
                "ns",
            )


def _necessities(plan: Plan) -> Iterator[Necessity]:
    """Yield what this plan needs more of than there is, whatever the order of its jobs."""
    for engine in plan.engines:
        for lane in range(engine.lanes):
            mine = [
                task
                for task in plan.tasks
                if task.engine == engine.id
                and lane in task.lanes
                and not task.width
                and task.on_late in ("continue", "degrade")  # late jobs of the others may be abandoned
            ]
            work = [(task.name, _least(task) * SECOND // task.period_ns) for task in mine]
            yield from _needed("capacity", f"utilisation of {engine.id} lane {lane}", work, SECOND, "ns/s")
    by_name = {task.name: task for task in plan.tasks}
    for chain in plan.chains:
        path = [(f"{name}: shortest planned time", _least(by_name[name])) for name in chain.path if name in by_name]
        yield from _needed("path", f"deadline of chain {chain.name}", path, chain.deadline_ns, "ns")
    traffic = [(task.name, task.bytes * SECOND // task.period_ns) for task in plan.tasks]
    traffic += [(sensor.name, sensor.bytes_per_frame * SECOND // sensor.period_ns) for sensor in plan.sensors]
    caps = plan.power.cap_mw, plan.bandwidth.cap_gbps, plan.memory.capacity_bytes
    if caps[0] is not None:
        yield from _needed("power", "mean power", _power(plan, sum(size for _, size in traffic)), int(caps[0]), "mW")
    if caps[1] is not None:
        yield from _needed("traffic", "DRAM traffic", traffic, round(caps[1] * 1e9), "B/s")
    if caps[2] is not None:
        stated = [("as the file states", int(plan.memory.needed_bytes or 0))]
        yield from _needed("memory", "memory", stated, int(caps[2]), "B")


def _needed(
    theorem: Theorem, requirement: str, terms: Sequence[tuple[str, int]], bound: int, unit: str
) -> Iterator[Necessity]:
    demand = sum(value for _, value in terms)
    if demand > bound:
        yield Necessity(theorem, requirement, demand, bound, unit, tuple(term for term in terms if term[1]))


def _least(task: Task) -> int:
    """Return the time (ns) alone below which no job of a task ends: its shortest, in its cheapest variant."""
    shortest = min(task.times.values_ns) if task.times else task.cost_ns
    variant = sum(part.time_ns for part in task.degraded)
    return min(shortest, variant * shortest // max(task.cost_ns, 1)) if task.degraded else shortest


def _power(plan: Plan, traffic: int) -> list[tuple[str, int]]:
    terms = [("base", plan.base_mw), ("dram traffic", round(plan.dram_picojoule_per_byte * traffic / 1e9))]
    for engine in plan.engines:
        busy = sum(t.cost_ns / t.period_ns * len(t.lanes) for t in plan.tasks if t.engine == engine.id) / engine.lanes
        terms += [(f"{engine.id} idle", engine.idle_mw), (f"{engine.id} dynamic", round(engine.dynamic_mw * busy))]
    return terms


def _violation(text: str, value: int, bound: int, terms: Sequence[tuple[str, int]], unit: str) -> Violation:
    demand = max(value, sum(part for _, part in terms))
    return Violation(text, demand, bound, demand - bound, unit, tuple(term for term in terms if term[1]), ())
