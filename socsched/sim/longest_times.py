"""Longest durations of segments under everything that slows them down, bounded by `limits.STRETCHED_NS`.

Execution times, overruns, batches, clocks, slow slots, slowdowns and co-running jobs are known before a simulation
starts, so their combined worst case is too.  The effect of the contention model is checked on each call
(`Callbacks.resolve_contention`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from socsched.errors import UsageError
from socsched.faults.model import Faults, Slowdown
from socsched.limits import STRETCHED_NS
from socsched.planning.plan import Plan


def find_worst_ratios(plan: Plan, tables: dict[str, Any], faults: Faults, segments: Sequence[Any]) -> list[float]:
    """Return, for every segment row, the largest factor by which its time alone is multiplied.

    Raises UsageError if the product exceeds what the simulator can count.
    """
    engines = {engine.id: index for index, engine in enumerate(plan.engines)}
    engine_ratios = [_engine_ratio(plan, index, faults.slowdowns) for index in range(len(plan.engines))]
    ratios = [1.0] * len(segments)
    overruns = {fault.stage: fault.factor for fault in faults.overruns}
    coruns = _corun_factors(tables)
    for number, task in enumerate(plan.tasks):
        own = float(overruns.get(task.name, 1))
        own *= 1 + (tables["t_batch"][number] - 1) * tables["t_batch_extra"][number] / 1000
        size, cost = tables["t_times"][number], tables["t_cost"][number]
        if size and cost:
            own *= max(tables["times"][tables["t_times0"][number] + size - 1] / cost, 1.0)
        rows = [range(tables[a][number], tables[a][number] + tables[b][number]) for a, b in _SPANS]
        for row in (row for span in rows for row in span):
            ratios[row] = own * engine_ratios[engines[segments[row][0]]] * coruns[tables["g_class"][row]]
            taken = tables["g_time"][row] * ratios[row]
            # times drawn for a task without work are used as they are
            if taken > STRETCHED_NS:
                raise report_too_long(
                    f"task {task.name!r}", taken, "its longest execution time, slow clocks and faults"
                )
    return ratios


_SPANS = (("t_first", "t_count"), ("t_degraded0", "t_degraded"))


def report_too_long(what: str, time_ns: float, cause: str) -> UsageError:
    """Return the error for a segment that takes too long."""
    return UsageError(
        f"{what} takes up to {time_ns / 1e9:.4g} s with {cause}; at most {STRETCHED_NS / 1e9:.0f} s can be simulated"
    )


def _engine_ratio(plan: Plan, index: int, slowdowns: Sequence[Slowdown]) -> float:
    engine = plan.engines[index]
    ratio = 1024 / min(engine.capacities, default=1024)
    if engine.levels:
        ratio *= max(level.clock_hz for level in engine.levels) / min(level.clock_hz for level in engine.levels)
    edges = sorted(
        (time, begins, fault.factor)
        for fault in slowdowns
        if fault.engine == engine.id
        for time, begins in ((fault.from_ns, 1), (fault.until_ns, 0))
    )
    now = most = Fraction(1)
    for _, begins, factor in edges:
        now = now * factor if begins else now / factor
        most = max(most, now)
    return ratio * float(most)


def _corun_factors(tables: dict[str, Any]) -> list[float]:
    """Return, by class of segments, the largest slowdown factor from co-running."""
    classes = tables["numbers"]["classes"]
    alone = [0] * classes
    for time, which in zip(tables["g_time"], tables["g_class"], strict=True):
        alone[which] = time
    found = [1.0] * classes
    for at, (host, corunner) in enumerate(zip(tables["host_times"], tables["corunner_times"], strict=True)):
        first, second = divmod(at, classes)
        for which, time in ((first, host), (second, corunner)):
            if time and alone[which]:
                found[which] = max(found[which], time / alone[which])
    return found
