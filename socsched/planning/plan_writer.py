"""A solution as a plan: bounds, power, memory and traffic with limits, reasons, levers, the report of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.descriptor.catalog import input_hashes
from socsched.descriptor.fields import PROVENANCE, VENDOR_MODEL
from socsched.descriptor.limits import Objective
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import ONNXRUNTIME, OWN, contention_of
from socsched.graph.operators import StageWork
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import part_of
from socsched.planning.assess import Assessment
from socsched.planning.candidate import overrun
from socsched.planning.choices import chosen
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.deployment import Deployment
from socsched.planning.feasibility.lower_bounds import least_parts
from socsched.planning.feasibility.remedies import verify_levers
from socsched.planning.mapping.local_search import Solution
from socsched.planning.plan import (
    SCHEMA_VERSION,
    TIME_LIMIT,
    Bandwidth,
    Memory,
    ModeResult,
    OpenRequirement,
    Plan,
    Power,
    Proof,
    Provenance,
    SearchReport,
    Task,
    gap,
)
from socsched.planning.workload import Workload, place_name, place_of
from socsched.schedulability.high_level import judge_high_level
from socsched.units import format_duration


def reasons(deployment: Deployment) -> list[Task]:
    """Return the tasks with `why` filled in."""
    model, graph = deployment.workload.model, deployment.workload.graph
    result, converted = [], dict[str, list[tuple[str, int]]]()
    for hop in deployment.transitions:
        if hop.task:
            converted.setdefault(hop.sink, []).append((hop.source, hop.cost_ns))
    for task in deployment.tasks:
        if task.kind == "stage":
            options = model.candidates(graph.stage(task.name))
            why = [_why(deployment.mapping[task.name], options, converted.get(task.name, ()))]
            stage = graph.stage(task.name)
            work = model.work_of(stage, task.precision) if task.runtime in (OWN, ONNXRUNTIME) else None
            left = str(work.integers) if work is not None and work.integers is not None and task.runtime == OWN else ""
            largest = _largest(work) if work is not None else ""
            task = replace(task, why="; ".join(filter(None, (*why, stage.stated, left, largest))))
        result.append(task)
    return result


def _largest(work: StageWork) -> str:
    """Return which results have sizes that follow from values, for which the time is that of the largest."""
    names = [operator.name for operator in work.operators if operator.attrs.get("varies")]
    if not names:
        return ""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f"{', '.join(names[:2])}{more} at the largest size, which follows from values: frames with less take less"


def _why(chosen: Cost, options: Sequence[Cost], conversions: Sequence[tuple[str, int]]) -> str:
    others = sorted((c for c in options if place_of(c) != place_of(chosen)), key=lambda c: c.time_ns)
    text = f"{place_name(chosen)} {format_duration(chosen.time_ns, 2)}"
    if not others:
        text = f"the only candidate: {text}"
    elif chosen.time_ns <= others[0].time_ns:
        text = f"fastest of {len(others) + 1} candidates: {text}, next {place_name(others[0])} "
        text += format_duration(others[0].time_ns, 2)
    else:
        text = f"{text} gives a better plan than the fastest of {len(others) + 1} candidates, "
        text += f"{place_name(others[0])} {format_duration(others[0].time_ns, 2)}"
    for source, cost in conversions:
        text += f"; conversion from {source} {format_duration(cost, 2)}"
    return text


SPENT = "budget used up"
"""Status of a search that its budget ended."""


def write_plan(
    best: Solution,
    solutions: Sequence[Solution],
    goals: Sequence[Objective],
    alternatives: Sequence[Solution] | None,
    pipeline: Pipeline,
    clock: Clock = NO_CLOCK,
) -> Plan:
    """Return a solution as a plan; `alternatives` in other modes are levers, None for no levers at all.

    The verdict on a plan that is not feasible is "infeasible" if there is a proof in every mode of `solutions`.
    """
    candidate = best.candidate
    workload, assessment = candidate.deployment.workload, candidate.assessment
    model, sums = workload.model, candidate.balance
    found = candidate.violations
    if alternatives is not None:
        others = {s.candidate.deployment.workload.model.mode.name: s.candidate for s in alternatives}
        judged = {name: (c.verdict, tuple(c.violations), c.balance.power_mw) for name, c in others.items()}
        levers = verify_levers(workload, candidate.deployment.mapping, found, judged, clock)
        found = tuple(replace(violation, levers=its) for violation, its in zip(found, levers, strict=True))
    feasible = candidate.verdict == "feasible"
    open_ = tuple(
        OpenRequirement(v.requirement, v.demand, best.least.get(v.requirement), v.bound, v.unit) for v in found
    )
    proved = not feasible and all(solution.proof is not None for solution in solutions)
    plan = Plan(
        platform=model.platform.name,
        mode=model.mode.name,
        pipeline=workload.graph.pipeline.name,
        verdict="feasible" if feasible else "infeasible" if proved else "undecided",
        policy=workload.policy,
        engines=workload.engines(),
        sensors=workload.sensors(),
        tasks=tuple(map(_name_part, reasons(candidate.deployment))),
        transitions=candidate.deployment.transitions,
        chains=assessment.chains,
        violations=found,
        power=Power(sums.power_mw, sums.power_cap, sums.power),
        bandwidth=Bandwidth(
            expected_gbps=round(sums.bytes_per_s / 1e9, 6),
            cap_gbps=round(sums.traffic_cap / 1e9, 6),
            terms=tuple((name, round(value / 1e9, 6)) for name, value in sums.traffic),
        ),
        memory=Memory(sums.memory_bytes, sums.memory_cap, sums.memory),
        solver=replace(
            _report(best, solutions, goals, pipeline),
            proof=_proof(best, solutions) if proved else None,
            open=None if feasible or proved else open_,
            chosen=chosen(candidate.deployment) if feasible else None,
        ),
        inputs=input_hashes(model.platform, workload.graph.pipeline),
        base_mw=round(model.mode.base_mw.value),
        dram_bandwidth=int(model.dram),
        dram_picojoule_per_byte=float(model.platform.dram.picojoule_per_byte.value),
        contention=contention_of(model.platform),
        provenance=provenance(assessment.tasks, assessment),
        tool={"name": "socsched", "schema_version": SCHEMA_VERSION},
    )
    hard = {chain.name for chain in workload.graph.pipeline.chains if chain.criticality == "hard"}
    return judge_high_level(plan, hard)


def cut_off(plan: Plan, clock: Clock) -> Plan:
    """Return a plan that says so if a limit on time ended its search."""
    if not clock.cut_off:
        return plan
    status = TIME_LIMIT if plan.solver.status == SPENT else plan.solver.status
    return replace(plan, solver=replace(plan.solver, cut_off=True, status=status))


def _name_part(task: Task) -> Task:
    """Return a task whose reason names its part of a network."""
    part = part_of(task.params) if task.kind == "stage" else None
    if part is None:
        return task
    return replace(task, why=f"part {part.number} of {part.count} of {part.stage}, layers {part.cut}; {task.why}")


def _report(
    best: Solution, solutions: Sequence[Solution], goals: Sequence[Objective], pipeline: Pipeline
) -> SearchReport:
    """Return the report of the search.

    Its `bound` is the sum of chain latencies with every stage at its fastest (latency only).
    """
    value, bound, met = best.score[1], None, best.candidate.verdict == "feasible"
    if goals[0] == "latency":
        workload = best.candidate.deployment.workload
        bound = lower_bound(Workload.of(task_graph(pipeline), workload.model, workload.policy), best.floors)
    name, status = "heft+improve", "local optimum" if best.search.complete else SPENT
    exact = SearchReport()
    if best.exact is not None:
        name, status = "cpsat", best.exact.status
        bound = max(bound or 0, best.exact.bound)
        exact = SearchReport(proposed=best.exact.tried, conflict=tuple(best.exact.conflict))
        if best.floors:
            scope = "stages uncut, or cut into parts that run in sequence"
            exact = replace(exact, scope=scope, whole_stages=best.whole)
    return replace(
        exact,
        name=name,
        status=status,
        objective=tuple(goals),
        value=value,
        bound=bound,
        gap=gap(value, bound) if met else None,
        overrun=round(overrun(best.candidate.violations), 6),
        evaluated=sum(s.search.evaluated for s in solutions),
        modes={
            s.candidate.deployment.workload.model.mode.name: ModeResult(
                "infeasible" if s.proof else s.candidate.verdict, s.score[1]
            )
            for s in solutions
        },
        notes=dict(best.notes),
    )


def _proof(best: Solution, solutions: Sequence[Solution]) -> Proof | None:
    if best.proof is None:
        return None
    others = len(solutions) - 1
    return replace(best.proof, text=best.proof.text + (f"; likewise in the other {others} modes" if others else ""))


def lower_bound(workload: Workload, floors: Mapping[str, int]) -> int:
    """Return a lower bound (ns) on the sum of chain latencies: every stage at its fastest, no hand-over.

    `floors`: lower bounds of stages that may be cut.
    """
    graph, model = workload.graph, workload.model
    fastest = {n: min(c.time_ns for c in model.candidates(graph.stage(n))) for n in graph.order}
    fastest = {name: min(time, floors.get(name, time)) for name, time in fastest.items()}
    parts = least_parts(graph, fastest).values()
    return sum(sum(time for _, time, _ in mine) + sum(period // 2 for _, _, period in mine[1:]) for mine in parts)


def provenance(tasks: Sequence[Task], assessment: Assessment) -> Provenance:
    """Return the share of critical-path time that rests on each kind of figure, and the overall relative error."""
    by_name = {task.name: task for task in tasks}
    critical: set[str] = set()
    for chain in assessment.chains:
        critical |= {term.split(":")[0] for term, _ in chain.terms} & set(by_name)
    total = sum(by_name[name].cost_ns for name in critical)
    shares = {
        kind: round(sum(by_name[n].cost_ns for n in critical if by_name[n].provenance == kind) / max(total, 1), 6)
        for kind in PROVENANCE
    }
    if not shares[VENDOR_MODEL]:  # plans without such figures state the other kinds alone
        del shares[VENDOR_MODEL]
    error = sum(by_name[n].cost_ns * by_name[n].error for n in critical) / max(total, 1)
    return Provenance(shares, round(error, 6))
