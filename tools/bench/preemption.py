"""Measure how soon an urgent job starts while a long one runs on its processor, with preemption and without.

    python -m tools.bench.preemption [--seconds 20] [--processor N]

A hard task of 1 ms every 10 ms runs next to a soft one of 20 ms every 40 ms on one core of the native executor, under
EDF and SCHED_FIFO: once with an engine that preempts, once to completion.  Printed are the delay from a release to the
hard job's first instruction, the wake-up latencies that cyclictest (rt-tests, where installed) finds in the same
seconds on the same processor, and the responses of both tasks, measured and simulated.  Exit code 1 if a bar is missed:
50 us for the delay's p99 with preemption, or twice cyclictest's where that is more, and responses within 5 % (median)
and 10 % (p99) of the simulation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from socsched.executor.build import find_executor
from socsched.executor.outcome import read_outcome
from socsched.executor.settings import RunSettings, write_settings
from socsched.planning.plan import Plan, Task
from socsched.runtime.overheads import summary
from socsched.sim.engine import simulate
from socsched.trace.trace import Trace
from tools.bench.dispatch import MS, cyclictest, plan

BAR_NS = 50_000
BARS = {"p50": 5, "p99": 10}
TIMES = {"hard": (MS, 10 * MS, 3 * MS), "soft": (20 * MS, 40 * MS, 0)}
"""Execution time, period and offset of the tasks."""


def tasks_on_one_core(preemption: str) -> Plan:
    """Return the plan of both tasks."""
    made, _ = plan((0,), 1)
    model = made.tasks[0]

    def task(name: str) -> Task:
        time, period, offset = TIMES[name]
        return replace(
            model, name=name, after=(), timer=True, period_ns=period, offset_ns=offset, deadline_ns=period,
            cost_ns=time, wcet_ns=time, segments=(), criticality=name,
        )  # fmt: skip

    chains = tuple(replace(made.chains[0], name=name, path=(name,)) for name in TIMES)
    engine = replace(made.engines[0], preemption=preemption)
    return replace(made, engines=(engine,), sensors=(), tasks=tuple(map(task, TIMES)), chains=chains)


def measured(executor: Path, made: Plan, seconds: float, processor: int) -> Trace:
    """Return the trace of a run in real time."""
    stages = {name: {"kind": "spin", "time_ns": TIMES[name][0]} for name in TIMES}
    settings = RunSettings(
        made, round(seconds * 1e9), stages=stages, processors={"cpu": [processor]}, realtime="fifo"
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        command = [str(executor), str(write_settings(settings, Path(folder))), "-o", folder]
        subprocess.run(command, check=True)
        trace, executed = read_outcome(Path(folder))
    for notice in executed.notices:
        print(f"notice: {notice}")
    return trace


def wake_ups(args: argparse.Namespace) -> str:
    """Return the latencies that cyclictest finds on the processor of the tasks."""
    os.sched_setaffinity(0, {args.processor})  # of this thread, and of the tool that it starts
    return cyclictest(round(args.seconds * 100))


def since_release(trace: Trace, name: str, event: str) -> list[int]:
    """Return the times (ns) from the releases of a task's jobs to `start_ns` or `finish_ns`."""
    _, period, offset = TIMES[name]
    ended = (job for job in trace.jobs if job.task == name and job.status == "done")
    return [getattr(job, event) - job.frame * period - offset for job in ended]


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--processor", type=int, default=max(os.sched_getaffinity(0)))
    args = parser.parse_args()
    executor = find_executor()
    if executor is None:
        print("the native executor cannot be built", file=sys.stderr)
        return 3
    held, bar = True, float(BAR_NS)
    floors: dict[str, str] = {}
    traces: dict[str, Trace] = {}
    for kind in ("none", "full"):
        floor = Thread(target=lambda kind=kind: floors.update({kind: wake_ups(args)}))
        floor.start()
        traces[kind] = measured(executor, tasks_on_one_core(kind), args.seconds, args.processor)
        floor.join()
    print(f"{'us':34}{'median':>10}{'p99':>10}{'most':>10}")
    for kind, trace in traces.items():
        delays = since_release(trace, "hard", "start_ns")
        found = summary(delays)
        assert found is not None
        title = "start of hard, " + ("preemptive" if kind == "full" else "to completion")
        print(f"{title:34}{found['p50'] / 1e3:10.1f}{found['p99'] / 1e3:10.1f}{max(delays) / 1e3:10.1f}")
        print(f"{'  cyclictest meanwhile':34}{floors[kind]}")
        if kind == "full":
            bar = max([bar, *(2000 * float(cell) for cell in floors[kind].split()[1:2] if cell[0].isdigit())])
            held &= found["p99"] <= bar
    print(f"\n{'ms':34}{'median':>10}{'simulated':>10}{'p99':>10}{'simulated':>10}")
    for kind, trace in traces.items():
        simulated = simulate(tasks_on_one_core(kind), round(args.seconds * 1e9))
        for name in TIMES:
            mine, theirs = (summary(since_release(one, name, "finish_ns")) for one in (trace, simulated))
            assert mine is not None and theirs is not None
            cells = "".join(f"{one[key] / MS:10.3f}" for key in BARS for one in (mine, theirs))
            print(f"{f'response of {name}, {kind}':34}{cells}")
            if kind == "full":
                held &= all(abs(mine[key] / theirs[key] - 1) * 100 <= most for key, most in BARS.items())
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'ok     ' if held else 'MISSED '} delay p99 at most {bar / 1e3:.0f} us, responses within 5 % and 10 %")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
