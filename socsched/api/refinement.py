"""Plan, simulate, plan again with what was seen, until nothing changes: expected times become those of the schedule.

An estimate without interference cannot tell two mappings apart whose stages wait for each other differently.  What the
simulation of a plan shows of waiting and of others' traffic goes into the next search; the plan simulated best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.expected import critical_path
from socsched.planning.observed import NOTHING, Observed
from socsched.planning.plan import Plan, Task
from socsched.sim.engine import run
from socsched.trace.columns import DONE
from socsched.trace.metrics import result

ROUNDS = 8
"""Plans simulated at most."""
JOBS = 20_000
"""Jobs simulated at most, unless one hyperperiod has more by then; see `steady_ns`."""
MOST = 2_000_000
"""Jobs of two of the longest periods up to which a plan is simulated at all."""
_PERIODS = 20
_SECOND = 10**9
Planner = Callable[[Observed], Plan]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Means of a simulation: response times of chains, and of jobs from their activation (ns)."""

    chains: Mapping[str, int]
    jobs: Mapping[str, int]


def refined(plan: Plan, again: Planner | None = None, clock: Clock = NO_CLOCK) -> Plan:
    """Return the plan with the expected times its simulation has, or a better one found with what was seen.

    `again` plans anew in the plan's mode; without it, or for another first objective than latency or the longest
    chain's, only times change.
    `solver` gets `rounds`, the number of plans simulated, and whether they led to a `fixed_point`; none is made after
    `clock`.  A plan that is not feasible stays as it is: its queues grow without end.  So does one with more than
    `MOST` jobs to simulate, and one that is ready too late.
    """
    if plan.verdict != "feasible" or clock.over() or jobs(plan) > MOST:
        return plan
    best, seen, rounds, settled = plan, _simulated(plan), 1, True
    goal = str(plan.solver.get("objective", "")).partition(",")[0]
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
    told = {**best.solver.get("notes", {}), **plan.solver.get("notes", {})}
    solver = {**best.solver, "notes": told, "rounds": rounds, "fixed_point": settled}
    if goal in ("latency", "longest"):
        solver = {**solver, **_values(best, value([chain.expected_ns for chain in chains]))}
    return replace(best, chains=chains, solver=solver)


def _values(plan: Plan, value: int) -> dict[str, float | None]:
    bound = plan.solver.get("bound")
    gap = None if bound is None or not value else round(max(value - bound, 0) / value, 6)
    return {"value": float(value), "gap": gap}


def jobs(plan: Plan) -> int:
    """Return how many jobs `steady_ns` spans."""
    length = steady_ns(plan)
    return sum(length // max(task.period_ns, 1) for task in plan.tasks)


def steady_ns(plan: Plan) -> int:
    """Return how long a simulation has to be to show steady means (ns): two hyperperiods and no fewer than 20 of the
    longest periods, or as many as `JOBS` jobs take.
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
    offset = {
        chain.name: seen.chains[chain.name] - _estimate(plan, chain.path, known)
        for chain in plan.chains
        if chain.name in seen.chains
    }
    return Observed(extra, offset)


def _estimate(plan: Plan, path: tuple[str, ...], observed: Observed) -> int:
    """Return a chain's latency as the planner works it out, sampling taken at half a period."""
    tasks = {task.name: task for task in plan.tasks}
    names = [name for name in path if name in tasks]
    total, known = 0, dict[str, int]()
    for before, name in zip(["", *names], [*names, ""], strict=True):
        if not before:
            continue
        if name and _triggered(tasks, before, name):
            continue
        end = f"{before}>{name}" if name and f"{before}>{name}" in tasks else before
        total += critical_path(end, tasks, known, observed) + (tasks[name].period_ns // 2 if name else 0)
    return total


def _triggered(tasks: Mapping[str, Task], before: str, name: str) -> bool:
    return before in tasks[name].after or f"{before}>{name}" in tasks[name].after


def _joined(first: Observed, second: Observed) -> Observed:
    return Observed({**first.extra_ns, **second.extra_ns}, {**first.offset_ns, **second.offset_ns})


def _places(plan: Plan) -> tuple[tuple[str, str, str, tuple[int, ...]], ...]:
    return tuple((task.name, task.engine, task.precision, task.lanes) for task in plan.tasks)


__all__ = ["NOTHING", "Observed", "refined", "steady_ns"]
