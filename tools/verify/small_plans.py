"""Small random plans for the explorer: two engines, gangs, joins, sampled chains, conversions, shared bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from socsched.cost.contention.models import MaxMin
from socsched.cost.cost import Segment
from socsched.planning.execution import with_wcet
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport
from socsched.planning.task import Task as PlannedTask
from socsched.schedulability.chains import data_age, reaction_time
from socsched.schedulability.explain_bounds import bounds
from socsched.schedulability.plan_analysis import Corunning, respond, stretches
from socsched.schedulability.tasks import rt_tasks
from tools.verify import explorer

CAPACITY = explorer.UNIT * 10**9
"""DRAM bandwidth in bytes/s: `UNIT` bytes a tick."""
PERIODS = (6, 10, 12, 15, 20, 30)
"""Periods drawn (ticks); all divide 60."""


@dataclass(frozen=True, slots=True)
class SmallPlan:
    """A plan, the same system in the explorer's terms, and vectors of first arrivals to explore from."""

    plan: Plan
    system: explorer.System
    phases: list[list[int]]


def plan_system(policy: str, kind: str, draw: Random) -> SmallPlan:
    """Return a small plan: a ``pipeline`` of triggers and joins, ``gangs`` on shared lanes, a sampled ``chain``."""
    engines = [_engine(f"e{number}", policy, draw, kind) for number in range(1 if kind == "gangs" else 2)]
    shared = draw.random() < 0.4
    count = draw.randint(2, 4) if kind == "gangs" else draw.randint(2, 5)
    tasks: list[PlannedTask] = []
    sensors: list[PlannedSensor] = []
    best: list[int] = []
    period = draw.choice(PERIODS)
    for index in range(count):
        engine = draw.choice(engines)
        cuts = _time(draw, period, engine, count)
        traffic = draw.choice((0, 6, 12)) if shared else 0
        names = [task.name for task in tasks]
        wide = engine.lanes > 1 and draw.random() < (0.5 if kind == "gangs" else 0.2)
        base: dict[str, Any] = {"after": (), "reads": (), "timer": True, "offset_ns": 0, "release_jitter_ns": 0}
        base["period_ns"] = period = draw.choice(PERIODS)
        triggers = [] if kind == "gangs" and draw.random() < 0.7 else _triggers(tasks, draw)
        if kind == "chain" and index:
            triggers = [] if draw.random() < 0.5 else [tasks[-1]]
        if triggers:
            base.update(after=tuple(t.name for t in triggers), timer=False, period_ns=triggers[0].period_ns)
        elif draw.random() < 0.4 and not (kind == "chain" and index):
            sensor = PlannedSensor(f"s{index}", period, draw.choice((0, 0, 2)), draw.choice((0, 0, 1, 2)), 0)
            sensors.append(sensor)
            base.update(after=(sensor.name,), timer=False)
        else:
            base["offset_ns"] = draw.choice((0, 0, 3))
            base["release_jitter_ns"] = draw.choice((0, 0, 1, 2))
            if kind == "chain" and index:
                base["reads"] = (names[-1],)
        cuts = [min(cut, base["period_ns"]) for cut in cuts]
        cost = sum(cuts)
        tasks.append(
            PlannedTask(
                name=f"t{index}",
                kind="conversion" if triggers and draw.random() < 0.2 else "stage",
                engine=engine.id,
                lanes=tuple(range(engine.lanes)) if wide else (draw.randrange(engine.lanes),),
                precision="fp32",
                queue=64,
                cost_ns=cost,
                wcet_ns=cost,
                bytes=cost * traffic,
                energy_uj=0,
                segments=tuple(Segment(f"t{index}.{n}", cut, 0, cut * traffic) for n, cut in enumerate(cuts)),
                priority=0,
                deadline_ns=max(draw.randint(cost, 2 * base["period_ns"]), 1),
                jitter_ns=0,
                criticality="firm",
                provenance="assumed",
                source="",
                error=0.0,
                **base,
            )
        )
        best.append(cost if draw.random() < 0.5 else draw.randint(1, cost))
    ranks = list(range(count))
    draw.shuffle(ranks)
    tasks = [replace(task, priority=rank) for task, rank in zip(tasks, ranks, strict=True)]
    tasks = with_wcet(tasks, MaxMin(CAPACITY)) if shared else tasks
    path = _path(tasks) if kind == "chain" else ()
    chains = (ChainResult("c", path, 10**6, 0, None, None, ()),) if path else ()
    plan = Plan(
        platform="small", mode="small", pipeline="small", verdict="undecided", policy=policy, engines=tuple(engines),
        sensors=tuple(sensors), tasks=tuple(tasks), transitions=(), chains=chains, violations=(), power=Power(),
        bandwidth=Bandwidth(), solver=SearchReport(), inputs={}, dram_bandwidth=CAPACITY if shared else 0,
    )  # fmt: skip
    return _explored(plan, path, best, draw)


def _engine(name: str, policy: str, draw: Random, kind: str) -> PlannedEngine:
    preemption = draw.choice(("full", "segment", "segment", "none", "restart"))
    return PlannedEngine(
        id=name, kind="cpu", lanes=2 if kind == "gangs" else draw.choice((1, 1, 2)), preemption=preemption,
        switch_ns=0 if preemption == "none" else draw.choice((0, 0, 1)), policy=policy, bandwidth=0, idle_mw=0,
        dynamic_mw=0, reset_ns=draw.choice((0, 1)) if preemption == "restart" else 0,
    )  # fmt: skip


def _time(draw: Random, period: int, engine: PlannedEngine, count: int) -> list[int]:
    parts = draw.randint(1, 2) if engine.preemption in ("segment", "restart") else 1
    most = max(round(period * draw.choice((0.2, 0.4, 0.6)) / parts * 2 / count), 1)
    return [draw.randint(1, most) for _ in range(parts)]


def _triggers(tasks: list[PlannedTask], draw: Random) -> list[PlannedTask]:
    if not tasks or draw.random() < 0.4:
        return []
    first = draw.choice(tasks)
    same = [task for task in tasks if task is not first and task.period_ns == first.period_ns]
    return [first, draw.choice(same)] if same and draw.random() < 0.4 else [first]


def _path(tasks: list[PlannedTask]) -> tuple[str, ...]:
    """Return the chain through all tasks from the first; it starts at the first's sensor or timer."""
    return tuple(task.name for task in tasks) if len(tasks) > 1 else ()


def _explored(plan: Plan, path: tuple[str, ...], best: list[int], draw: Random) -> SmallPlan:
    index = {task.name: number for number, task in enumerate(plan.tasks)}
    sensors = {sensor.name: sensor for sensor in plan.sensors}
    engines = {engine.id: (number, engine) for number, engine in enumerate(plan.engines)}
    tasks = []
    for number, task in enumerate(plan.tasks):
        place, engine = engines[task.engine]
        source = next((sensors[name] for name in task.after if name in sensors), None)
        cuts = tuple(segment.time_ns for segment in task.segments)
        tasks.append(
            explorer.Task(
                period=task.period_ns,
                worst=task.cost_ns,
                best=best[number],
                rank=task.priority,
                deadline=task.deadline_ns,
                lanes=sum(1 << (2 * place + lane) for lane in task.lanes),
                jitter=source.jitter_ns if source else task.release_jitter_ns,
                moves=source is not None,
                regions={"full": (), "none": (task.cost_ns,), "segment": cuts, "restart": cuts}[engine.preemption],
                switch=engine.switch_ns,
                restart=engine.preemption == "restart",
                reset=engine.reset_ns,
                traffic=task.bytes // task.cost_ns,
                after=tuple(index[name] for name in task.after if name in index),
            )
        )
    chain: list[list[int]] = []
    for name in path:
        if not chain or plan.tasks[index[name]].timer:
            chain.append([])
        chain[-1].append(index[name])
    system = explorer.System(tuple(tasks), plan.policy, 1, draw.random() < 0.5, tuple(map(tuple, chain)))
    family = _families(tasks)
    offsets = []
    for task in plan.tasks:
        source = next((sensors[name] for name in task.after if name in sensors), None)
        offsets.append(source.offset_ns if source else task.offset_ns)
    phases = [offsets]
    for _ in range(5):
        shift = {number: draw.randrange(tasks[number].period) for number in set(family)}
        phases.append([shift[group] + offset for group, offset in zip(family, offsets, strict=True)])
    return SmallPlan(plan, system, phases)


def _families(tasks: list[explorer.Task]) -> list[int]:
    """Return a number for each task, the same for tasks joined by triggers: their offsets are fixed to each other."""
    family = list(range(len(tasks)))
    for number, task in enumerate(tasks):
        for other in task.after:
            old, new = family[number], family[other]
            family = [new if group == old else group for group in family]
    return family


def plan_bounds(small: SmallPlan) -> list[tuple[str, int | str, int]]:
    """Return every bound of the plan's analyses: (analysis, task number or measure of the chain, ticks)."""
    plan = small.plan
    index = {task.name: number for number, task in enumerate(plan.tasks)}
    tasks = rt_tasks(plan)
    whole = respond(plan.policy, tasks, None, Corunning.of(plan).without_absent)
    found: list[tuple[str, int | str, int]] = []
    for label, answers in (("own", whole.own), ("tightest", whole.tight)):
        found += [(f"plan {plan.policy}, {label}", index[n], r.value) for n, r in answers.items() if r.bounded]
        for chain in plan.chains:
            parts = stretches(plan, chain)
            for measure, (value, bounded, _) in (
                ("reaction", reaction_time(parts, answers)),
                ("age", data_age(parts, answers)),
            ):
                if bounded:
                    found.append((f"chain {plan.policy}, {label}: {measure}", measure, value))
    every = bounds(plan)
    for resource in every.resources:
        for outcome in resource.analysis.outcomes if resource.analysis else ():
            for name, bound in outcome.answer.bounds.items() if outcome.answer else ():
                found.append((f"per resource: {outcome.test.name}", index[name], bound.value))
    found += [("shortest of every test", index[row.task], row.bound) for row in every.rows if row.bound is not None]
    return found
