"""Compare bounds on the probability of misses with their frequency in simulation.

Usage: python -m tools.verify.miss_probability [--seconds 20000] [--plans 8]

Random pipelines (tools/bench/planner_finds.py) and perception-stack get execution times of two or three values, and
deadlines below their worst-case bounds.  Prints bound and frequency of every chain; exit code 1 if a frequency exceeds
its bound by more than four standard deviations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from socsched.api.planning import PlanOptions, plan_with
from socsched.api.simulation import simulate_plan
from socsched.planning.plan import ExecutionTimes, Plan
from socsched.schedulability.miss_probability import miss_probabilities
from tools.bench.planner_finds import MODE, PLATFORM, instance

OPTIONS = PlanOptions(solver="heft", evaluations=None, explain=False, refine=False)


def plans(count: int) -> Iterator[Plan]:
    """Yield plans with distributions of execution times, policies in turn."""
    draw, seed, made = Random(1), 0, 0
    while made < count:
        pipeline = "perception-stack" if made < 2 else instance(seed)
        seed += 1
        if pipeline is None:
            continue
        plan = plan_with(pipeline, PLATFORM, MODE, replace(OPTIONS, policy=("edf", "fp")[made % 2]))
        made += 1
        if plan.tasks and all(chain.bound_ns for chain in plan.chains):
            yield _drawn(plan, draw)


def _drawn(plan: Plan, draw: Random) -> Plan:
    tasks = []
    for task in plan.tasks:
        least, rest = draw.choice((0.3, 0.5, 0.7)), draw.choice((4, 9, 49))
        values = [max(round(task.cost_ns * least), 1)] * rest + [task.cost_ns]
        tasks.append(replace(task, times=ExecutionTimes(tuple(values))))
    factor = draw.uniform(0.6, 0.9)
    chains = (replace(chain, deadline_ns=round((chain.bound_ns or 0) * factor)) for chain in plan.chains)
    return replace(plan, tasks=tuple(tasks), chains=tuple(chains))


def main() -> int:
    """Print a line for every chain; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20_000)
    parser.add_argument("--plans", type=int, default=8)
    given, jobs, failed = parser.parse_args(), 0, 0
    for plan in plans(given.plans):
        bound = miss_probabilities(plan)
        found = simulate_plan(plan, given.seconds * 10**9, record=False).figures["chains"]
        jobs += sum(given.seconds * 10**9 // task.period_ns for task in plan.tasks)
        for name, value in bound.items():
            frames, missed = found[name]["completed"], found[name]["missed"]
            most = 1.0 if value is None else value
            low = missed > most * frames + 4 * (most * frames) ** 0.5 + 1e-9
            failed += low
            rate = missed / max(frames, 1)
            print(f"{plan.pipeline:18} {plan.policy} {name:18} bound {most:.3g}, {missed} of {frames} late: {rate:.3g}")
    print(f"{jobs} jobs, {failed} frequencies above their bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
