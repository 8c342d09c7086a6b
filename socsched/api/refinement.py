"""Plan, simulate and plan again with the simulated times until a fixed point: expected times match the schedule.

An estimate without interference cannot distinguish two mappings whose stages wait for each other differently.  The
waiting times and co-running traffic seen in the simulation of a plan enter the next search; the plan with the best
simulation is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from socsched.planning.assess import expected_latency
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.plan import Plan, gap
from socsched.planning.workload import NOTHING, Observed
from socsched.schedulability.chains import Sources
from socsched.sim.engine import run
from socsched.trace.columns import DONE
from socsched.trace.metrics import result

ROUNDS = 8
"""Maximum number of simulated plans."""
JOBS = 20_000
"""Maximum number of simulated jobs, unless a single hyperperiod has more; see `steady_ns`."""
MOST = 2_000_000
"""A plan with more jobs than this in two of its longest periods is not simulated."""
_PERIODS = 20
_SECOND = 10**9
Planner = Callable[[Observed], Plan]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Means over a simulation: response times of chains, and of jobs from their activation (ns)."""

    chains: Mapping[str, int]
    jobs: Mapping[str, int]


def refine(plan: Plan, again: Planner | None = None, clock: Clock = NO_CLOCK) -> Plan:
    """Return the plan with expected times from its simulation, or a better plan found from the simulated times.

    `again` replans in the plan's mode; without it, or if the first objective is neither latency nor the longest
    chain's latency, only times change.
    `solver` gains `rounds`, the number of plans simulated, and `fixed_point`, whether they reached one; no plan is
    made after `clock`.  An infeasible plan is returned unchanged, because its queues grow without bound.  So is a plan
    with more than `MOST` jobs to simulate, and a plan that is ready too late.
    """
    if plan.verdict != "feasible" or clock.over() or jobs(plan) > MOST:
        return plan
    best, seen, rounds, settled = plan, _simulated(plan), 1, True
    goal = next(iter(plan.solver.objective), None)
    value = max if goal == "longest" else sum
    if again is not None and goal in ("latency", "longest"):
        tried, observed = [_places(plan)], _observed(plan, seen)
        settled = False
        while rounds < ROUNDS and not clock.over():
            other = again(observed)
            if _places(other) in tried or other.verdict != "feasible":
                settled = True
                break
            rounds += 1
            tried.append(_places(other))
            there = _simulated(other)
            if value(there.chains.values()) < value(seen.chains.values()):
                best, seen = other, there
            observed = _joined(observed, _observed(other, there))
    chains = tuple(replace(chain, expected_ns=seen.chains.get(chain.name, chain.expected_ns)) for chain in best.chains)
    notes = {**(best.solver.notes or {}), **(plan.solver.notes or {})}
    report = replace(best.solver, notes=notes, rounds=rounds, fixed_point=settled)
    if goal in ("latency", "longest"):
        reached = float(value(chain.expected_ns for chain in chains))
        report = replace(report, value=reached, gap=gap(reached, report.bound))
    return replace(best, chains=chains, solver=report)


def jobs(plan: Plan) -> int:
    """Return the number of jobs that `steady_ns` spans."""
    length = steady_ns(plan)
    return sum(length // max(task.period_ns, 1) for task in plan.tasks)


def steady_ns(plan: Plan) -> int:
    """Return the simulation length for steady means (ns).

    It is two hyperperiods and no fewer than 20 of the longest periods, or the time that `JOBS` jobs take.
    """
    periods = [max(task.period_ns, 1) for task in plan.tasks]
    rate = sum(_SECOND / period for period in periods)
    wanted = max(2 * math.lcm(*periods), _PERIODS * max(periods))
    return max(min(wanted, int(JOBS / rate * _SECOND)), 2 * max(periods))


def _simulated(plan: Plan) -> _Seen:
    trace = run(plan, steady_ns(plan)).trace
    assert trace is not None
    figures = result(trace, plan)
    means = {name: entry["response_time_ns"]["mean"] for name, entry in figures["chains"].items()}
    columns = trace.columns
    jobs = columns.jobs
    done = jobs.status == DONE
    spent = {}
    for number, name in enumerate(columns.tasks):
        rows = done & (jobs.task == number)
        if rows.any():
            spent[name] = round(float((jobs.finish_ns[rows] - jobs.activation_ns[rows]).mean()))
    return _Seen({name: round(mean) for name, mean in means.items() if mean}, spent)


def _observed(plan: Plan, seen: _Seen) -> Observed:
    extra = {
        (task.name, task.engine): seen.jobs[task.name] - task.cost_ns for task in plan.tasks if task.name in seen.jobs
    }
    known = Observed(extra)
    sources, ends = Sources.of(plan.tasks, plan.sensors), dict[str, int]()
    offset = {
        chain.name: seen.chains[chain.name] - expected_latency(sources.stretches(chain.path), sources, ends, known)
        for chain in plan.chains
        if chain.name in seen.chains
    }
    return Observed(extra, offset)


def _joined(first: Observed, second: Observed) -> Observed:
    return Observed({**first.extra_ns, **second.extra_ns}, {**first.offset_ns, **second.offset_ns})


def _places(plan: Plan) -> tuple[tuple[str, str, str, tuple[int, ...]], ...]:
    return tuple((task.name, task.engine, task.precision, task.lanes) for task in plan.tasks)


__all__ = ["NOTHING", "Observed", "refine", "steady_ns"]
