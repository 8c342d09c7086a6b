"""Random mapping problems, all their schedules by brute force, and the plan of a schedule for the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from socsched.cost.cost import Segment
from socsched.planning.mapping.problem import (
    FREE,
    Edge,
    Group,
    Hop,
    JobKey,
    Lanes,
    Option,
    Problem,
    Requirement,
    Schedule,
)
from socsched.planning.plan import Plan, Task
from socsched_literature.mapping.evaluate import Impossible, chosen_hops, evaluate, job_segments
from tests.sim.builders import engine, plan, sensor, task


def random_problem(
    rng: Random, networks: int, groups: int, engines: int, bandwidth: int = 20, frames: int = 1, unit: int = 1000
) -> Problem:
    """Return networks in chains with a joint last group now and then; times are multiples of `unit` ns."""
    names = [f"e{i}" for i in range(engines)]
    made: list[Group] = []
    edges: list[Edge] = []
    for network in range(networks):
        for position in range(groups):
            options = tuple(
                Option(name, _segments(rng, unit), energy_uj=rng.randint(0, 50))
                for name in names
                if rng.random() < 0.8 or name == names[0]
            )
            group = Group(f"n{network}.{position}", options, f"n{network}", 0, 100 * unit, frames)
            if position:
                edges.append(_edge(rng, made[-1], group, names, unit))
            made.append(group)
    ends = [f"n{network}.{groups - 1}" for network in range(networks)]
    requirements = tuple(Requirement(name, (name,)) for name in ends)
    return Problem(tuple(Lanes(name) for name in names), tuple(made), tuple(edges), requirements, (), bandwidth * 10**9)


def _segments(rng: Random, unit: int) -> tuple[Segment, ...]:
    return tuple(
        Segment(f"s{i}", time, rng.choice([0, unit // 2]), time * rng.choice([0, 5, 10, 15]))
        for i in range(rng.choice([1, 1, 2]))
        for time in (rng.randint(1, 9) * unit,)
    )


def _edge(rng: Random, source: Group, sink: Group, names: list[str], unit: int) -> Edge:
    time, handoff, where = rng.randint(1, 3) * unit, rng.choice([0, unit]), rng.choice(names)
    changed = rng.choice(
        [
            Hop(handoff_ns=handoff, engine=where, segments=(Segment("convert", time, 0, time * 4),), energy_uj=3),
            Hop(handoff_ns=handoff),
            Hop(pickup_ns=time),
        ]
    )
    rows = tuple(tuple(FREE if a.engine == b.engine else changed for b in sink.options) for a in source.options)
    return Edge(source.name, sink.name, rows)


def random_schedule(rng: Random, problem: Problem) -> Schedule:
    """Return a random choice in a random order that follows precedence, some jobs held by earlier ones."""
    choice = tuple(rng.randrange(len(group.options)) for group in problem.groups)
    keys, needs = _precedence(problem, choice)
    order: list[JobKey] = []
    while len(order) < len(keys):
        order.append(rng.choice([key for key in keys if key not in order and needs[key] <= set(order)]))
    holds = [(key, rng.choice(order[:i])) for i, key in enumerate(order) if i and rng.random() < 0.3]
    return Schedule(choice, tuple(order), tuple(holds))


def _precedence(problem: Problem, choice: tuple[int, ...]) -> tuple[list[JobKey], dict[JobKey, set[JobKey]]]:
    hops = chosen_hops(problem, choice)
    keys, needs = [], {}
    for index, group in enumerate(problem.groups):
        for frame in range(group.frames):
            key = JobKey(frame, index)
            keys.append(key)
            needs[key] = {JobKey(frame - 1, index)} if frame else set()
    for number, edge in enumerate(problem.edges):
        source, sink = problem.index[edge.source], problem.index[edge.sink]
        for frame in range(problem.groups[source].frames):
            if hops[number].engine:
                key = JobKey(frame, number, True)
                keys.append(key)
                needs[key] = {JobKey(frame, source)}
                needs[JobKey(frame, sink)].add(key)
            else:
                needs[JobKey(frame, sink)].add(JobKey(frame, source))
    return keys, needs


def every_schedule(problem: Problem) -> Iterator[Schedule]:
    """Yield every choice with every order that follows precedence."""
    for choice in itertools.product(*(range(len(group.options)) for group in problem.groups)):
        try:
            keys, needs = _precedence(problem, choice)
        except Impossible:
            continue
        yield from (Schedule(choice, order) for order in _orders(keys, needs, ()))


def _orders(
    keys: list[JobKey], needs: dict[JobKey, set[JobKey]], done: tuple[JobKey, ...]
) -> Iterator[tuple[JobKey, ...]]:
    if len(done) == len(keys):
        yield done
    for key in keys:
        if key not in done and needs[key] <= set(done):
            yield from _orders(keys, needs, (*done, key))


def brute_force(problem: Problem) -> int:
    """Return the smallest makespan of all schedules."""
    return min(evaluate(problem, schedule).makespan_ns for schedule in every_schedule(problem))


def plan_of(problem: Problem, schedule: Schedule) -> Plan:
    """Return a plan for the simulator that runs one frame of a schedule in exactly its order."""
    hops = chosen_hops(problem, schedule.choice)
    tasks: list[Task] = []
    last: dict[str, str] = {}
    held = dict(schedule.holds)
    for key in schedule.order:
        name = _name(problem, key)
        if key.conversion:
            home, segments = hops[key.index].engine or "", hops[key.index].segments
            after = [problem.edges[key.index].source]
        else:
            option = problem.groups[key.index].options[schedule.choice[key.index]]
            home, segments = option.engine, job_segments(problem, key.index, schedule.choice, hops)
            after = [
                _name(problem, JobKey(0, number, True)) if hops[number].engine else problem.edges[number].source
                for number in problem.before[key.index]
            ]
        after += [last[home]] if home in last else []
        after += [_name(problem, held[key])] if key in held else []
        last[home] = name
        tasks.append(
            task(name, segments=segments, engine=home, after=tuple(dict.fromkeys(after)) or ("start",), period_ns=10**9)
        )
    engines = [engine(lanes.id, preemption="none") for lanes in problem.engines]
    return plan(tasks, engines, sensors=(sensor("start", 10**9),), dram_bandwidth=problem.bandwidth)


def _name(problem: Problem, key: JobKey) -> str:
    if key.conversion:
        edge = problem.edges[key.index]
        return f"{edge.source}>{edge.sink}"
    return problem.groups[key.index].name
