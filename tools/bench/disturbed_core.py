"""Execution times of CPU stages while another process keeps one of their cores busy, on both executors in turn.

    python -m tools.bench.disturbed_core [--frames 20] [--rounds 3]

Runs pointpillars-s, planned for this machine, with every network on all cores and frames far apart.  Prints medians of
each network: with the native executor (chunks of kernels are taken) and Python's (TVM's threads, fixed shares),
undisturbed and disturbed, from runs that alternate.  Bar: native, disturbed / undisturbed <= 1 + 1.3 / cores.  Other
load on the machine makes the figures useless.  Exit code 1 if a stage misses the bar, 3 on a machine with one core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from socsched.api.execution import run, scans_or_street
from socsched.api.planning import plan as make_plan
from socsched.planning.plan import Plan
from socsched.runtime.options import Options

EXECUTORS = ("native", "event-chained")
SLOWER = 10  # periods are longer than planned by this factor, so that frames do not meet


@contextmanager
def disturbance(core: int | None) -> Iterator[None]:
    """Keep a core busy from another process; None disturbs nothing."""
    if core is None:
        yield
        return
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def main() -> int:
    """Measure, print a line for each stage, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    plan = _on_all_cores(_spread(make_plan("pointpillars-s", "host")))
    shared = {task.name: len(task.lanes) for task in plan.tasks if len(task.lanes) > 1}
    if not shared:
        print("this machine has one core", file=sys.stderr)
        return 3
    core = max(os.sched_getaffinity(0))
    times: dict[tuple[str, str, bool], list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        scans = scans_or_street(None, Path(folder), args.frames, 5)
        for _ in range(args.rounds):
            for executor in EXECUTORS:
                for disturbed in (False, True):
                    with disturbance(core if disturbed else None):
                        trace = run(plan, inputs=scans, options=Options(executor=executor)).trace
                    for job in trace.jobs:
                        if job.task in shared and job.status == "done":
                            found = times.setdefault((executor, job.task, disturbed), [])
                            found.append(job.finish_ns - job.start_ns)
    missed = False
    for stage, cores in shared.items():
        bar = 1 + 1.3 / cores
        for executor in EXECUTORS:
            alone, disturbed = (statistics.median(times[executor, stage, d]) for d in (False, True))
            missed |= executor == "native" and disturbed / alone > bar
            figures = f"{alone / 1e6:8.2f} ms, disturbed {disturbed / 1e6:8.2f} ms, ratio {disturbed / alone:.2f}"
            print(f"{stage:12} {executor:14} {cores} cores: {figures} (bar of native: {bar:.2f})", flush=True)
    return 1 if missed else 0


def _on_all_cores(plan: Plan) -> Plan:
    cores = {engine.id: tuple(range(engine.lanes)) for engine in plan.engines}
    return replace(
        plan, tasks=tuple(replace(t, lanes=cores[t.engine]) if t.runtime == "tvm" else t for t in plan.tasks)
    )


def _spread(plan: Plan) -> Plan:
    tasks = tuple(
        replace(task, period_ns=task.period_ns * SLOWER, deadline_ns=task.deadline_ns * SLOWER) for task in plan.tasks
    )
    sensors = tuple(replace(sensor, period_ns=sensor.period_ns * SLOWER) for sensor in plan.sensors)
    return replace(plan, tasks=tasks, sensors=sensors)


if __name__ == "__main__":
    sys.exit(main())
