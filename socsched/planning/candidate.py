"""A mapping, deployed and judged: every requirement checked, its objective values, and the comparison of two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from socsched import deadline
from socsched.cost.cost import Cost
from socsched.cost.power import power_terms
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.models.parts import uncut
from socsched.planning.assess import Assessment, assess, expected_latencies, unanalysed
from socsched.planning.clock import FEW, THOROUGH, count
from socsched.planning.deployment import CAPACITY, Deployment, capacity, deploy, footprint, outlined, placed
from socsched.planning.execution import slowest_lane
from socsched.planning.plan import Task, Violation
from socsched.planning.scores import SECOND, Flat, Responses
from socsched.planning.workload import Unconnectable, Workload
from socsched.schedulability.chains import path_terms


def losses(pipeline: Pipeline, chosen: Iterable[tuple[Stage, str]]) -> tuple[tuple[str, int], ...]:
    """Return (stage, loss in thousandths of a point) of every stage that loses accuracy in `chosen` (stage, precision).

    A stage in several parts loses as much as its worst precision costs the whole: parts in a better one can only help.
    """
    found: dict[str, int] = {}
    for stage, precision in chosen:
        name = uncut(stage.name, stage.params)
        found[name] = max(found.get(name, 0), stage.losses.get(precision, 0))
    return tuple((name, loss) for name, loss in found.items() if loss)


def better_precisions(stage: Stage, chosen: Cost, options: Iterable[Cost]) -> list[Cost]:
    """Return the costs of a stage in precisions that lose less accuracy than the chosen one, fastest first."""
    mine = stage.losses.get(chosen.precision, 0)
    found = (cost for cost in options if stage.losses.get(cost.precision, 0) < mine)
    return sorted(found, key=lambda cost: cost.time_ns)


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
    traffic = tuple((task.name, task.bytes * SECOND // task.period_ns) for task in tasks if task.bytes)
    traffic += tuple(
        (s.name, s.bytes_per_frame * SECOND // s.period_ns) for s in deployment.workload.sensors() if s.bytes_per_frame
    )
    engines = {engine.id: engine for engine in deployment.workload.engines()}
    used = dict.fromkeys(engines, 0.0)
    for task in tasks:
        engine = engines[task.engine]
        busy_ns = task.cost_ns * 1024 / slowest_lane(task, engine.capacities)
        used[task.engine] += busy_ns / task.period_ns * len(task.lanes) / engine.lanes
    power = power_terms(model.platform, model.mode, used, sum(value for _, value in traffic))
    power_cap, traffic_cap, memory_cap = _caps(deployment.workload)
    return Balance(power, power_cap, traffic, traffic_cap, footprint(deployment), memory_cap)


def _caps(workload: Workload) -> tuple[int | None, int, int]:
    """Return the most power (mW), DRAM traffic (bytes/s) and memory (bytes) that a plan may take."""
    limits, model = workload.limits, workload.model
    mode_cap = model.mode.cap_mw
    caps = [cap for cap in (round(mode_cap.value) if mode_cap else None, limits.power_mw) if cap is not None]
    dram = round(model.dram)
    return min(caps, default=None), min(dram, limits.bytes_per_s or dram), capacity(model.platform)


def violations(deployment: Deployment, assessment: Assessment, sums: Balance) -> list[Violation]:
    """Return every unmet requirement, without levers yet."""
    found = _lanes(deployment, assessment.tasks)
    found += _chains(assessment)
    found += _queues(deployment, assessment)
    if assessment.overload and not found:
        over = assessment.overload
        found.append(_violation(f"EDF demand in {over.interval} ns", over.demand, over.interval, "ns", over.terms))
    return found + _without_analysis(deployment, sums)


def _without_analysis(deployment: Deployment, sums: Balance) -> list[Violation]:
    found = _over("mean power", sums.power, sums.power_cap, "mW") if sums.power_cap is not None else []
    found += _over("DRAM traffic", sums.traffic, sums.traffic_cap, "B/s")
    found += _over(CAPACITY, sums.memory, sums.memory_cap, "B")
    return found + _by_choice(deployment)


def _by_choice(deployment: Deployment) -> list[Violation]:
    return [*_accuracy(deployment), *_residents(deployment)]


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
                (task.name, -(-task.wcet_ns * SECOND // task.period_ns))
                for task in tasks
                if task.engine == engine.id and lane in task.lanes
            )
            name = f"utilisation of {engine.id}" + (f" lane {lane}" if engine.lanes > 1 else "")
            for violation in _over(name, terms, SECOND, "ns/s"):
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
    found, sources, known = [], deployment.workload.sources(assessment.tasks), dict[str, list[tuple[str, int]]]()
    for task in assessment.tasks:
        response, room = assessment.responses[task.name], sources.room(task)
        if response.bounded and response.value > room:
            terms = tuple(path_terms(task.name, assessment.responses, known))
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
        if limit:
            jobs = tuple((task.name, 1) for task in deployment.tasks if task.engine == engine.id)
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


_UNBOUNDED = 1e6
Score = tuple[float, ...]
"""(overrun of requirements, first objective, second objective, ...); smaller is better, compared in this order."""
Beats = Callable[[Mapping[str, Cost], Score], Score | None]
"""Function that returns the score of a mapping if it is below the given one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping, deployed and judged."""

    deployment: Deployment
    assessment: Assessment
    balance: Balance
    violations: tuple[Violation, ...]

    @property
    def verdict(self) -> Judgement:
        """Return the verdict of the analysis: feasible or undecided; whether none is feasible is no matter of one."""
        return verdict(self.violations, self.assessment)


def judge(workload: Workload, mapping: Mapping[str, Cost], thorough: bool = True) -> Candidate:
    """Deploy a mapping and check every requirement; Unconnectable if no engine can run a needed conversion."""
    with deadline.lifted():
        deployment = deploy(workload, mapping)
    return assess_deployment(deployment, thorough)


def assess_deployment(deployment: Deployment, thorough: bool = True) -> Candidate:
    """Check every requirement of a deployment, by a shorter analysis, or none, where the time left does not suffice."""
    count(THOROUGH if thorough else 1)
    for steps in (True, False) if thorough else (False,):
        try:
            with deadline.within(_SHARE * deadline.left()):
                assessment = assess(deployment, steps)
            break
        except deadline.OutOfTime:
            pass
    else:
        with deadline.lifted():
            assessment = unanalysed(deployment)
    deployment = replace(deployment, tasks=assessment.tasks)
    sums = balance(deployment)
    return Candidate(deployment, assessment, sums, tuple(violations(deployment, assessment, sums)))


_SHARE = 0.4
"""Of the time that is left to a search with a limit, what one analysis may take."""


def objective_value(candidate: Candidate, objective: str) -> float:
    """Return the value that an objective minimises.

    latency: sum of expected chain latencies (ns); longest: the longest of them; energy: mean power (mW), since rates
    are given; throughput: highest lane utilisation; slack: share of the tightest chain deadline used by its bound.
    """
    chains = candidate.assessment.chains
    if objective == "energy":
        return float(candidate.balance.power_mw)
    if objective == "throughput":
        return max(utilisations(candidate.assessment.tasks).values(), default=0.0)
    if objective == "slack":
        return max(
            (chain.bound_ns / chain.deadline_ns if chain.bound_ns else _UNBOUNDED for chain in chains), default=0.0
        )
    if objective == "longest":
        return float(max((chain.expected_ns for chain in chains), default=0))
    return float(sum(chain.expected_ns for chain in chains))


def score(candidate: Candidate, goals: Sequence[str]) -> Score:
    """Return the key that orders candidates.

    The excess over lane capacities comes first: counting missed chains first placed a stage that no engine serves in
    time where it ran a thousand times too long, on an engine without other work.
    Then unbounded chains are counted, not tasks: a mapping is no worse for one more conversion without a bound.
    """
    lost = sum(chain.bound_ns is None for chain in candidate.assessment.chains)
    requirements = overrun(candidate.violations) + _UNBOUNDED * lost
    return _excess(candidate.deployment) + requirements, *(objective_value(candidate, goal) for goal in goals)


Known = dict[str, float]
"""Values of objectives of a mapping, and its excess, that are known without an analysis."""


def least_score(deployment: Deployment, goals: Sequence[str], known: Known | None = None) -> Score:
    """Return a lower bound on a deployment's score without any analysis, up to the first objective that needs one."""
    known = {} if known is None else known
    known["excess"] = _excess(deployment)
    found: list[float] = [known["excess"]]
    for goal in goals:
        if goal in ("latency", "longest"):
            if goal not in known:
                known[goal] = _latency(deployment.workload, deployment.tasks, goal)
            found.append(known[goal])
        elif goal == "energy":
            found.append(float(balance(deployment).power_mw))
        elif goal == "throughput":
            found.append(max(utilisations(deployment.tasks).values(), default=0.0))
        else:
            break
    return tuple(found)


def _latency(workload: Workload, tasks: Sequence[Task], goal: str) -> float:
    each = expected_latencies(workload.graph, tasks, workload.observed, workload.sources(tasks)).values()
    return float(sum(each) if goal == "latency" else max(each, default=0))


def _excess(deployment: Deployment) -> float:
    most = max(utilisations(deployment.tasks).values(), default=0.0)
    return float(max(0.0, most - 1.0) * _UNBOUNDED**2)


def better(workload: Workload, mapping: Mapping[str, Cost], goals: Sequence[str], best: Score) -> Candidate | None:
    """Return the candidate of a mapping if it beats `best`; Unconnectable if no engine can run a needed conversion."""
    known = Known()
    deployment = _worth_judging(workload, mapping, goals, best, known)
    if deployment is None:
        return None
    quick = quick_score(deployment, goals, known)
    if quick is not None and quick >= best:
        count(1)
        return None
    candidate = assess_deployment(deployment, False)
    return candidate if score(candidate, goals) < best else None


def _worth_judging(
    workload: Workload, mapping: Mapping[str, Cost], goals: Sequence[str], best: Score, known: Known
) -> Deployment | None:
    """Return the deployment of a mapping, None if no analysis can make its score win; `known` gains what it found."""
    outline = outlined(workload, mapping)
    if goals[0] in ("latency", "longest"):
        known[goals[0]] = _latency(workload, outline.tasks, goals[0])
        if _loses((0.0, known[goals[0]]), best):
            return None
    deployment = placed(outline)
    return None if _loses(least_score(deployment, goals, known), best) else deployment


def _loses(least: Score, best: Score) -> bool:
    """Return whether no score that starts with at least `least` is below `best`."""
    return least >= best[: len(least)] and (len(least) == len(best) or least > best[: len(least)])


def quick_score(
    deployment: Deployment,
    goals: Sequence[str],
    known: Known | None = None,
    hopeless: Callable[[Responses], bool] | None = None,
) -> Score | None:
    """Return the score of a deployment by an analysis that is not thorough; None where only `assess` finds it.

    It is that of `assess_deployment`, without what explains it; `known`: of the deployment; `hopeless`: as of `Flat`.
    """
    known = {} if known is None else known
    workload, tasks = deployment.workload, deployment.tasks
    workload.flat = workload.flat or Flat(workload)
    found = workload.flat.responses(deployment, hopeless)
    if found is None:
        return None
    over, lost, shares = _overruns(found, tasks)
    if found.overloaded and not over:
        return None  # the interval has to be known
    sums = workload.flat.sums(deployment)
    exceeded = any(cap is not None and value > cap for value, cap in zip(sums, _caps(workload), strict=True))
    unmet = _without_analysis(deployment, balance(deployment)) if exceeded else _by_choice(deployment)
    over += [violation.gap / max(violation.bound, 1) for violation in unmet]
    values: dict[str, Callable[[], float]] = {
        "energy": lambda: float(sums[0]),
        "throughput": lambda: max(utilisations(tasks).values(), default=0.0),
        "slack": lambda: max(shares, default=0.0),
    }
    for goal in goals:
        if goal not in known:
            known[goal] = values[goal]() if goal in values else _latency(workload, tasks, goal)
    excess = known["excess"] if "excess" in known else _excess(deployment)
    return excess + (sum(over) + _UNBOUNDED * lost), *(known[goal] for goal in goals)


def _overruns(found: Responses, tasks: Sequence[Task]) -> tuple[list[float], int, list[float]]:
    """Return by which shares responses exceed requirements, the chains without a bound, and what each uses of its."""
    over, lost, shares = list[float](), 0, list[float]()
    for chain, parts in found.chains:
        reaction, bounded = found.reaction(parts), found.is_bound(parts)
        lost += not bounded
        shares.append(reaction / chain.deadline_ns if bounded and reaction else _UNBOUNDED)
        if reaction > chain.deadline_ns:
            over.append((reaction - chain.deadline_ns) / max(chain.deadline_ns, 1))
        if chain.max_age_ns is not None and (age := found.age(parts)) > chain.max_age_ns:
            over.append((age - chain.max_age_ns) / max(chain.max_age_ns, 1))
    for task, room in zip(tasks, found.rooms, strict=True):
        value = found.values[task.name]
        if value > room and task.name not in found.unbounded:
            over.append((value - room) / max(room, 1))
    return over, lost, shares


_NEAR = 1.05
"""By how much more than the best mapping's responses, before windows of paths shorten them, those of one may exceed
requirements that is judged with windows: of the moves of a full pipeline, those that are better exceed them less, and
half of the others by 1.6 times as much."""


def make_improvement_test(workload: Workload, goals: Sequence[str], thorough: bool = False) -> Beats:
    """Return the test that `improve` applies to a mapping of a workload: its score if below the given one.

    The analysis takes most of the time, by far the most on overloaded lanes; it is skipped if the score cannot win.
    """

    many, rough = len(workload.graph.order) > FEW, dict[Score, float]()

    def beats(mapping: Mapping[str, Cost], best: Score) -> Score | None:
        known, mine = Known(), list[float]()

        def hopeless(found: Responses) -> bool:
            over, lost, _ = _overruns(found, tasks)
            mine.append(sum(over) + _UNBOUNDED * lost)
            return mine[0] > _NEAR * rough.get(best, float("inf"))

        try:
            deployment = _worth_judging(workload, mapping, goals, best, known)
            if deployment is None:
                return None
            tasks = deployment.tasks
            found = None if thorough else quick_score(deployment, goals, known, hopeless if many else None)
        except (Unconnectable, deadline.OutOfTime):
            return None
        if found is None:
            found = score(assess_deployment(deployment, thorough), goals)
        else:
            count(1)
        if found >= best:
            return None
        if mine:
            rough[found] = mine[0]
        return found

    return beats
