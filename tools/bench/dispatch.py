"""Measure what the executor adds to every stage: from when a job could start to when it does.

    python -m tools.bench.dispatch [--frames 300] [--turns 5] [--realtime fifo]

A chain of four stages of half a millisecond runs on one lane, and handed between two lanes with every stage.  In the
same run two bare threads hand a number to each other through Python's own queue, and cyclictest of rt-tests, where it
is installed, sleeps as often as frames are released.  Stages sleep, so that no other work is measured.  Printed are
medians over turns of the medians of a turn, by stage: the first one follows a release, the others a stage; then median
and p99 of all waits and of the release jitter.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from socsched.cost.cost import Segment
from socsched.executor.build import find_executor
from socsched.executor.outcome import read_outcome
from socsched.executor.settings import RunSettings, write_settings
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport, Task
from socsched.trace.metrics import RELEASE, dispatch_waits, summary
from socsched.trace.trace import Trace

MS = 1_000_000
BAR_NS = 8_000
STAGES = ("first", "second", "third", "fourth")


def plan(lanes: tuple[int, ...], count: int) -> Plan:
    """Return a chain of `STAGES` that takes `lanes` in turn."""
    tasks = tuple(
        Task(
            name=name, kind="stage", engine="cpu", lanes=(lanes[n % len(lanes)],), precision="fp32",
            after=(STAGES[n - 1] if n else "sensor",), reads=(), timer=False, period_ns=10 * MS, offset_ns=0, queue=10,
            cost_ns=MS, wcet_ns=MS, bytes=0, energy_uj=0, segments=(Segment(name, MS, 0, 0),), priority=0,
            deadline_ns=50 * MS, jitter_ns=0, criticality="firm", provenance="assumed", source="", error=0.0,
        )
        for n, name in enumerate(STAGES)
    )  # fmt: skip
    return Plan(
        platform="host", mode="default", pipeline="bench", verdict="undecided", policy="edf",
        engines=(PlannedEngine("cpu", "cpu", count, "none", 0, "edf", 10**10, 0, 0),),
        sensors=(PlannedSensor("sensor", 10 * MS, 0, 0, 0),), tasks=tasks, transitions=(),
        chains=(ChainResult("chain", ("sensor", *STAGES), 50 * MS, 0, None, None, ()),), violations=(),
        power=Power(), bandwidth=Bandwidth(),
        solver=SearchReport(), inputs={},
    )  # fmt: skip


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


def native(made: Plan, seconds: float, realtime: str, awake_ns: int, cpus: Sequence[int]) -> Trace:
    """Return the trace of a run on the native executor."""
    executor = find_executor()
    assert executor is not None, "no C++ compiler"
    stages = {name: {"kind": "sleep", "time_ns": MS // 2} for name in STAGES}
    settings = RunSettings(
        made, round(seconds * 1e9), stages=stages, processors={"cpu": cpus}, realtime=realtime, awake_ns=awake_ns
    )
    with TemporaryDirectory() as folder:
        command = [str(executor), str(write_settings(settings, Path(folder))), "-o", folder]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return read_outcome(Path(folder))[0]


def cyclictest(count: int) -> str:
    """Return the wake-up latencies that cyclictest finds for a real-time thread with the period of the frames."""
    tool = shutil.which("cyclictest")
    if tool is None:
        return "not installed (rt-tests)"
    command = [tool, "-m", "-q", "-p", "90", "-i", "10000", "-l", str(count), "-h", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    waits = [int(us) * 1000 for us, times, *_ in rows if us.isdigit() for _ in range(int(times))]
    found = summary(waits)
    return "no result" if found is None else f"{found['p50'] / 1e3:10.1f}{found['p99'] / 1e3:10.1f}"


def main() -> int:
    """Measure, print, and say whether the bar holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--awake", type=float, default=0.0, help="us for which workers stay awake for expected jobs")
    parser.add_argument(
        "--realtime", default="off", choices=("off", "auto", "fifo", "deadline"), help="scheduling class of the workers"
    )
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    rows: dict[str, list[dict[str, float]]] = {}
    waits, jitter, floors = list[int](), list[int](), list[float]()
    for _ in range(args.turns):
        floors.append(bare(args.frames, cpus))
        for title, lanes in (("one lane", (0,)), ("two lanes", (0, 1))):
            trace = native(plan(lanes, len(cpus)), args.frames / 100, args.realtime, round(args.awake * 1e3), cpus)
            found = dispatch_waits(trace)
            rows.setdefault(title, []).append({stage: statistics.median(values) for stage, values in found.items()})
            waits += [wait for values in found.values() for wait in values]
            late = dict(trace.counters.get(f"{RELEASE}sensor", ()))
            jitter += [round(late.get(at, 0)) for at in trace.releases["sensor"]]
    print(f"{'us, median':24}" + "".join(f"{name:>10}" for name in STAGES))
    for title, turns in rows.items():
        cells = (statistics.median(row[stage] for row in turns) / 1e3 for stage in STAGES)
        print(f"{title:24}" + "".join(f"{cell:10.1f}" for cell in cells))
    print(f"{'two bare threads':24}{'':10}{statistics.median(floors) / 1e3:10.1f}")
    print(f"\n{'us':24}{'median':>10}{'p99':>10}")
    for what, values in (("dispatch", waits), ("release jitter", jitter)):
        if overall := summary(values):
            print(f"{what:24}{overall['p50'] / 1e3:10.1f}{overall['p99'] / 1e3:10.1f}")
    print(f"{'cyclictest':24}{cyclictest(args.frames)}")
    print(f"load average {os.getloadavg()[0]:.1f} on {len(cpus)} processors")
    judged = summary(waits)
    assert judged is not None
    held = judged["p50"] <= BAR_NS
    verdict = "ok     " if held else "MISSED "
    median, p99 = (judged[name] / 1e3 for name in ("p50", "p99"))
    print(
        f"{verdict} all stages: median {median:.1f} us (bar {BAR_NS // 1000}), p99 {p99:.1f} us, n = {judged['count']}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
