"""A minimal set of requirements that cannot be met together, and how far each exceeds its bound.

Requirements are deleted one by one, and a requirement stays out while the planner still finds no mapping for the rest
(Chinneck & Dravnieks, "Locating minimal infeasible constraint sets in linear programs", ORSA J. Computing 3(2), 1991).
The result is only as good as the search: finding no mapping does not prove that there is none, and the set says so.
Requirements that no mapping can meet on their own are proved by `lower_bounds`.  For every member there is a plan that
violates it and meets the others; a list of all violated requirements would not say that most follow from a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.cost import Cost
from socsched.graph.taskgraph import task_graph
from socsched.planning.candidate import Candidate, Score, judge, overrun, violations
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.deployment import CAPACITY, Deployment
from socsched.planning.mapping.local_search import improve, initial_mapping
from socsched.planning.plan import Conflict, Violation
from socsched.planning.workload import Unconnectable, Workload

FAR = 10**15
"""A deadline (ns) that imposes nothing."""
MANY = 1000
"""A queue that never overflows."""
TRIES = 80
"""Mappings evaluated in a search for one set of requirements."""
MOST = 1000
"""Mappings evaluated in all searches for a set of requirements together."""
ROUNDS = 4
"""Rounds of growing and shrinking a set when a search meets requirements it had not met before."""
_SECOND = 10**9
_LOST = 1e6


def key(requirement: str) -> str:
    """Return a requirement's key, without a violation's lane or number: one key for all lanes of an engine."""
    name = requirement.split(" lane ")[0].split(" (")[0]
    if name.startswith("queue of "):
        return "queue of " + name.removeprefix("queue of ").split(">")[-1]
    return name


def relax(workload: Workload, kept: frozenset[str]) -> Workload:
    """Return a workload that keeps only the requirements in `kept`, among those that affect how it is scheduled."""
    pipeline = workload.graph.pipeline
    chains = tuple(
        replace(
            chain,
            deadline_ns=chain.deadline_ns if f"deadline of chain {chain.name}" in kept else FAR,
            max_age_ns=chain.max_age_ns if f"data age of chain {chain.name}" in kept else None,
        )
        for chain in pipeline.chains
    )
    stages = tuple(s if f"queue of {s.name}" in kept else replace(s, queue=MANY) for s in pipeline.stages)
    relaxed = workload.asking(task_graph(replace(pipeline, chains=chains, stages=stages)))
    most = {e.id: sum(_widest(workload, s.name, e.id) for s in stages) for e in workload.engines()}
    engines = tuple(
        e
        if f"utilisation of {e.id}" in kept
        else replace(e, lanes=e.lanes + most[e.id] + 2 * len(relaxed.edges), capacities=())
        for e in workload.engines()
    )
    return replace(relaxed, _engines=engines)


def _widest(workload: Workload, stage: str, engine: str) -> int:
    """Return the largest number of lanes of an engine that a stage can take."""
    costs = workload.model.candidates(workload.graph.stage(stage))
    return max((cost.share for cost in costs if cost.engine == engine), default=0)


def all_keys(workload: Workload) -> list[str]:
    """Return every requirement of a workload on its platform."""
    pipeline, platform = workload.graph.pipeline, workload.model.platform
    found = [f"deadline of chain {chain.name}" for chain in pipeline.chains]
    found += [f"data age of chain {chain.name}" for chain in pipeline.chains if chain.max_age_ns is not None]
    found += [f"queue of {stage.name}" for stage in pipeline.stages]
    found += [f"utilisation of {engine.id}" for engine in workload.engines()]
    found += ["mean power"] if workload.model.mode.cap_mw or workload.limits.power_mw else []
    found += ["accuracy loss"] if pipeline.accuracy_budget is not None else []
    found += ["DRAM traffic", CAPACITY]
    return found + [f"resident jobs on {e.id}" for e in platform.engines if e.operators.max_jobs]


def restore_violations(candidate: Candidate, workload: Workload) -> tuple[Violation, ...]:
    """Return the original requirements that a candidate of a relaxed workload violates."""
    chains = {chain.name: chain for chain in workload.graph.pipeline.chains}
    queues = {stage.name: stage.queue for stage in workload.graph.pipeline.stages}
    assessment = candidate.assessment
    asked = tuple(
        replace(c, deadline_ns=chains[c.name].deadline_ns, max_age_ns=chains[c.name].max_age_ns)
        for c in assessment.chains
    )

    def room(name: str) -> int:
        return max(queues[part] for part in name.split(">"))

    tasks = tuple(replace(task, queue=room(task.name)) for task in assessment.tasks)
    assessment = replace(assessment, chains=asked, tasks=tasks, overload=None)
    deployment = replace(candidate.deployment, workload=workload, tasks=tasks)
    found = [
        v
        for v in violations(deployment, assessment, candidate.balance)
        if not v.requirement.startswith("utilisation of ")
    ]
    for engine in workload.engines():
        found += _capacity(engine.id, engine.lanes, deployment)
    lost = {v.requirement for v in found}
    for chain in asked:
        name = f"deadline of chain {chain.name}"
        if chain.bound_ns is None and name not in lost:
            least = chain.deadline_ns + 1 - sum(value for _, value in chain.terms)
            terms = (
                (*chain.terms, ("no bound exists: counted as 1 ns over the deadline", least))
                if least > 0
                else chain.terms
            )
            total = sum(value for _, value in terms)
            found.append(Violation(name, total, chain.deadline_ns, total - chain.deadline_ns, "ns", terms, ()))
    return tuple(found)


def _capacity(engine: str, lanes: int, deployment: Deployment) -> Iterator[Violation]:
    """Yield the fullest lane of an engine if it is overloaded; the whole engine if lanes were added to it."""
    here = [task for task in deployment.tasks if task.engine == engine]
    wide = any(lane >= lanes for task in here for lane in task.lanes)
    sets = [here] if wide else [[task for task in here if lane in task.lanes] for lane in range(lanes)]
    hopeless = [task for task in here if task.wcet_ns > task.period_ns]
    if wide and hopeless:  # added lanes do not help a job that runs on its own
        sets, wide = [hopeless[:1]], False
    bound = lanes * _SECOND if wide else _SECOND
    rows = [
        tuple((t.name, -(-t.wcet_ns * (len(t.lanes) if wide else 1) * _SECOND // t.period_ns)) for t in tasks)
        for tasks in sets
    ]
    terms = max(rows, key=lambda row: sum(value for _, value in row), default=())
    demand = sum(value for _, value in terms)
    if demand > bound:
        yield Violation(f"utilisation of {engine}", demand, bound, demand - bound, "ns/s", terms, ())


@dataclass(slots=True)
class ConflictSearch:
    """A search for mappings that meet some requirements; it remembers every mapping that met any."""

    workload: Workload
    clock: Clock = NO_CLOCK
    tried: int = 0
    met: list[tuple[frozenset[str], Candidate]] = field(default_factory=list)

    def late(self) -> bool:
        """Return whether the time or the number of mappings of this search is used up."""
        return self.tried >= MOST or self.clock.over()

    def meets(self, kept: frozenset[str]) -> Candidate | None:
        """Return a candidate that meets `kept`, None if none is found; earlier candidates that meet it are reused."""
        for violated, candidate in self.met:
            if not violated & kept:
                return candidate
        workload = relax(self.workload, kept)
        hit: list[Candidate] = []

        def beats(mapping: Mapping[str, Cost], best: Score) -> Score | None:
            if hit or self.late():
                return None  # the rest of the search changes nothing
            self.tried += 1
            try:
                candidate = judge(workload, mapping, False)
            except Unconnectable:
                return None
            left = [v for v in restore_violations(candidate, self.workload) if key(v.requirement) in kept]
            if not left:
                hit.append(candidate)
            lost = sum(
                chain.bound_ns is None and f"deadline of chain {chain.name}" in kept
                for chain in candidate.assessment.chains
            )
            latency = sum(chain.expected_ns for chain in candidate.assessment.chains)
            found = (overrun(left) + _LOST * lost, latency)
            return found if found < best else None

        improve(initial_mapping(workload), workload.options(), beats, TRIES, self.clock)
        if not hit:
            return None
        self.met.append((frozenset(key(v.requirement) for v in restore_violations(hit[0], self.workload)), hit[0]))
        return hit[0]


def conflict(
    workload: Workload,
    violated: Sequence[Violation],
    clock: Clock = NO_CLOCK,
    search: ConflictSearch | None = None,
) -> tuple[Conflict, ...]:
    """Return minimal sets of requirements that conflict; () if a search meets all of them after all.

    `violated`: the violations of the best known mapping.  When `clock` runs out, the set is returned as small as it is
    by then, not `minimal`.  `search` remembers the candidates found.
    """
    search = search or ConflictSearch(workload, clock)
    known = {key(v.requirement): v for v in reversed(violated)}
    order = all_keys(workload)
    # Engine capacity is fixed, not requested: it is a member only where the best known mapping overloads an engine.
    always = frozenset(name for name in order if name.startswith("utilisation of ") and name not in known)
    kept, minimal = frozenset(known) & frozenset(order), False
    for _ in range(ROUNDS):
        while (witness := search.meets(kept | always)) is not None:
            # Requirements violated in exchange join the set, until no mapping is found for it.
            more = {key(v.requirement): v for v in restore_violations(witness, workload)}
            if not set(more) - kept:
                return ()
            known = {**more, **known}
            kept |= set(more)
        for name in [n for n in order if n in kept]:
            witness = search.meets(always | kept - {name})
            if witness is None and not search.late():
                kept -= {name}
            elif witness is not None:
                found = {key(v.requirement): v for v in restore_violations(witness, workload)}
                known[name] = found.get(name, known[name])
        # A search is not monotone: it may later meet a set for which it had found nothing.
        minimal = not search.late() and search.meets(kept | always) is None
        if minimal or search.late():
            break
    return (Conflict(tuple(known[n] for n in order if n in kept), False, minimal, search.tried),)
