"""Measure the simulator: jobs and events per second on task sets and on a whole board, compared with SimSo.

    python -m tools.bench.sim [--repeat 5] [--simso-seconds 10] [--no-simso] [--cpu]

Workloads: 10 tasks on one CPU under EDF, 40 tasks on four under global EDF and under partitioned rate monotonic
(periods of 5 to 100 ms, log-uniform, random offsets), and perception-stack on a Jetson AGX Orin with contention and
power, without a trace for an hour, and with a trace written for Perfetto.  SimSo (pip install simso; Python 3.11 or
older, for its release imports `imp`) gets the same task sets for a shorter time.  Medians; one process, one core,
wall-clock time or with --cpu processor time, which other load on the machine disturbs less.  The last lines show the
growth of memory with simulated time when no trace is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from socsched.cost.cost import Segment
from socsched.planning.plan import Bandwidth, Plan, PlannedEngine, Power, SearchReport, Task
from socsched.sim.build import explain_interpreted, load_kernel
from socsched.sim.simulate import SimulationRun, run
from tools import ROOT

SECOND = 10**9
clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Workload:
    """A plan, how long to simulate it (s), and the class of SimSo's scheduler that serves it the same way."""

    name: str
    plan: Plan
    seconds: int
    simso: str = ""


def main() -> None:
    """Print one line a workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--simso-seconds", type=int, default=10, help="simulated time for SimSo")
    parser.add_argument("--no-simso", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="measure processor time, not wall-clock time")
    options = parser.parse_args()
    global clock
    clock = time.process_time if options.cpu else time.perf_counter
    load_kernel()
    how = f"interpreted, {explain_interpreted()}" if explain_interpreted() else "compiled"
    print(f"kernel: {how}; load {os.getloadavg()[0]:.1f}; {'processor' if options.cpu else 'wall-clock'} time")
    print(f"{'workload':<46}{'jobs':>9}{'M jobs/s':>10}{'M events/s':>12}{'SimSo jobs/s':>14}{'ratio':>8}")
    uni, everywhere, partitioned = task_sets()
    for work in (uni, everywhere, partitioned):
        speed, jobs, events = measure(work, options.repeat)
        peer = None if options.no_simso else simso(work, options.simso_seconds)
        show(work.name, jobs, speed, events, peer)
    board = orin()
    hour = Workload("perception-stack on Orin, 1 h, no trace", board, 3600)
    speed, jobs, events = measure(hour, options.repeat)
    show(f"{hour.name} ({jobs / speed:.2f} s)", jobs, speed, events, None)
    speed, jobs, events = measure(Workload("", board, 300), options.repeat, lambda done: write(done, board))
    show("the same, 5 min, with Perfetto trace written", jobs, speed, events, None)
    for minutes in (10, 60):
        print(f"no trace, {minutes} simulated minutes: {peak_memory(minutes)} MB at most")


def show(name: str, jobs: int, speed: float, events: float, peer: float | None) -> None:
    """Print one line."""
    tail = f"{peer:>14.0f}{speed / peer:>8.0f}" if peer else f"{'-':>14}{'-':>8}"
    print(f"{name:<46}{jobs:>9}{speed / 1e6:>10.2f}{events / 1e6:>12.2f}{tail}", flush=True)


def measure(
    work: Workload, repeat: int, then: Callable[[SimulationRun], None] | None = None
) -> tuple[float, int, float]:
    """Return jobs a second (median), jobs, and events a second; `then` is measured too and gets a trace."""
    walls = []
    jobs = events = 0
    for _ in range(repeat):
        start = clock()
        done = run(work.plan, work.seconds * SECOND, record=then is not None)
        if then:
            then(done)
        walls.append(clock() - start)
        jobs, events = int(done.outcome.ints("released").sum()), done.outcome.number("events")
    wall = statistics.median(walls)
    return jobs / wall, jobs, events / wall


def write(done: SimulationRun, plan: Plan) -> None:
    """Write a simulation's trace for Perfetto."""
    from socsched.trace.perfetto import write_perfetto

    assert done.trace is not None
    with tempfile.TemporaryDirectory() as folder:
        write_perfetto(done.trace, plan, Path(folder) / "trace.pftrace")


def task_sets() -> tuple[Workload, Workload, Workload]:
    """Return the three task sets SimSo gets too."""
    ten, forty = rows(10, 0.85), rows(40, 3.2)
    less = rows(40, 2.8)
    return (
        Workload("10 tasks, 1 CPU, EDF, U=0.85", task_plan(ten, 1, "edf", False), 1000, "simso.schedulers.EDF_mono"),
        Workload("40 tasks, 4 CPUs, global EDF, U=3.2", task_plan(forty, 4, "edf", True), 300, "simso.schedulers.EDF"),
        Workload(
            "40 tasks, 4 CPUs, partitioned RM, U=2.8", task_plan(less, 4, "rm", False), 300, "simso.schedulers.P_RM"
        ),
    )


def rows(count: int, utilisation: float) -> list[tuple[int, int, int]]:
    """Return (period, wcet, offset) in microseconds."""
    rng = Random(1)
    weights = [rng.expovariate(1.0) for _ in range(count)]
    periods = [round(5 * 20 ** rng.random()) * 1000 for _ in range(count)]
    shares = [min(0.9, utilisation * weight / sum(weights)) for weight in weights]
    return [
        (period, max(1, int(period * share)), rng.randrange(period))
        for period, share in zip(periods, shares, strict=True)
    ]


def task_plan(tasks: list[tuple[int, int, int]], lanes: int, policy: str, everywhere: bool) -> Plan:
    """Return a plan of periodic tasks, each anywhere or on the least loaded lane."""
    load = [0.0] * lanes
    made = []
    for number, (period, wcet, offset) in sorted(enumerate(tasks), key=lambda pair: -pair[1][1] / pair[1][0]):
        lane = min(range(lanes), key=load.__getitem__)
        load[lane] += wcet / period
        where = tuple(range(lanes)) if everywhere else (lane,)
        cost = wcet * 1000
        made.append(
            Task(
                name=f"t{number}", kind="stage", engine="cpu", lanes=where, precision="", after=(), reads=(),
                timer=True, period_ns=period * 1000, offset_ns=offset * 1000, queue=1 << 40, cost_ns=cost,
                wcet_ns=cost, bytes=0, energy_uj=0, segments=(Segment(f"t{number}", cost, 0, 0),), priority=0,
                deadline_ns=period * 1000, jitter_ns=0, criticality="firm", provenance="assumed", source="", error=0.0,
                width=int(everywhere),
            )
        )  # fmt: skip
    engine = PlannedEngine("cpu", "cpu", lanes, "full", 0, policy, 0, 0, 0)
    parts = (Power(), Bandwidth(), SearchReport())
    return Plan("bench", "-", "-", "undecided", policy, (engine,), (), tuple(made), (), (), (), *parts, {})


def simso(work: Workload, seconds: int) -> float | None:
    """Return SimSo's jobs a second on the same tasks; None, with the reason on stderr, where it cannot be had."""
    try:
        from simso.configuration import Configuration
        from simso.core import Model
    except ImportError as error:
        print(f"SimSo: {error}", file=sys.stderr)
        return None
    setting = Configuration()
    setting.duration = seconds * 1000 * setting.cycles_per_ms
    for number, task in enumerate(work.plan.tasks, 1):
        setting.add_task(
            name=task.name,
            identifier=number,
            period=task.period_ns / 1e6,
            activation_date=task.offset_ns / 1e6,
            wcet=task.cost_ns / 1e6,
            deadline=task.deadline_ns / 1e6,
            abort_on_miss=False,
        )
    for lane in range(work.plan.engines[0].lanes):
        setting.add_processor(name=f"CPU {lane}", identifier=lane)
    setting.scheduler_info.clas = work.simso
    setting.check_all()
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        start = clock()
        model = Model(setting)
        model.run_model()
        wall = clock() - start
    jobs = sum(len(task.jobs) for task in model.results.tasks.values())
    return jobs / wall


def orin() -> Plan:
    """Return the plan of perception-stack on a Jetson AGX Orin."""
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.work import stage_work
    from socsched.planning.search import make_plan

    return make_plan(get_pipeline("perception-stack"), get_platform("jetson-agx-orin-64gb"), "MAXN", work=stage_work)


def peak_memory(minutes: int) -> int:
    """Return the most memory (MB) a process takes that simulates so long without trace."""
    code = (
        "from tools.bench.sim import orin, run, SECOND\n"
        f"run(orin(), {minutes} * 60 * SECOND, record=False)\n"
        # not ru_maxrss: that counts what the parent held when it forked
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout) // 1024


if __name__ == "__main__":
    main()
