"""The planner chooses queue depths and lengths of GPU time slices that the pipeline does not state.

Depths: one frame may wait at every stage first.  Where no plan is found so, the search is repeated with the deepest
queues, and the plan that it finds keeps the shallowest ones that its proof needs.  Slices: the search takes the
shortest that an engine declares, since shorter ones only shorten what others wait for; the plan keeps the longest that
leave it feasible, whole jobs first.  What a pipeline states is never changed.

A deeper queue only removes a requirement, so two settings are enough to search with.  Depths as moves of the local
search would double the neighbourhood at every violated queue; deep queues from the start would count as memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import part_of
from socsched.planning.candidate import Candidate, judge, score
from socsched.planning.deployment import Deployment
from socsched.planning.feasibility.refutation import meet_requirements
from socsched.planning.mapping.local_search import Solution
from socsched.planning.plan import Violation
from socsched.planning.workload import Workload

DEPTHS = (1, 2, 4, 8)
"""Depths of queues, the shallowest first; a part of a network has one more for each part before it."""
_ROUNDS = 4
"""Attempts to make queues as shallow as the responses with them allow."""
_STEP = 4
"""Ratio of one length of slices to the next."""


def sliced(pipeline: Pipeline, platform: Platform) -> Pipeline:
    """Return a pipeline whose stages known by their times take the platform's shortest slices; itself without any."""
    shortest = min((range_[0] for engine in platform.engines if (range_ := _range(engine))), default=0)
    if not shortest:
        return pipeline
    stages = tuple(s if s.modelled else replace(s, slice_ns=shortest) for s in pipeline.stages)
    return replace(pipeline, stages=stages)


def deepened(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with the deepest queue at every stage that states none; itself if none can be deeper."""
    return _with_depths(pipeline, lambda stage: DEPTHS[-1])


def may_be_deeper(workload: Workload, violation: Violation) -> bool:
    """Return whether a violation is that of a queue for which the planner may choose a larger depth."""
    if not violation.requirement.startswith("queue of "):
        return False
    name = violation.requirement.removeprefix("queue of ").split(" (")[0].split(">")[-1]
    stage = workload.graph.stage(name)
    return stage.open_queue and stage.queue < DEPTHS[-1] + _before(stage)


def settled(solution: Solution, goals: Sequence[str]) -> Solution:
    """Return a feasible solution with the longest slices, then the shallowest queues, that leave it feasible."""
    if solution.candidate.verdict != "feasible":
        return solution
    found = _shallow(_unsliced(solution.candidate))
    return solution if found is solution.candidate else replace(solution, candidate=found, score=score(found, goals))


def chosen(deployment: Deployment) -> dict[str, dict[str, int]] | None:
    """Return queue depths above one and slice lengths (ns) that the planner chose, by stage; None for none."""
    found: dict[str, dict[str, int]] = {}
    for name in deployment.mapping:
        stage, least = deployment.workload.graph.stage(name), _range(_engine(deployment, name))
        if stage.open_queue and stage.queue > DEPTHS[0] + _before(stage):
            found.setdefault(name, {})["queue"] = stage.queue
        if least and stage.slice_ns and len(_with_slices(deployment, 0)[name].segments) < _count(deployment, name):
            found.setdefault(name, {})["slice_ns"] = max(stage.slice_ns, least[0])
    return found or None


def _unsliced(candidate: Candidate) -> Candidate:
    deployment = candidate.deployment
    ranges = [r for name in deployment.mapping if (r := _range(_engine(deployment, name)))]
    if not ranges or all(len(c.segments) == _count(deployment, n) for n, c in _with_slices(deployment, 0).items()):
        return candidate
    shortest, longest = min(r[0] for r in ranges), max(r[1] for r in ranges)
    lengths = [0]
    while longest > shortest:
        lengths.append(longest)
        longest //= _STEP
    for length in lengths:
        stages = tuple(
            s if s.modelled else replace(s, slice_ns=length) for s in deployment.workload.graph.pipeline.stages
        )
        found = meet_requirements(_changed(deployment, stages), _with_slices(deployment, length))
        if found is not None:
            return found
    return candidate


def _shallow(candidate: Candidate) -> Candidate:
    deployment = candidate.deployment
    pipeline = deployment.workload.graph.pipeline
    if not any(stage.open_queue and stage.queue > DEPTHS[0] + _before(stage) for stage in pipeline.stages):
        return candidate
    for depth in DEPTHS:
        here = _with(candidate, lambda stage, depth=depth: depth)  # type: ignore[misc]
        if here.verdict == "feasible":
            candidate = here
            break
    # Other depths are other limits, by which local deadlines are divided: responses change, and so does what they need.
    needed = _needed(candidate)
    for _ in range(_ROUNDS):
        depths = needed
        trial = _with(candidate, lambda stage: depths[stage.name])  # noqa: B023 - used at once
        if trial.verdict == "feasible":
            return trial
        more = _needed(trial)
        needed = {name: max(depth, more.get(name, 1)) for name, depth in depths.items()}
        if needed == depths:
            break
    return candidate


def _needed(candidate: Candidate) -> dict[str, int]:
    """Return the depth by stage, beyond that for the parts before it, with which no frame is dropped."""
    graph, found = candidate.deployment.workload.graph, dict[str, int]()
    for task in candidate.assessment.tasks:
        response = candidate.assessment.responses[task.name]
        name = task.name.split(">")[-1]  # a conversion takes the larger depth of its ends
        waiting = max(response.value - task.cost_ns, 0) // task.period_ns + 1 if response.bounded else DEPTHS[-1]
        depth = min(max(waiting - _before(graph.stage(name)), 1), DEPTHS[-1])
        found[name] = max(found.get(name, 1), depth)
    return found


def _with(candidate: Candidate, depth: Callable[[Stage], int]) -> Candidate:
    deployment = candidate.deployment
    changed = _with_depths(deployment.workload.graph.pipeline, depth)
    return judge(_changed(deployment, changed.stages), deployment.mapping)


def _with_depths(pipeline: Pipeline, depth: Callable[[Stage], int]) -> Pipeline:
    stages = tuple(replace(s, queue=depth(s) + _before(s)) if s.open_queue else s for s in pipeline.stages)
    return pipeline if stages == pipeline.stages else replace(pipeline, stages=stages)


def _changed(deployment: Deployment, stages: tuple[Stage, ...]) -> Workload:
    workload = deployment.workload
    return workload.asking(task_graph(replace(workload.graph.pipeline, stages=stages)))


def _with_slices(deployment: Deployment, length: int) -> Mapping[str, Cost]:
    """Return the mapping with slices of another length where it has chosen ones; 0 for whole jobs."""
    workload, found = deployment.workload, dict(deployment.mapping)
    for name, cost in deployment.mapping.items():
        stage = workload.graph.stage(name)
        if stage.slice_ns and not stage.modelled and _range(workload.model.platform.engine(cost.engine)):
            other = workload.model.at(replace(stage, slice_ns=length), cost.engine, cost.precision, cost.share)
            found[name] = other or cost
    return found


def _before(stage: Stage) -> int:
    """Return the number of parts before a part of a network, each of which can hold one more frame in flight."""
    part = part_of(stage.params)
    return part.number - 1 if part else 0


def _engine(deployment: Deployment, name: str) -> Engine:
    return deployment.workload.model.platform.engine(deployment.mapping[name].engine)


def _count(deployment: Deployment, name: str) -> int:
    return len(deployment.mapping[name].segments)


def _range(engine: Engine) -> tuple[int, int] | None:
    figure = engine.preemption.slices_ns
    if figure is None:
        return None
    low, high = figure.interval or (figure.value, figure.value)
    return round(low), round(high)
