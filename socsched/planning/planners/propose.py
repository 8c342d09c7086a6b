"""A plan by a chosen planner: its proposal for each power mode, deployed and judged like any other mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.planning.candidate import assess_deployment, score
from socsched.planning.cutting.search import cutter_of
from socsched.planning.deployment import deploy
from socsched.planning.feasibility.infeasible_plan import no_engine, unmappable_stages, unplaceable
from socsched.planning.feasibility.refutation import by_bounds
from socsched.planning.mapping.local_search import Improved, Solution
from socsched.planning.plan import Plan
from socsched.planning.plan_writer import write_plan
from socsched.planning.planners import Ask, Planner, Proposal
from socsched.planning.search import SearchRequest
from socsched.planning.workload import Unconnectable, Workload

MOST = 60.0
"""Largest limit (s) on the time of a planner."""


def make_plan(
    planner: Planner,
    pipeline: Pipeline,
    platform: Platform,
    mode: str | None = None,
    objective: str = "latency",
    policy: str = "edf",
    *,
    options: Mapping[str, str] | None = None,
    **rest: Any,
) -> Plan:
    """Return a planner's plan with its verdict; every mode is tried if `mode` is None or "auto", and the best kept.

    `options` are the planner's, as text; the `rest` as of `SearchRequest.of`.  Raises UsageError if the planner does
    not cover the pipeline, and for unknown options, policies and objectives.
    """
    settings = planner.settings(options or {})
    request = SearchRequest.of(pipeline, platform, mode, objective, policy, **rest)
    goals, modes, clock = request.goals, request.modes, request.clock
    graph = task_graph(pipeline)
    found: list[tuple[Solution, Proposal]] = []
    refused = list[UsageError]()
    limit = min(max(clock.seconds(), 0.1), MOST) / len(modes)
    for number, option in enumerate(modes):
        model = request.costs.model(option)
        if unmappable_stages(graph, model):
            continue
        workload = Workload.of(graph, model, policy, limits=request.limits)
        try:
            mine = clock.part(1 / (len(modes) - number))
            proposal = planner.propose(Ask(pipeline, workload, goals, settings, limit, mine))
            found.append((solution(proposal, goals), proposal))
        except UsageError as error:  # another mode may work
            refused.append(error)
    if refused and not found:
        raise refused[0]
    if not found:
        option = next((m for m in modes if m.default), modes[0])
        lacking = [no_engine(graph, request.costs.model(mode)) for mode in modes]
        proofs = lacking[modes.index(option)] if all(lacking) else ()
        return unplaceable(graph, request.costs.model(option), policy, goals, proofs)
    best, proposal = min(found, key=lambda pair: (pair[0].candidate.verdict != "feasible", *pair[0].score))
    solutions = [each for each, _ in found]
    if best.candidate.verdict != "feasible" and len(found) == len(modes):
        solutions = [_refuted(each, pipeline, graph) for each in solutions]
        best = next(each for each in solutions if each.candidate is best.candidate)
    plan = write_plan(best, solutions, goals, None, pipeline)
    report = replace(
        plan.solver,
        name=planner.name,
        status="proposed",
        bound=None,
        gap=None,
        source=planner.source,
        options=settings,
        facts=proposal.facts,
    )
    return replace(plan, solver=report)


def _refuted(found: Solution, pipeline: Pipeline, graph: TaskGraph) -> Solution:
    """Return a planner's solution with the proof that no mapping meets every requirement, if bounds give one."""
    proposed = found.candidate.deployment.workload
    workload = Workload.of(graph, proposed.model, proposed.policy, limits=proposed.limits)
    divided = cutter_of(pipeline, workload, ()).stages
    return replace(found, proof=by_bounds(workload, divided))


def solution(proposal: Proposal, goals: tuple[str, ...]) -> Solution:
    """Return a proposal as a judged solution; UsageError if its mapping leaves neighbours that cannot be connected."""
    try:
        candidate = assess_deployment(deploy(proposal.workload, proposal.mapping))
    except Unconnectable as error:
        raise UsageError(str(error), "let an engine of the platform declare `converts: true`") from None
    value = score(candidate, goals)
    return Solution(candidate, Improved(dict(proposal.mapping), value, 1, True), value)
