"""The Pareto front over power modes: the fastest and the most frugal plan of every mode, and which are undominated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from socsched.cost.model import WorkOf
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform
from socsched.models.parts import part_of, uncut
from socsched.planning.plan import Plan, Task


def undominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices, ascending, of points that no other is below in one measure and not above in the other."""
    kept: list[int] = []
    for index in sorted(range(len(points)), key=lambda number: (points[number], number)):
        if not kept or points[index][1] < points[kept[-1]][1] or points[index] == points[kept[-1]]:
            kept.append(index)
    return sorted(kept)


GOALS = ("latency,energy", "energy,latency")
"""Objectives optimised in every mode."""
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Point:
    """A plan in one mode, with its figures.

    `latency_ns`: sum of the expected latencies of all chains, as in the planner; `longest`: the chain with the longest
    one; `energy_uj`: of a round of `round_ns`, the longest period of a chain; `shares`: share of all network
    operations, by engine; `cuts`: (stage, engines, cut points) of every stage that is cut.
    """

    mode: str
    objective: str
    plan: Plan
    latency_ns: int
    longest: str
    power_mw: int
    round_ns: int
    energy_uj: int
    shares: tuple[tuple[str, float], ...]
    cuts: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    on_front: bool = False


def explore(pipeline: Pipeline, platform: Platform, work: WorkOf, planned: Callable[[str, str], Plan]) -> list[Point]:
    """Return the plans of every mode, the most powerful first, and of every objective of `GOALS`.

    `planned` makes the plan of a mode and an objective.
    """
    caps = {mode.name: mode.cap_mw.value if mode.cap_mw else float("inf") for mode in platform.modes}
    points: list[Point] = []
    for mode in sorted(caps, key=lambda name: -caps[name]):
        found = [_point(pipeline, work, objective, planned(mode, objective)) for objective in GOALS]
        first = found[0].latency_ns, found[0].power_mw
        points += [found[0], *(point for point in found[1:] if (point.latency_ns, point.power_mw) != first)]
    return mark(points)


def mark(points: Sequence[Point]) -> list[Point]:
    """Return the points with the front marked: feasible, and undominated in latency and power by feasible points."""
    feasible = [point for point in points if point.plan.verdict == "feasible"]
    kept = [feasible[index] for index in undominated([(p.latency_ns, p.power_mw) for p in feasible])]
    return [replace(point, on_front=point in kept) for point in points]


def _point(pipeline: Pipeline, work: WorkOf, objective: str, plan: Plan) -> Point:
    sources = {sensor.name: sensor.period_ns for sensor in plan.sensors}
    sources |= {task.name: task.period_ns for task in plan.tasks}
    ends = [sources[chain.path[0]] for chain in plan.chains if chain.path[0] in sources]
    period = max(ends, default=_SECOND)
    power = int(plan.power.expected_mw or 0)
    longest = max(plan.chains, key=lambda chain: chain.expected_ns, default=None)
    return Point(
        mode=plan.mode,
        objective=objective,
        plan=plan,
        latency_ns=sum(chain.expected_ns for chain in plan.chains),
        longest=longest.name if longest else "",
        power_mw=power,
        round_ns=period,
        energy_uj=power * period // 10**6,
        shares=shares(pipeline, plan, work),
        cuts=tuple(cuts(plan)),
    )


def shares(pipeline: Pipeline, plan: Plan, work: WorkOf) -> tuple[tuple[str, float], ...]:
    """Return each engine's share of the networks' operations, without engines that compute none."""
    rates: dict[str, float] = {}
    for task in plan.tasks:
        stage = _stage(pipeline, task)
        if stage is not None and stage.model:
            done = work(stage, task.precision)
            if any(operator.kind != "function" for operator in done.operators):
                rates[task.engine] = rates.get(task.engine, 0.0) + done.flops / task.period_ns
    total = sum(rates.values())
    return tuple((engine.id, rates[engine.id] / total) for engine in plan.engines if rates.get(engine.id) and total)


def _stage(pipeline: Pipeline, task: Task) -> Stage | None:
    if task.kind != "stage":
        return None
    whole = pipeline.stage(uncut(task.name, task.params))
    return replace(whole, name=task.name, params={**task.params, **whole.params})


def cuts(plan: Plan) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield (stage, engine and precision of its parts, cut points) of every stage a plan cuts."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for task in plan.tasks:
        part = part_of(task.params) if task.kind == "stage" else None
        if part:
            end = part.cut.partition(":")[2]
            found.setdefault(part.stage, []).append((part.number, f"{task.engine} {task.precision}", end))
    for stage, parts in found.items():
        ordered = sorted(parts)
        yield stage, tuple(place for _, place, _ in ordered), tuple(end for _, _, end in ordered[:-1])
