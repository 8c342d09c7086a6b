#!/usr/bin/env python3
"""Run a pipeline on this machine at full rate for a long time and watch what grows: memory, open files, threads.

    python tools/soak.py [PIPELINE] [--minutes 30] [--executor event-chained]

Resident memory (VmRSS), descriptors and threads are read once a second from /proc.  After the first minute memory may
grow by less than 1 MiB, as a least-squares line over the rest says, and no descriptor may be added.  A run keeps its
trace in memory, which grows with every job; that part is counted from its records and taken off.  What was found in a
frame is forgotten 50 frames later, since its size cannot be counted closely enough.  The first minute is that after the
first release, when stages are compiled and warm.  Exit code 1 when something grew, or a frame is not accounted for.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from socsched.compile.analyze import stage_work
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.plan.planner import make_plan
from socsched.run import session
from socsched.run.executor import execute
from socsched.run.options import Options
from socsched.run.overheads import overheads
from socsched.trace.trace import Trace

ALLOWED_BYTES = 2**20
FIRST_S = 60.0
KEPT = 50


class Watch:
    """Samples this process once a second."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, int, int, int]] = []
        self.traces: list[Trace] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        start = time.monotonic()
        while not self._stop.wait(1.0):
            if not any(trace.releases for trace in self.traces[-1:]):
                start = time.monotonic()
                continue
            for trace in self.traces:
                for frame in sorted(trace.details)[:-KEPT]:
                    trace.details.pop(frame, None)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            files = sum(1 for _ in Path("/proc/self/fd").iterdir())
            traced = sum(_size(trace) for trace in self.traces)
            self.samples.append((time.monotonic() - start, pages * 4096, files, threading.active_count(), traced))

    def slope(self, after: float) -> float:
        """Return how many bytes memory grew from `after` to the end, without the trace, on the least-squares line."""
        points = [(t, rss - traced) for t, rss, _, _, traced in self.samples if t >= after]
        if len(points) < 3:
            return 0.0
        middle = sum(t for t, _ in points) / len(points)
        mean = sum(v for _, v in points) / len(points)
        rate = sum((t - middle) * (v - mean) for t, v in points) / sum((t - middle) ** 2 for t, _ in points)
        return rate * (points[-1][0] - points[0][0])


def _size(trace: Trace) -> int:
    """Return the bytes of a trace's records, as an average record of each list says."""
    total = 0
    for rows in (trace.jobs, trace.slices, trace.instants):
        total += sys.getsizeof(rows) + (len(rows) * _record(rows[len(rows) // 2]) if rows else 0)
    for lists in (trace.releases, trace.counters):
        total += sum(sys.getsizeof(found) + len(found) * 96 for found in lists.values())
    frames = list(trace.details.values())
    return total + (len(frames) * _deep(frames[len(frames) // 2]) if frames else 0)


def _deep(value: Any) -> int:
    """Return the bytes of what was found in a frame."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_deep(part) for part in value.values())  # keys are shared
    if isinstance(value, (list, tuple)):
        return size + sum(_deep(part) for part in value)
    return 0 if isinstance(value, str) else size


def _record(row: Any) -> int:
    size = sys.getsizeof(row)
    for name in row.__slots__:
        value = getattr(row, name)
        # small numbers, names and tuples are shared between records; times are not
        if (isinstance(value, int) and not -5 <= value <= 256) or (isinstance(value, dict) and value):
            size += sys.getsizeof(value)
    return size


def main() -> int:
    """Run, watch, print what grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", nargs="?", default="pointpillars")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--executor", default="event-chained")
    parser.add_argument("--rate", action="store_true", help="at the sensors' rates instead of as fast as it goes")
    args = parser.parse_args()
    pipe = get_pipeline(args.pipeline)
    plan = make_plan(pipe, get_platform("host"), work=stage_work)
    watch = Watch()
    plain = session.Trace

    def traced(*given: Any, **named: Any) -> Trace:
        watch.traces.append(plain(*given, **named))
        return watch.traces[-1]

    session.Trace = traced  # type: ignore[assignment,misc]
    accounts: dict[str, dict[str, int]] = {}
    gc.collect()
    with watch:
        trace = execute(
            plan,
            pipe,
            duration_ns=round(args.minutes * 60e9) if args.rate else None,
            frames=None if args.rate else 10**9,
            pace="rate" if args.rate else "asap",
            options=Options(args.executor, in_flight=2),
            accounts=accounts,
            on_frame=None if args.rate else _until(time.monotonic() + args.minutes * 60),
        )
    after = min(FIRST_S, args.minutes * 60 / 2)
    first, last = (next(s for s in watch.samples if s[0] >= t) for t in (after, watch.samples[-1][0]))
    grown, files, threads = watch.slope(after), last[2] - first[2], last[3] - first[3]
    balanced = all(a["released"] == a["completed"] + a["dropped"] + a["aborted"] for a in accounts.values())
    for source, account in accounts.items():
        print(f"{source}: {account}")
    waits = overheads(trace)["dispatch_ns"]
    print(f"a ready job starts after {waits['p50'] / 1e3:.0f} us (median), {waits['p99'] / 1e3:.0f} us (p99)")
    print(f"resident {first[1] / 2**20:.1f} MiB at {first[0]:.0f} s, {last[1] / 2**20:.1f} MiB at {last[0]:.0f} s,")
    most = max(sample[2] for sample in watch.samples)
    print(f"of which trace {first[4] / 2**20:.1f} and {last[4] / 2**20:.1f} MiB; at most {most} descriptors")
    rows = (
        (f"memory grew by {grown / 2**20:.2f} MiB (bar 1 MiB)", grown < ALLOWED_BYTES),
        (f"descriptors {files:+d}, threads {threads:+d}", files <= 0 and threads <= 0),
        ("every frame accounted for", balanced),
    )
    for text, held in rows:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in rows) else 1


def _until(end: float) -> Any:
    """Return what ends the run, as an interrupt does, once it has gone on long enough."""
    import os
    import signal

    done: list[bool] = []

    def on_frame(report: Any) -> None:
        if time.monotonic() >= end and not done:
            done.append(True)  # a second interrupt would not wait for what is under way
            os.kill(os.getpid(), signal.SIGINT)

    return on_frame


if __name__ == "__main__":
    sys.exit(main())
