"""Runs of one configuration over consecutive seeds until its verdict on misses is settled, and their totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.cost.cost import Segment
from socsched.descriptor.study import Study, Thermal
from socsched.faults.file import load_faults
from socsched.faults.model import SIMULATION
from socsched.planning.plan import ChainResult, ExecutionTimes, Plan, Task, Throttle
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.study import bounds
from socsched.study.design import AUTO, Point
from socsched.trace.summary import Histogram

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


NOTHING_RUN: dict[str, Any] = {"runs": 0, "frames": 0, "missed": 0, "dropped": 0, "settled": ""}
_DIGITS = 6
_SECOND = 10**9


def simulate_configuration(study: Study, point: Point, plan: Plan, faults: Path | None, runs: int) -> dict[str, Any]:
    """Return the simulated columns of a configuration's row after at most `runs` runs.

    The interval of misses treats frames as independent trials; `study.Simulate.settle` ends the runs once misses are
    settled against `Holds.misses`, with the error divided among the looks.
    """
    simulation, allowed_misses = study.simulate, study.holds.misses
    varied = scale_wcet(plan, round(point.load * MILLION))
    injected = load_faults(faults, plan, SIMULATION) if faults else None
    chains = {chain.name: _Chain(chain) for chain in plan.chains}
    frames = missed = dropped = done = 0
    power = peak = 0.0
    settled = "" if allowed_misses is None else "open"
    while done < runs:
        counts = totals(
            run(varied, simulation.duration_ns, point.seed + done, override(point.policy), injected, record=False)
        )
        done += 1
        for name, chain in counts.chains.items():
            chains[name].add(chain.response_ns, chain.age_ns)
            frames, missed = frames + chain.released, missed + chain.missed
            dropped += chain.dropped
        mean, most = counts.power_mw or (0.0, 0.0)
        power, peak = power + mean, max(peak, most)
        if allowed_misses is not None:
            settled = bounds.compare_with_limit(
                missed + dropped, frames, allowed_misses, simulation.confidence, simulation.runs
            )
            if simulation.settle and settled != "open":
                break
    low, high = bounds.interval(missed + dropped, frames, simulation.confidence)
    rows = {
        "runs": done,
        "frames": frames,
        "missed": missed,
        "dropped": dropped,
        "misses_per_million": _rounded(1e6 * (missed + dropped) / frames) if frames else None,
        "misses_low_per_million": _rounded(1e6 * low),
        "misses_high_per_million": _rounded(1e6 * high),
        "settled": settled,
        "power_mw": round(power / done, 3),
        "power_peak_mw": round(peak, 3),
        "energy_mj_per_round": round(power / done * round_ns(plan) / _SECOND, 6),
    }
    return rows | _worst(list(chains.values()))


def override(policy: str) -> str | None:
    """Return the policy override of a simulation: None if the plan was made for the policy."""
    return None if policy in (AUTO, "edf", "fp") else policy


def round_ns(plan: Plan) -> int:
    """Return the longest period of a chain's source (ns)."""
    sources = {sensor.name: sensor.period_ns for sensor in plan.sensors}
    sources |= {task.name: task.period_ns for task in plan.tasks}
    return max((sources[chain.path[0]] for chain in plan.chains if chain.path[0] in sources), default=_SECOND)


class _Chain:
    """Response times and ages of one chain over all runs."""

    def __init__(self, chain: ChainResult) -> None:
        self.chain = chain
        self.responses = Histogram()
        self.oldest = 0

    def add(self, responses: Histogram, ages: Histogram) -> None:
        self.responses = self.responses + responses if self.responses.count else responses
        self.oldest = max(self.oldest, ages.most)


def _worst(chains: list[_Chain]) -> dict[str, Any]:
    seen = [chain for chain in chains if chain.responses.count]
    if not seen:
        return {}
    worst = max(seen, key=lambda chain: chain.responses.most / chain.chain.deadline_ns)
    return {
        "worst_chain": worst.chain.name,
        "worst_response_p99_ns": worst.responses.percentile(990),
        "worst_response_max_ns": worst.responses.most,
        "worst_response_share": _rounded(worst.responses.most / worst.chain.deadline_ns),
        "data_age_max_ns": max(chain.oldest for chain in chains),
    }


def _rounded(value: float) -> float:
    """Return a figure rounded to six digits, which hides differences between the maths libraries of machines."""
    return float(f"{value:.{_DIGITS}g}")
