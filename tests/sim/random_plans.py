"""Random small plans and faults, for property tests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from socsched.cost.cost import Segment
from socsched.faults.model import Burst, Delay, Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.planning.plan import ExecutionTimes, Level, Plan, PlannedEngine, Task
from tests.sim.builders import chain, engine, plan, sensor, task

HORIZON = 3_000
CAPACITY = 2 * 10**9
POLICIES = ["edf", "fp", "fifo", "rm", "dm", "rr", "llf", "edf-criticality", "cbs", "hhpf", "srtf", "np-edf"]


@st.composite
def segments(draw: st.DrawFn, name: str, elsewhere: tuple[PlannedEngine, ...] = ()) -> tuple[Segment, ...]:
    made = []
    for i in range(draw(st.integers(1, 3))):
        time = draw(st.integers(0, 60))
        fixed = draw(st.integers(0, time))
        part = Segment(f"{name}.{i}", time, fixed, draw(st.sampled_from([0, 0, 1, 50, 200])))
        if elsewhere and i and draw(st.booleans()):
            other = draw(st.sampled_from(elsewhere))
            place = (draw(st.integers(0, other.lanes - 1)),)
            part = Segment(part.name, time, fixed, part.bytes, other.id, place, draw(st.booleans()))
        made.append(part)
    return tuple(made)


@st.composite
def engines(draw: st.DrawFn, rich: bool) -> list[PlannedEngine]:
    found = []
    for name in ("x", "y"):
        changes: dict[str, object] = {
            "preemption": draw(st.sampled_from(["full", "segment", "none", *(["restart"] if rich else [])])),
            "policy": draw(st.sampled_from(POLICIES if rich else POLICIES[:3])),
            "switch_ns": draw(st.integers(0, 5)),
            "lanes": draw(st.integers(1, 3)),
            "dynamic_mw": 70,
        }
        if rich:
            changes |= {
                "migration_ns": draw(st.integers(0, 5)),
                "reshape_ns": draw(st.integers(0, 5)),
                "reset_ns": draw(st.integers(0, 5)),
                "in_flight": draw(st.integers(1, 3)),
                "quantum_ns": draw(st.integers(1, 40)),
                "memory_bytes": draw(st.sampled_from([0, 0, 100])),
                "swap_bandwidth": 10**10,
                "capacities": draw(st.sampled_from([(), (1024, 700, 512)[: changes["lanes"]]])),  # type: ignore[misc]
                "levels": draw(st.sampled_from([(), (Level(500, 20), Level(1000, 70))])),
                "governor": draw(st.sampled_from(["static", "ccedf"])),
                "linger_ns": draw(st.sampled_from([0, 0, 0, 15])),
            }
        found.append(engine(name, **changes))
    return found


@st.composite
def plans(draw: st.DrawFn, rich: bool = False) -> Plan:
    """Draw two engines, one sensor, and up to six tasks: timers, chains, joins and samplers, some of them gangs.

    `rich` plans use everything the simulator has.
    """
    hosts = draw(engines(rich))
    tasks: list[Task] = []
    for i in range(draw(st.integers(1, 6))):
        known = ["s", *(t.name for t in tasks)]
        host = draw(st.sampled_from(hosts))
        lanes = draw(st.sets(st.integers(0, host.lanes - 1), min_size=1))
        after = draw(st.sets(st.sampled_from(known), max_size=2))
        elsewhere = tuple(other for other in hosts if other is not host) if rich else ()
        own = draw(segments(f"t{i}", elsewhere))
        extra = draw(_extras(len(lanes), sum(s.time_ns for s in own))) if rich else {}
        if rich and not after:
            extra["closed_by"] = draw(st.sampled_from(["", "", f"t{i}"]))
        tasks.append(
            task(
                f"t{i}",
                segments=own,
                engine=host.id,
                lanes=tuple(sorted(lanes)),
                after=tuple(sorted(after)),
                reads=tuple(sorted(draw(st.sets(st.sampled_from(known), max_size=2)) - after)),
                period_ns=draw(st.integers(50, 400)),
                offset_ns=draw(st.integers(0, 100)),
                deadline_ns=draw(st.integers(20, 600)),
                priority=i,
                queue=draw(st.integers(0, 3)),
                **extra,
            )
        )
    sensors = (sensor("s", draw(st.integers(60, 300)), jitter_ns=draw(st.integers(0, 30))),)
    memory = {"dram_bandwidth": CAPACITY, "dram_picojoule_per_byte": 3.0}
    return plan(tasks, hosts, sensors=sensors, chains=draw(_chains(tasks)), **memory)


@st.composite
def _extras(draw: st.DrawFn, lanes: int, cost: int) -> dict[str, object]:
    times = sorted(draw(st.lists(st.integers(0, 2 * cost + 1), min_size=2, max_size=5)))
    budget = draw(st.sampled_from([0, 20]))
    return {
        "width": draw(st.sampled_from([0, 1, lanes])),
        "overflow": draw(st.sampled_from(["newest", "oldest"])),
        "on_late": draw(st.sampled_from(["continue", "continue", "skip", "abort", "degrade"])),
        "degraded": draw(st.sampled_from([(), (Segment("less", 5, 0, 10),)])),
        "times": draw(st.sampled_from([None, ExecutionTimes(tuple(times), draw(st.booleans()))])) if cost else None,
        "release_jitter_ns": draw(st.integers(0, 20)),
        "gap_ns": draw(st.sampled_from([0, 0, 50])),
        "weights_bytes": draw(st.sampled_from([0, 60, 80])),
        "budget_ns": budget,
        "server_ns": 70 if budget else 0,
        "criticality": draw(st.sampled_from(["hard", "firm", "soft"])),
        "process": draw(st.sampled_from(["", "p"])),
    }


@st.composite
def _chains(draw: st.DrawFn, tasks: list[Task]) -> tuple[object, ...]:
    """Draw chains along links the tasks have, one of a kind for every task."""
    found = []
    for index, last in enumerate(tasks):
        path = [last.name]
        while True:
            owner = next(t for t in tasks if t.name == path[0])
            before = [*owner.after, *owner.reads]
            if not before:
                break
            path.insert(0, draw(st.sampled_from(before)))
            if path[0] == "s":
                break
        if len(path) > 1 and len(set(path)) == len(path):
            age = draw(st.none() | st.integers(20, 600))
            found.append(replace(chain(f"c{index}", path, draw(st.integers(20, 600))), max_age_ns=age))
    return tuple(found)


@st.composite
def faults(draw: st.DrawFn, made: Plan, rich: bool = False) -> Faults:
    """Draw up to one fault of each kind."""

    def window() -> tuple[int, int]:
        begin = draw(st.integers(0, HORIZON - 2))
        return begin, draw(st.integers(begin + 1, HORIZON))

    names = [e.id for e in made.engines]
    where = st.sampled_from(names)
    factor = st.sampled_from([Fraction(3, 2), Fraction(7), Fraction(101, 100)])
    stage = st.sampled_from([t.name for t in made.tasks])
    found = Faults(
        dropouts=tuple(Dropout("s", *window()) for _ in range(draw(st.integers(0, 1)))),
        slowdowns=tuple(Slowdown(draw(where), *window(), draw(factor)) for _ in range(draw(st.integers(0, 2)))),
        overruns=tuple(Overrun(draw(stage), Fraction(1, 2), draw(factor)) for _ in range(draw(st.integers(0, 1)))),
    )
    if not rich:
        return found
    return Faults(
        found.dropouts,
        found.slowdowns,
        found.overruns,
        stalls=tuple(Stall(draw(where), *window(), draw(st.booleans())) for _ in range(draw(st.integers(0, 1)))),
        delays=tuple(Delay("s", *window(), draw(st.integers(1, 500))) for _ in range(draw(st.integers(0, 1)))),
        bursts=tuple(Burst("s", draw(st.integers(0, HORIZON)), 3) for _ in range(draw(st.integers(0, 1)))),
        hogs=tuple(Hog(draw(where), *window(), 10**9) for _ in range(draw(st.integers(0, 1)))),
    )
