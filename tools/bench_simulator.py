#!/usr/bin/env python3
"""Measure the simulator: jobs per wall second on periodic task sets and on the shipped pipelines.

For scale, not measured here: SimSo 0.8.5 was measured at about 6 200 jobs/s on ten tasks under EDF on one processor,
and at 5 400 jobs/s on forty tasks under partitioned rate-monotonic on four (4 vCPU AMD EPYC, Python 3.11).

    python tools/bench_simulator.py [--seconds 100] [--repeat 3] [--plan plan.json ...]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from socsched.cost.cost import Segment
from socsched.errors import SocschedError
from socsched.plan.plan import Plan, PlannedEngine, Task
from socsched.sim.engine import simulate


def main() -> None:
    """Print one line a workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=100.0, help="simulated time")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--plan", type=Path, nargs="*", default=[], help="plan.json files, not the shipped pipelines")
    options = parser.parse_args()
    print(f"{'workload':<44}{'jobs':>9}{'slices':>9}{'jobs/s':>10}{'sim s / wall s':>16}")
    for name, plan in (*synthetic(), *(planned(options.plan) if options.plan else shipped())):
        measure(name, plan, round(options.seconds * 1e9), options.repeat)


def measure(name: str, plan: Plan, duration_ns: int, repeat: int) -> None:
    """Simulate `repeat` times and print the median speed."""
    walls = []
    for _ in range(repeat):
        start = time.perf_counter()
        trace = simulate(plan, duration_ns)
        walls.append(time.perf_counter() - start)
    wall = statistics.median(walls)
    jobs, slices = len(trace.jobs), len(trace.slices)
    print(f"{name:<44}{jobs:>9}{slices:>9}{jobs / wall:>10.0f}{duration_ns / 1e9 / wall:>16.1f}")


def synthetic() -> Iterator[tuple[str, Plan]]:
    """Yield the task sets SimSo was measured on in kind: periods 5-100 ms log-uniform, random offsets."""
    yield "10 tasks, 1 CPU, EDF, U=0.85", task_set(10, 1, 0.85, "edf")
    yield "40 tasks, 4 CPUs partitioned, FP, U=2.8", task_set(40, 4, 2.8, "fp")


def task_set(count: int, lanes: int, utilisation: float, policy: str) -> Plan:
    """Return a plan of `count` periodic tasks spread over `lanes`, rate-monotonic priorities."""
    rng = Random(1)
    weights = [rng.expovariate(1.0) for _ in range(count)]
    periods = sorted(round(5e6 * 20 ** rng.random(), -6) for _ in range(count))
    tasks = []
    for rank, (weight, period) in enumerate(zip(weights, map(int, periods), strict=True)):
        cost = max(1, int(period * min(0.9, utilisation * weight / sum(weights))))
        where = (f"t{rank}", "stage", "cpu", (rank % lanes,), "fp32")
        when = ((), (), True, period, rng.randrange(period), 1)
        work = (cost, cost, 0, 0, (Segment(f"t{rank}", cost, 0, 0),))
        tasks.append(Task(*where, *when, *work, rank, period, 0, "firm", "assumed", "", 0.0))
    engine = PlannedEngine("cpu", "cpu", lanes, "full", 0, policy, 0, 0, 0)
    return Plan("bench", "-", "-", "undecided", policy, (engine,), (), tuple(tasks), (), (), (), {}, {}, {}, {})


def shipped() -> Iterator[tuple[str, Plan]]:
    """Yield the plans of the shipped pipelines on the shipped board; says so when one cannot be made."""
    from socsched.compile.analyze import stage_work
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.plan.planner import make_plan

    for pipeline in ("pointpillars", "perception-stack"):
        try:
            board = get_platform("jetson-agx-orin-64gb")
            yield f"{pipeline} on {board.name}", make_plan(get_pipeline(pipeline), board, "MAXN", work=stage_work)
        except SocschedError as error:
            print(f"{pipeline}: {error}")


def planned(files: list[Path]) -> Iterator[tuple[str, Plan]]:
    """Yield the plans in `files`."""
    from socsched.plan import io

    for file in files:
        yield file.name, io.load(file)


if __name__ == "__main__":
    main()
