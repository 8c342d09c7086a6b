"""Random plans, faults and task sets from a seed, up to every documented limit (`socsched.limits`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

from builders import chain, engine, plan, sensor, task

from socsched.cost.cost import Segment
from socsched.descriptor.taskset import TaskSet, taskset_from_mapping
from socsched.faults.model import Burst, Delay, Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.limits import HORIZON_NS, LONGEST_NS
from socsched.planning.plan import ExecutionTimes, Level, Plan, PlannedEngine, Task, Throttle
from socsched.sim.policies import describe_policies, get_policy

LANES = (1, 2, 3, 8, 31, 32, 33, 40, 61, 62, 63, 64, 65, 127, 128, 129, 1000, 1023, 1024)
"""Numbers of lanes around the borders of words, and the most there may be."""
SPAN = 3_000
"""Units of time that a plan is simulated for."""
_TICKS = 20_000
"""Policies that look again at every tick are simulated for so many."""
_UNITS = (1, 1, 7, 1000, 10**6, 10**9, LONGEST_NS // 400)
_LOADS = (0, 1, 50, 200)


@dataclass(frozen=True)
class Case:
    """A plan, faults, and how long to simulate it."""

    plan: Plan
    faults: Faults
    duration_ns: int


def case(seed: int) -> Case:
    """Return the case of a seed."""
    rng = Random(seed)
    unit = rng.choice(_UNITS)
    hosts = [_engine(rng, name, unit) for name in ("x", "y")]
    tasks: list[Task] = []
    for index in range(rng.choice((1, 3, 6, 6, 12, 60))):
        tasks.append(_task(rng, index, tasks, hosts, unit))
    sensors = (
        sensor("s", unit * rng.randint(60, 300), offset_ns=unit * rng.randint(0, 100), jitter_ns=rng.randint(0, 30)),
    )
    memory: dict[str, Any] = {"dram_bandwidth": rng.choice((0, 2 * 10**9, 10**15)), "dram_picojoule_per_byte": 3.0}
    made = plan(tasks, hosts, sensors=sensors, chains=_chains(rng, tasks, unit), **memory)
    if rng.random() < 0.2:
        made = replace(made, throttle=Throttle(unit * rng.randint(50, 300), cap_mw=rng.choice((20, 60, 10**9))))
    harm = _faults(rng, made, unit)
    duration = unit * rng.choice((SPAN, SPAN, 8000))
    if unit == _UNITS[-1] and rng.random() < 0.3:
        duration = HORIZON_NS
    ticks = [found.tick_ns for found in (get_policy(host.policy) for host in hosts) if found.dynamic]
    if ticks:
        duration = min(duration, _TICKS * min(ticks))
    return Case(made, harm, duration)


def _engine(rng: Random, name: str, unit: int) -> PlannedEngine:
    lanes = rng.choice(LANES)
    changes: dict[str, Any] = {
        "lanes": lanes,
        "preemption": rng.choice(("full", "segment", "none", "restart")),
        "policy": rng.choice(sorted(describe_policies())),
        "switch_ns": unit * rng.randint(0, 5),
        "dynamic_mw": 70 * lanes,
        "migration_ns": unit * rng.randint(0, 5),
        "reshape_ns": unit * rng.randint(0, 5),
        "reset_ns": unit * rng.randint(0, 5),
        "in_flight": rng.randint(0, 3),
        "quantum_ns": unit * rng.randint(0, 40),
        "memory_bytes": rng.choice((0, 0, 100)),
        "swap_bandwidth": 10**10,
        "capacities": rng.choice(((), tuple(rng.choice((1024, 700, 512)) for _ in range(lanes)))),
        "levels": rng.choice(((), (Level(500, 20), Level(1000, 70)), (Level(1, 0), Level(2, 3), Level(3, 10**9)))),
        "governor": rng.choice(("static", "ccedf")),
        "linger_ns": rng.choice((0, 0, 0, 15 * unit)),
        "kind": rng.choice(("cpu", "gpu", "dla")),
    }
    return engine(name, **changes)


def _lanes(rng: Random, host: PlannedEngine) -> tuple[int, ...]:
    kind = rng.randrange(4)
    if kind == 0:
        return (rng.randrange(host.lanes),)
    if kind == 1:
        first, second = sorted((rng.randrange(host.lanes), rng.randrange(host.lanes)))
        return tuple(range(first, second + 1))
    if kind == 2:
        return tuple(sorted(rng.sample(range(host.lanes), rng.randint(1, min(host.lanes, 5)))))
    return tuple(range(host.lanes))


def _segments(rng: Random, name: str, unit: int, elsewhere: list[PlannedEngine]) -> tuple[Segment, ...]:
    made = []
    for place in range(rng.randint(1, 3)):
        time = unit * rng.randint(0, 60) + (rng.randrange(unit) if unit > 1 else 0)
        part = Segment(f"{name}.{place}", time, rng.randint(0, time), rng.choice(_LOADS) * unit)
        if elsewhere and place and rng.random() < 0.5:
            other = rng.choice(elsewhere)
            part = replace(part, engine=other.id, lanes=_lanes(rng, other), hold=rng.random() < 0.5)
        made.append(part)
    return tuple(made)


def _task(rng: Random, index: int, tasks: list[Task], hosts: list[PlannedEngine], unit: int) -> Task:
    name = f"t{index}"
    known = ["s", *(t.name for t in tasks)]
    host = rng.choice(hosts)
    lanes = _lanes(rng, host)
    after = tuple(sorted(rng.sample(known, min(rng.randint(0, 2), len(known)))))
    reads = tuple(sorted(set(rng.sample(known, min(rng.randint(0, 2), len(known)))) - set(after)))
    own = _segments(rng, name, unit, [other for other in hosts if other is not host])
    extra = _extras(rng, name, len(lanes), sum(s.time_ns for s in own), unit)
    if not after:
        extra["closed_by"] = rng.choice(("", "", name))
    return task(
        name, segments=own, engine=host.id, lanes=lanes, after=after, reads=reads, priority=rng.randint(-3, 9),
        period_ns=unit * rng.randint(50, 400), offset_ns=unit * rng.randint(0, 100),
        deadline_ns=min(unit * rng.choice((20, 100, 400)), LONGEST_NS), queue=rng.choice((0, 1, 3, 2**40)), **extra,
    )  # fmt: skip


def _extras(rng: Random, name: str, lanes: int, cost: int, unit: int) -> dict[str, Any]:
    times = tuple(sorted(rng.randint(0, min(2 * cost + 1, LONGEST_NS)) for _ in range(rng.randint(2, 5))))
    budget = rng.choice((0, 20 * unit))
    return {
        "width": rng.choice((0, 1, lanes, (lanes + 1) // 2)),
        "overflow": rng.choice(("newest", "oldest")),
        "on_late": rng.choice(("continue", "continue", "skip", "abort", "degrade")),
        "degraded": rng.choice(((), (Segment("less", 5 * unit, 0, 10),))),
        "times": rng.choice((None, ExecutionTimes(times, rng.random() < 0.5))) if cost else None,
        "release_jitter_ns": unit * rng.randint(0, 20),
        "gap_ns": rng.choice((0, 0, 50 * unit)),
        "weights_bytes": rng.choice((0, 60, 80)),
        "budget_ns": budget,
        "server_ns": 70 * unit if budget else 0,
        "criticality": rng.choice(("hard", "firm", "soft")),
        "process": rng.choice(("", "p")),
    }


def _chains(rng: Random, tasks: list[Task], unit: int) -> tuple[Any, ...]:
    found = []
    owners = {t.name: t for t in tasks}
    for index, last in enumerate(tasks[:12]):
        path = [last.name]
        while path[0] != "s" and (before := [*owners[path[0]].after, *owners[path[0]].reads]):
            path.insert(0, rng.choice(before))
        if len(path) > 1 and len(set(path)) == len(path):
            found.append(chain(f"c{index}", path, min(unit * rng.randint(20, 600), LONGEST_NS)))
    return tuple(found)


def _faults(rng: Random, made: Plan, unit: int) -> Faults:
    end = unit * SPAN

    def window() -> tuple[int, int]:
        begin = rng.randrange(end - 1)
        return begin, rng.randint(begin + 1, end)

    def some(most: int) -> range:
        return range(rng.randint(0, most))

    engines, tasks = [e.id for e in made.engines], [t.name for t in made.tasks]
    # at the longest times little more than twice as long can be counted
    factors = (Fraction(3, 2), Fraction(101, 100)) if unit > 10**9 else (Fraction(3, 2), Fraction(7), Fraction(1000))
    return Faults(
        dropouts=tuple(Dropout("s", *window()) for _ in some(1)),
        slowdowns=tuple(Slowdown(rng.choice(engines), *window(), rng.choice(factors)) for _ in some(2)),
        overruns=tuple(Overrun(rng.choice(tasks), Fraction(1, 2), rng.choice(factors)) for _ in some(1)),
        stalls=tuple(Stall(rng.choice(engines), *window(), rng.random() < 0.5) for _ in some(1)),
        delays=tuple(Delay("s", *window(), rng.randint(1, 500 * unit)) for _ in some(1)),
        bursts=tuple(Burst("s", rng.randint(0, end), 3) for _ in some(1)),
        hogs=tuple(Hog(rng.choice(engines), *window(), 10**9) for _ in some(1)),
    )


def task_set(seed: int) -> tuple[TaskSet, int]:
    """Return the task set of a seed and how long to simulate it: up to 1,024 processors, and times of an hour."""
    rng = Random(seed)
    processors = rng.choice(LANES)
    scheme = rng.choice(("G_", "P_")) if processors > 1 else ""
    rule = rng.choice(("EDF", "FP", "RM", "DM", "FIFO"))
    unit = rng.choice((1, 1000, 10**6, 10**9, LONGEST_NS // 400))
    rows = []
    for number in range(rng.choice((1, 5, 20, processors, 2 * processors))):
        period = unit * rng.randint(50, 400)
        most = min(2 * period, LONGEST_NS)
        row = {
            "id": number, "period": period, "wcet": rng.randint(1, most // rng.choice((1, 2, 8))),
            "deadline": rng.randint(1, most), "offset": unit * rng.randint(0, 50), "prio": number,
        }  # fmt: skip
        if scheme == "P_":
            row["cpu"] = rng.randrange(processors)
        rows.append(row)
    policy = f"{scheme}{rng.choice(('', 'NP-'))}{rule}" if rule != "FIFO" else f"{scheme}FIFO"
    spread = rng.choice((1200, 2000))
    return taskset_from_mapping(
        {"time_unit": "ns", "policy": policy, "processors": processors, "tasks": rows}, f"seed{seed}.taskset.json"
    ), unit * spread
