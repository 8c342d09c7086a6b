"""The verdict: every requirement checked, each violation with the terms that add up to its demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from socsched.cost.power import power_terms
from socsched.planning.accuracy import losses
from socsched.planning.assess import Assessment
from socsched.planning.deployment import Deployment
from socsched.planning.memory import CAPACITY, capacity, footprint
from socsched.planning.plan import Task, Violation
from socsched.schedulability.chains import Sources, path_terms

_SECOND = 10**9
Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Balance:
    """Mean power (mW), DRAM traffic (bytes/s) and memory (bytes) of a deployment with their terms, and the limits."""

    power: Terms
    power_cap: int | None
    traffic: Terms
    traffic_cap: int
    memory: Terms
    memory_cap: int

    @property
    def power_mw(self) -> int:
        """Return the expected mean power (mW)."""
        return sum(value for _, value in self.power)

    @property
    def bytes_per_s(self) -> int:
        """Return the expected mean DRAM traffic (bytes/s)."""
        return sum(value for _, value in self.traffic)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that a deployment keeps in main memory."""
        return sum(value for _, value in self.memory)


def balance(deployment: Deployment) -> Balance:
    """Return the mean power and traffic of a deployment, and the memory it needs."""
    model, tasks = deployment.workload.model, deployment.tasks
    traffic = tuple((task.name, task.bytes * _SECOND // task.period_ns) for task in tasks if task.bytes)
    traffic += tuple(
        (s.name, s.bytes_per_frame * _SECOND // s.period_ns) for s in deployment.workload.sensors() if s.bytes_per_frame
    )
    lanes = {engine.id: engine.lanes for engine in deployment.workload.engines()}
    used = dict.fromkeys(lanes, 0.0)
    for task in tasks:
        used[task.engine] += task.cost_ns / task.period_ns * len(task.lanes) / lanes[task.engine]
    limits, mode_cap = deployment.workload.limits, model.mode.cap_mw
    caps = [cap for cap in (round(mode_cap.value) if mode_cap else None, limits.power_mw) if cap is not None]
    return Balance(
        power=power_terms(model.platform, model.mode, used, sum(value for _, value in traffic)),
        power_cap=min(caps, default=None),
        traffic=traffic,
        traffic_cap=min(round(model.dram), limits.bytes_per_s or round(model.dram)),
        memory=footprint(deployment),
        memory_cap=capacity(model.platform),
    )


def violations(deployment: Deployment, assessment: Assessment, sums: Balance) -> list[Violation]:
    """Return every unmet requirement, without levers yet."""
    found = _lanes(deployment, assessment.tasks)
    found += _chains(assessment)
    found += _queues(deployment, assessment)
    if assessment.overload and not found:
        over = assessment.overload
        found.append(_violation(f"EDF demand in {over.interval} ns", over.demand, over.interval, "ns", over.terms))
    if sums.power_cap is not None:
        found += _over("mean power", sums.power, sums.power_cap, "mW")
    found += _over("DRAM traffic", sums.traffic, sums.traffic_cap, "B/s")
    found += _over(CAPACITY, sums.memory, sums.memory_cap, "B")
    found += _accuracy(deployment)
    return found + _residents(deployment)


def _over(requirement: str, terms: Terms, bound: int, unit: str) -> list[Violation]:
    demand = sum(value for _, value in terms)
    return [_violation(requirement, demand, bound, unit, terms)] if demand > bound else []


def _violation(requirement: str, demand: int, bound: int, unit: str, terms: Terms) -> Violation:
    return Violation(requirement, demand, bound, demand - bound, unit, tuple(t for t in terms if t[1]), ())


def _lanes(deployment: Deployment, tasks: Sequence[Task]) -> list[Violation]:
    """Return overloads of lanes, more than a second of work per second; equal lanes of a gang are reported once."""
    found: dict[tuple[str, Terms], Violation] = {}
    for engine in deployment.workload.engines():
        for lane in range(engine.lanes):
            terms = tuple(
                (task.name, -(-task.wcet_ns * _SECOND // task.period_ns))
                for task in tasks
                if task.engine == engine.id and lane in task.lanes
            )
            name = f"utilisation of {engine.id}" + (f" lane {lane}" if engine.lanes > 1 else "")
            for violation in _over(name, terms, _SECOND, "ns/s"):
                found.setdefault((engine.id, terms), violation)
    return list(found.values())


def _chains(assessment: Assessment) -> list[Violation]:
    found = []
    for chain in assessment.chains:
        # Where no bound exists, lane violations explain it; a latency that exceeds the deadline anyway is reported here
        # too.
        demand = sum(value for _, value in chain.terms)
        if demand > chain.deadline_ns:
            found.append(_violation(f"deadline of chain {chain.name}", demand, chain.deadline_ns, "ns", chain.terms))
        age = assessment.ages[chain.name]
        if chain.max_age_ns is not None and age.value > chain.max_age_ns:
            found.append(_violation(f"data age of chain {chain.name}", age.value, chain.max_age_ns, "ns", age.terms))
    return found


def _queues(deployment: Deployment, assessment: Assessment) -> list[Violation]:
    """Return queues that may overflow: the frame `queue` frames earlier must have begun when a frame is released."""
    found, sources = [], Sources.of(assessment.tasks, deployment.workload.sensors())
    for task in assessment.tasks:
        response, room = assessment.responses[task.name], sources.room(task)
        if response.bounded and response.value > room:
            terms = tuple(path_terms(task.name, assessment.responses))
            found.append(_violation(f"queue of {task.name} ({task.queue} may wait)", response.value, room, "ns", terms))
    return found


def _accuracy(deployment: Deployment) -> list[Violation]:
    """Check the total accuracy loss of the chosen data types."""
    graph = deployment.workload.graph
    budget = graph.pipeline.accuracy_budget
    if budget is None:
        return []
    terms = losses(graph.pipeline, ((graph.stage(name), cost.precision) for name, cost in deployment.mapping.items()))
    return _over("accuracy loss", terms, budget, "1e-3 points")


def _residents(deployment: Deployment) -> list[Violation]:
    """Check the number of compiled jobs that an engine has to keep loaded."""
    found = []
    for engine in deployment.workload.model.platform.engines:
        limit = engine.operators.max_jobs
        jobs = tuple((task.name, 1) for task in deployment.tasks if task.engine == engine.id)
        if limit:
            found += _over(f"resident jobs on {engine.id}", jobs, limit, "jobs")
    return found


Judgement = Literal["feasible", "undecided"]
"""What an analysis of one deployment can say: its bounds meet every requirement, or they prove nothing."""


def verdict(found: Sequence[Violation], assessment: Assessment) -> Judgement:
    """Return feasible if no requirement is violated and every response has a bound, else undecided."""
    bounded = all(response.bounded for response in assessment.responses.values())
    return "feasible" if bounded and not found else "undecided"


def overrun(found: Sequence[Violation]) -> float:
    """Return the share by which requirements are exceeded in total; it orders deployments that are not feasible."""
    return sum(violation.gap / max(violation.bound, 1) for violation in found)


def utilisations(tasks: Sequence[Task]) -> Mapping[tuple[str, int], float]:
    """Return the utilisation by WCET of every lane in use."""
    result: dict[tuple[str, int], float] = {}
    for task in tasks:
        for lane in task.lanes:
            key = (task.engine, lane)
            result[key] = result.get(key, 0.0) + task.wcet_ns / task.period_ns
    return result
