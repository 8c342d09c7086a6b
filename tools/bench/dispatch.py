"""Measure what the executor adds to every stage: from when a job could start to when it does.

    python -m tools.bench.dispatch [--frames 300] [--turns 5] [--realtime fifo]

A chain of four stages of half a millisecond runs on one lane, and handed between two lanes with every stage; besides
them, in the same run, two bare threads hand a number to each other through Python's own queue, which is what no
executor with a thread a lane can be faster than.  Stages sleep, so that no other work is measured.  Printed are medians
over turns of the medians of a turn, by stage: the first one follows a release, the others a stage.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

from socsched.cost.cost import Segment
from socsched.descriptor import host
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.planning.evidence import Bandwidth, Power
from socsched.planning.plan import ChainResult, Plan, PlannedEngine, PlannedSensor, Task
from socsched.planning.search_report import SearchReport
from socsched.runtime.executor import execute
from socsched.runtime.options import Options
from socsched.runtime.overheads import dispatch_waits, overheads, summary
from socsched.runtime.realtime import CLASSES

MS = 1_000_000
BAR_NS = 30_000
STAGES = ("first", "second", "third", "fourth")


class Sleeps:
    """Stages that sleep for half a millisecond."""

    title, real = "sleep", False

    def prepare(self, task: Task, stage: Any, setting: Any) -> Any:
        """Return the stage."""

        def call(values: Mapping[str, Any]) -> Mapping[str, Any]:
            time.sleep(0.0005)
            return {}

        return call


def plan(lanes: tuple[int, ...], count: int) -> tuple[Plan, Pipeline]:
    """Return a chain of `STAGES` that takes `lanes` in turn, and its pipeline."""
    tasks = tuple(
        Task(
            name=name, kind="stage", engine="cpu", lanes=(lanes[n % len(lanes)],), precision="fp32",
            after=(STAGES[n - 1] if n else "sensor",), reads=(), timer=False, period_ns=10 * MS, offset_ns=0, queue=10,
            cost_ns=MS, wcet_ns=MS, bytes=0, energy_uj=0, segments=(Segment(name, MS, 0, 0),), priority=0,
            deadline_ns=50 * MS, jitter_ns=0, criticality="firm", provenance="assumed", source="", error=0.0,
        )
        for n, name in enumerate(STAGES)
    )  # fmt: skip
    path = ("sensor", *STAGES)
    made = Plan(
        platform="host", mode="default", pipeline="bench", verdict="undecided", policy="edf",
        engines=(PlannedEngine("cpu", "cpu", count, "none", 0, "edf", 10**10, 0, 0),),
        sensors=(PlannedSensor("sensor", 10 * MS, 0, 0, 0),), tasks=tasks, transitions=(),
        chains=(ChainResult("chain", path, 50 * MS, 0, None, None, ()),), violations=(),
        power=Power(), bandwidth=Bandwidth(),
        solver=SearchReport(), inputs={},
    )  # fmt: skip
    stages = tuple(Stage(name, name, None, task.after) for name, task in zip(STAGES, tasks, strict=True))
    chain = Chain("chain", path, 50 * MS)
    return made, Pipeline("bench", "bench", (Sensor("sensor", "imu", 10 * MS),), stages, (chain,))


def bare(count: int, cpus: list[int]) -> float:
    """Return the median (ns) of a hand-over between two threads on processors of their own, each a sleep apart."""
    queues: list[SimpleQueue[int | None]] = [SimpleQueue(), SimpleQueue()]
    late: list[int] = []

    def work(me: int) -> None:
        os.sched_setaffinity(0, {cpus[me % len(cpus)]})
        while (sent := queues[me].get()) is not None:
            late.append(time.monotonic_ns() - sent)
            if len(late) >= count:
                queues[1 - me].put(None)
                return
            time.sleep(0.0005)
            queues[1 - me].put(time.monotonic_ns())

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    queues[0].put(time.monotonic_ns())
    for thread in threads:
        thread.join()
    return statistics.median(late)


def main() -> int:
    """Measure, print, and say whether the bar holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--awake", type=float, default=0.0, help="us for which workers stay awake for expected jobs")
    parser.add_argument("--realtime", default="off", choices=CLASSES, help="scheduling class of the workers")
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    here = host.detect()
    floors, found = [], {"one lane": [], "two lanes": []}  # type: ignore[var-annotated]
    everything: list[int] = []
    jitter: list[float] = []
    options = Options(realtime=args.realtime, awake_ns=round(args.awake * 1e3))
    for _ in range(args.turns):
        floors.append(bare(args.frames, cpus))
        for title, lanes in (("one lane", (0,)), ("two lanes", (0, 1))):
            made, pipe = plan(lanes, len(cpus))
            trace = execute(made, pipe, frames=args.frames, platform=here, options=options,
                            backends={"synthetic": Sleeps()})  # fmt: skip
            waits = dispatch_waits(trace)
            found[title].append({name: statistics.median(values) for name, values in waits.items()})
            everything += [wait for values in waits.values() for wait in values]
            jitter.append(overheads(trace)["release_jitter_ns"]["sensor"]["p50"])
    print(f"{'us, median':24}" + "".join(f"{name:>10}" for name in STAGES))
    for title, rows in found.items():
        cells = (statistics.median(row[name] for row in rows) / 1e3 for name in STAGES)
        print(f"{title:24}" + "".join(f"{cell:10.1f}" for cell in cells))
    print(f"{'two bare threads':24}{'':10}{statistics.median(floors) / 1e3:10.1f}")
    print(f"{'release jitter':24}{statistics.median(jitter) / 1e3:10.1f}")
    total = summary(everything)
    assert total is not None
    held = total["p50"] <= BAR_NS
    print(f"{'ok     ' if held else 'MISSED '} all stages: median {total['p50'] / 1e3:.1f} us (bar {BAR_NS / 1e3:.0f}),"
          f" p99 {total['p99'] / 1e3:.1f} us, n = {total['count']}")  # fmt: skip
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
