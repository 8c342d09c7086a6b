"""Why a plan is as it is: the reason for every task's place, and the levers that would mend a violation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.descriptor.pipeline import PER_POINT
from socsched.errors import SocschedError
from socsched.models.parts import uncut
from socsched.plan.accuracy import better_precisions
from socsched.plan.deployment import Deployment
from socsched.plan.plan import Task, Violation
from socsched.units import format_bandwidth, format_duration, format_power

Judged = Mapping[str, tuple[str, Sequence[Violation], int]]
"""Mode name -> (verdict, violations, mean power in mW) of a quick plan there."""


def reasons(deployment: Deployment) -> list[Task]:
    """Return the tasks with `why` filled in."""
    model, graph = deployment.workload.model, deployment.workload.graph
    result = []
    for task in deployment.tasks:
        if task.kind == "stage":
            options = model.candidates(graph.stage(task.name))
            hops = [t for t in deployment.transitions if t.sink == task.name and t.task]
            task = replace(
                task, why=_why(deployment.mapping[task.name], options, [(h.source, h.cost_ns) for h in hops])
            )
        result.append(task)
    return result


def _why(chosen: Cost, options: Sequence[Cost], conversions: Sequence[tuple[str, int]]) -> str:
    others = sorted((c for c in options if not _same(c, chosen)), key=lambda c: c.time_ns)
    text = f"{_name(chosen)} {format_duration(chosen.time_ns, 2)}"
    if not others:
        text = f"the only candidate: {text}"
    elif chosen.time_ns <= others[0].time_ns:
        text = f"fastest of {len(others) + 1} candidates: {text}, next {_name(others[0])} "
        text += format_duration(others[0].time_ns, 2)
    else:
        text = f"{text} serves the whole plan better than the fastest of {len(others) + 1} candidates, "
        text += f"{_name(others[0])} {format_duration(others[0].time_ns, 2)}"
    for source, cost in conversions:
        text += f"; conversion from {source} {format_duration(cost, 2)}"
    return text


def _same(a: Cost, b: Cost) -> bool:
    return (a.engine, a.precision, a.share) == (b.engine, b.precision, b.share)


def _name(cost: Cost) -> str:
    return f"{cost.engine} {cost.precision}" + (f" x{cost.share}" if cost.share > 1 else "")


def levers(violation: Violation, deployment: Deployment, modes: Judged) -> Iterator[str]:
    """Yield what would close a violation's gap, most effective first; each is worked out, none is guessed."""
    yield from _mode_levers(violation, deployment, modes)
    if violation.unit == "ns/s":
        yield from _rate_levers(violation, deployment)
    if violation.requirement == "accuracy loss":
        yield from _accuracy_levers(violation, deployment)
    if violation.requirement.startswith("queue of "):
        yield from _queue_levers(violation, deployment)
    if violation.unit == "ns":
        yield from _precision_levers(violation, deployment)
        yield f"allow {format_duration(violation.demand)} instead of {format_duration(violation.bound)}"
    if violation.unit == "mW":
        name, value = max(violation.terms, key=lambda term: term[1])
        yield f"largest term: {name} {format_power(value)}; {format_power(violation.gap)} have to go"
    if violation.unit == "B/s":
        name, value = max(violation.terms, key=lambda term: term[1])
        yield f"largest term: {name} {format_bandwidth(value)}; {format_bandwidth(violation.gap)} have to go"


def _accuracy_levers(violation: Violation, deployment: Deployment) -> Iterator[str]:
    """Name, for every stage that loses accuracy, what a better data type would cost it."""
    graph, model = deployment.workload.graph, deployment.workload.model
    for name, cost in deployment.mapping.items():
        stage = graph.stage(name)
        better = better_precisions(stage, cost, model.candidates(stage))
        if better and any(uncut(name, stage.params) == term for term, _ in violation.terms):
            gained = (stage.losses.get(cost.precision, 0) - stage.losses.get(better[0].precision, 0)) / PER_POINT
            slower = format_duration(max(better[0].time_ns - cost.time_ns, 0))
            yield f"run {name} on {_name(better[0])}: {slower} slower, {gained:g} points better"
    yield f"allow {violation.demand / PER_POINT:g} points instead of {violation.bound / PER_POINT:g}"


def _queue_levers(violation: Violation, deployment: Deployment) -> Iterator[str]:
    """Name the frames in flight a late stage would have to hold, where it keeps up with their rate."""
    name = violation.requirement.removeprefix("queue of ").split(" ")[0]
    task = next((task for task in deployment.tasks if task.name == name), None)
    if task is not None:
        frames = -(-violation.demand // task.period_ns)
        where = uncut(name, task.params) if task.kind == "stage" else name.split(">")[-1]
        yield f"let {frames} frames be under way there (queue: {frames} at {where}), as far as deadlines allow"


def _mode_levers(violation: Violation, deployment: Deployment, modes: Judged) -> Iterator[str]:
    here = deployment.workload.model.mode.name
    helpful = []
    for name, (verdict, violations, power) in modes.items():
        same = [v for v in violations if v.requirement == violation.requirement]
        if name != here and not same:
            helpful.append((verdict != "feasible", power, name))
    for unmet, power, name in sorted(helpful):
        rest = "; other requirements stay unmet there" if unmet else ", where every requirement is met"
        yield f"mode {name} ({format_power(power)} expected){rest}"


def _rate_levers(violation: Violation, deployment: Deployment) -> Iterator[str]:
    """Name, for the largest consumers of an overfull lane, the rate that would fit."""
    tasks = {task.name: task for task in deployment.tasks}
    for name, value in sorted(violation.terms, key=lambda term: -term[1])[:2]:
        task = tasks[name]
        left = value - violation.gap
        if left > 0:
            period = -(-task.wcet_ns * 10**9 // left)
            yield f"run {name} every {format_duration(period)} instead of every {format_duration(task.period_ns)}"


def _precision_levers(violation: Violation, deployment: Deployment) -> Iterator[str]:
    """Name precisions not accepted so far that would be faster on some engine, for the longest stage involved."""
    model, graph = deployment.workload.model, deployment.workload.graph
    longest = sorted(
        (
            task
            for task in deployment.tasks
            if task.kind == "stage" and any(t.startswith(f"{task.name}:") for t, _ in violation.terms)
        ),
        key=lambda task: -task.wcet_ns,
    )
    for task in longest[:1]:
        stage = graph.stage(task.name)
        more = {p for engine in model.platform.engines for p in engine.precisions} - set(stage.precisions)
        wider = replace(stage, precisions=tuple(sorted(more)), name=f"{stage.name}")
        best = _fastest(deployment, wider)
        if best is not None and best.time_ns < task.cost_ns:
            saved = format_duration(task.cost_ns - best.time_ns)
            yield f"accept {best.precision} for {task.name}: {_name(best)} saves {saved} if its accuracy allows"


def _fastest(deployment: Deployment, stage: object) -> Cost | None:
    from socsched.cost.model import CostModel
    from socsched.descriptor.pipeline import Stage

    assert isinstance(stage, Stage)
    model = deployment.workload.model
    try:
        costs = CostModel(model.platform, model.mode, model.work, model.profile).candidates(stage)
    except (SocschedError, KeyError, ValueError):
        return None
    return min(costs, key=lambda cost: cost.time_ns, default=None)
