"""Variants of a plan for other conditions: slower or faster jobs, a warm environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from socsched.cost.cost import Segment
from socsched.descriptor.study import Thermal
from socsched.planning.plan import ExecutionTimes, Plan, Task, Throttle

MILLION = 1_000_000
LOOK_NS = 100_000_000
"""Sampling period (ns) of a board's temperature."""
HYSTERESIS_MC = 5_000


def scale_wcet(plan: Plan, millionths: int) -> Plan:
    """Return the plan with every execution time multiplied by `millionths` / 10^6, rounded up; launches are unchanged.

    Bytes moved, deadlines, priorities and the verdict stay those of the plan: only the simulation changes.
    """
    if millionths == MILLION:
        return plan
    return replace(plan, tasks=tuple(_loaded(task, millionths) for task in plan.tasks))


def _loaded(task: Task, millionths: int) -> Task:
    times = task.times
    if times is not None:
        scaled = tuple(_times(value, millionths) for value in times.values_ns)
        times = ExecutionTimes(scaled, times.interpolate)
    return replace(
        task,
        cost_ns=_times(task.cost_ns, millionths),
        high_ns=_times(task.high_ns, millionths),
        segments=_segments(task.segments, millionths),
        degraded=_segments(task.degraded, millionths),
        times=times,
    )


def _segments(segments: Sequence[Segment], millionths: int) -> tuple[Segment, ...]:
    return tuple(replace(s, time_ns=s.fixed_ns + _times(s.time_ns - s.fixed_ns, millionths)) for s in segments)


def _times(value: int, millionths: int) -> int:
    return -(-value * millionths // MILLION)


def with_thermal_limit(plan: Plan, thermal: Thermal, ambient_mc: int, trip_mc: int, cap_mw: int) -> Plan:
    """Return the plan on a board that lowers its clocks at `trip_mc` and above `cap_mw` (0: no cap)."""
    rule = Throttle(
        period_ns=LOOK_NS,
        cap_mw=cap_mw,
        ambient_mc=ambient_mc,
        resistance_mk_per_w=thermal.resistance_mk_per_w,
        time_constant_ns=thermal.time_constant_ns,
        trip_mc=trip_mc,
        recover_mc=trip_mc - HYSTERESIS_MC,
    )
    return replace(plan, throttle=rule)
