"""The range of every number in a plan (`socsched.limits`), checked when a plan is read from a file or simulated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from socsched.limits import (
    LONGEST_NS,
    MOST_BYTES,
    MOST_CHAINS,
    MOST_ENGINES,
    MOST_HZ,
    MOST_IN_FLIGHT,
    MOST_LANES,
    MOST_MW,
    MOST_PICOJOULE,
    MOST_QUEUE,
    MOST_RANK,
    MOST_RATE,
    MOST_SEGMENTS,
    MOST_SENSORS,
    MOST_TASKS,
    MOST_TIMES,
)
from socsched.planning.plan import Plan
from socsched.planning.references import Where

_Range = tuple[float, float]
_TIME, _BYTES, _RATE, _POWER = (0, LONGEST_NS), (0, MOST_BYTES), (0, MOST_RATE), (0, MOST_MW)

_SEGMENT: dict[str, _Range] = {"time_ns": _TIME, "fixed_ns": _TIME, "bytes": _BYTES}
_TASK: dict[str, _Range] = {
    "period_ns": _TIME, "offset_ns": _TIME, "queue": (0, MOST_QUEUE), "cost_ns": _TIME, "bytes": _BYTES,
    "priority": (-MOST_RANK, MOST_RANK), "deadline_ns": _TIME, "width": (0, MOST_LANES), "release_jitter_ns": _TIME,
    "gap_ns": _TIME, "weights_bytes": _BYTES, "budget_ns": _TIME, "server_ns": _TIME, "high_ns": _TIME,
}  # fmt: skip
_ENGINE: dict[str, _Range] = {
    "lanes": (1, MOST_LANES), "switch_ns": _TIME, "bandwidth": _RATE, "idle_mw": _POWER, "dynamic_mw": _POWER,
    "migration_ns": _TIME, "reshape_ns": _TIME, "reset_ns": _TIME, "in_flight": (0, MOST_IN_FLIGHT),
    "quantum_ns": _TIME, "memory_bytes": _BYTES, "swap_bandwidth": _RATE, "linger_ns": _TIME,
}  # fmt: skip
_LEVEL: dict[str, _Range] = {"clock_hz": (1, MOST_HZ), "dynamic_mw": _POWER}
_SENSOR: dict[str, _Range] = {
    "period_ns": (1, LONGEST_NS), "offset_ns": _TIME, "jitter_ns": _TIME, "bytes_per_frame": _BYTES, "gap_ns": _TIME
}  # fmt: skip
_CHAIN: dict[str, _Range] = {"deadline_ns": _TIME}
_THROTTLE: dict[str, _Range] = {
    "period_ns": (1, LONGEST_NS), "cap_mw": _POWER, "recover": (0, 1), "ambient_mc": (-273_150, 10**6),
    "resistance_mk_per_w": (0, 10**9), "time_constant_ns": _TIME, "trip_mc": (0, 10**6), "recover_mc": (0, 10**6),
}  # fmt: skip
_PLAN: dict[str, _Range] = {
    "base_mw": _POWER, "dram_bandwidth": _RATE, "dram_picojoule_per_byte": (0, MOST_PICOJOULE)
}  # fmt: skip


def faults(plan: Plan) -> Iterator[tuple[Where, str]]:
    """Yield every field of `plan` that is out of range, with its path in plan.json and what is expected there."""
    yield from _outside(plan, _PLAN, ())
    sizes = (("engines", MOST_ENGINES), ("sensors", MOST_SENSORS), ("tasks", MOST_TASKS), ("chains", MOST_CHAINS))
    for name, most in sizes:
        if len(getattr(plan, name)) > most:
            yield (name,), f"expected at most {most}, got {len(getattr(plan, name))}"
    for index, engine in enumerate(plan.engines):
        path: Where = ("engines", index)
        yield from _outside(engine, _ENGINE, path)
        for place, level in enumerate(engine.levels):
            yield from _outside(level, _LEVEL, (*path, "levels", place))
        if any(after.clock_hz < before.clock_hz for before, after in pairwise(engine.levels)):
            yield (*path, "levels"), "expected operating points in the order of their clocks, slowest first"
        if engine.capacities and (
            len(engine.capacities) != engine.lanes or not all(0 < speed <= 1024 for speed in engine.capacities)
        ):
            yield (*path, "capacities"), f"expected {engine.lanes} capacities from 1 to 1024"
    for kind, ranges, members in (("sensors", _SENSOR, plan.sensors), ("chains", _CHAIN, plan.chains)):
        for index, member in enumerate(members):
            yield from _outside(member, ranges, (kind, index))
    segments = times = 0
    for index, task in enumerate(plan.tasks):
        path = ("tasks", index)
        yield from _outside(task, _TASK, path)
        for name, parts in (("segments", task.segments), ("degraded", task.degraded)):
            segments += len(parts)
            for place, segment in enumerate(parts):
                yield from _outside(segment, _SEGMENT, (*path, name, place))
            if sum(segment.time_ns for segment in parts) > LONGEST_NS:
                yield (*path, name), f"expected times of at most {LONGEST_NS} ns in total"
        if task.times is not None:
            values = task.times.values_ns
            times += len(values)
            if not values or min(values) < 0 or max(values) > LONGEST_NS:
                yield (*path, "times"), f"expected one or more times from 0 to {LONGEST_NS} ns"
            elif any(after < before for before, after in pairwise(values)):
                yield (*path, "times"), "expected ascending times"
    for what, count, most in (("segments", segments, MOST_SEGMENTS), ("execution times", times, MOST_TIMES)):
        if count > most:
            yield ("tasks",), f"expected at most {most} {what} in total, got {count}"
    if plan.throttle is not None:
        yield from _outside(plan.throttle, _THROTTLE, ("throttle",))


def _outside(member: Any, ranges: dict[str, _Range], path: Where) -> Iterator[tuple[Where, str]]:
    for name, (least, most) in ranges.items():
        value = getattr(member, name)
        # Written so that nan is out of range too.
        if not least <= value <= most:
            yield (*path, name), f"expected from {least} to {most}, got {value}"
