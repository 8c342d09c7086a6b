"""Run a pipeline on this machine at full rate for a long time and monitor growth of memory, open files and threads.

    python -m tools.verify.soak [PIPELINE] [--minutes 30] [--slower 1]

Resident memory (VmRSS), descriptors and threads are read once a second from /proc while frames are released, and what
is in use of it: bytes of C's heap (mallinfo2) and blocks of Python's, for a run keeps some spare memory, in which a
leak could hide.  After the first minute each may grow by less than 1 MiB, as a least-squares line over the rest says
(a block counts as 100 bytes), and no descriptor may be added.  Trace and frames go to files, as with `socsched run -o`;
nothing is taken off.  The first minute is that after the first release, when stages are compiled and warm.  Exit code 1
when something grew, or a frame is not accounted for.  With --blame the lines of Python code that hold more memory in
the end are listed.  The process of the executor is monitored, at the sensors' rates divided by --slower with --rate.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import sys
import tempfile
import threading
import time
import tracemalloc
from array import array
from pathlib import Path
from typing import Any

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.executor.run_native import Inputs, execute
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched.runtime.options import Options
from socsched.runtime.overheads import overheads
from tools.verify.run import stretched

ALLOWED_BYTES = 2**19
FIRST_S = 60.0
WIDTH = 6
BLOCK_BYTES = 100
"""About what a block of Python's heap takes."""


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
    )


# looked up once: every look-up makes a new type, which is garbage only the cycle collector finds
_MALLINFO = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _MALLINFO is not None:
    _MALLINFO.restype = _Mallinfo


def heap_in_use() -> int:
    """Return the bytes of C's heap that are in use, 0 where its library does not say (mallinfo2, glibc 2.33)."""
    if _MALLINFO is None:
        return 0
    found: _Mallinfo = _MALLINFO()
    return int(found.used + found.hblkhd)


def executor_process() -> str:
    """Return the number of the process that runs the native executor, a child of this one."""
    children = (Path(f"/proc/self/task/{task.name}/children") for task in Path("/proc/self/task").iterdir())
    return next(child for file in children for child in file.read_text().split())


class Watch:
    """Samples the executor, which this process has started, once a second while `going`."""

    def __init__(self, blame: bool, seconds: int) -> None:
        # What watches must not grow itself: room for all samples, and of the maps the first and the last.
        self._room = array("d", bytes(8 * WIDTH * seconds))
        self._count = 0
        self.going = threading.Event()
        self.held: list[Any] = []
        self.maps: list[dict[str, int]] = []
        self._blame = blame
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        self.going.wait()
        process = executor_process()
        _resident(process)  # what it needs itself is not to count
        start, minutes = time.monotonic(), 0
        while not self._stop.wait(1.0) and self.going.is_set():
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            files = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
            threads = sum(1 for _ in Path(f"/proc/{process}/task").iterdir())
            since = time.monotonic() - start
            if WIDTH * (self._count + 1) <= len(self._room):
                used, blocks = heap_in_use(), sys.getallocatedblocks() * BLOCK_BYTES
                row = array("d", (since, pages * 4096, files, threads, used, blocks))
                self._room[WIDTH * self._count : WIDTH * (self._count + 1)] = row
                self._count += 1
            if since >= FIRST_S * (minutes + 1):
                self.maps[1 if minutes else 0 :] = [_resident(process)]
                minutes += 1
            if self._blame and (not self.held or since > self.held[-1][0] + FIRST_S):
                self.held.append((since, tracemalloc.take_snapshot()))

    @property
    def samples(self) -> list[tuple[float, int, int, int, int, int]]:
        """Seconds, resident bytes, descriptors, threads, and bytes in use of C's heap and of Python's, every second."""
        rows = (self._room[WIDTH * n : WIDTH * (n + 1)] for n in range(self._count))
        return [(row[0], *(int(value) for value in row[1:])) for row in rows]  # type: ignore[misc]

    def slope(self, column: int, after: float) -> float:
        """Return the growth of a column in bytes from `after` to the end, on the least-squares line."""
        points = [(row[0], row[column]) for row in self.samples if row[0] >= after]
        if len(points) < 3:
            return 0.0
        middle = sum(t for t, _ in points) / len(points)
        mean = sum(v for _, v in points) / len(points)
        rate = sum((t - middle) * (v - mean) for t, v in points) / sum((t - middle) ** 2 for t, _ in points)
        return rate * (points[-1][0] - points[0][0])


def _resident(process: str) -> dict[str, int]:
    """Return the resident KiB of every mapping of a process, by address and name."""
    found: dict[str, int] = {}
    name = ""
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            name = f"{first.split('-')[0]} {rest[-1] if len(rest) > 4 else 'anonymous'}"
        elif first == "Rss:":
            found[name] = int(rest[0])
    return found


def main() -> int:
    """Run, watch, print what grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", nargs="?", default="pointpillars")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", action="store_true", help="at the sensors' rates instead of as fast as it goes")
    parser.add_argument("--slower", type=float, default=1.0, help="divisor of all rates")
    parser.add_argument("--blame", action="store_true", help="follow Python's memory, which makes all slower")
    args = parser.parse_args()
    pipe = stretched(get_pipeline(args.pipeline), args.slower)
    plan = make_plan(pipe, get_platform("host"), work=stage_work)
    if args.blame:
        tracemalloc.start(8)
    watch = Watch(args.blame, round(args.minutes * 60) + 120)
    accounts: dict[str, dict[str, int]] = {}
    gc.collect()
    with watch, tempfile.TemporaryDirectory() as folder:
        options = Options(
            in_flight=1 if args.rate else 2,
            pace="rate" if args.rate else "asap",
            journal=Path(folder) / "journal.jsonl",
            frames=Path(folder) / "frames.jsonl",
        )
        until = _until(args.minutes * 60, watch.going)
        length = Inputs(duration_ns=round((args.minutes + 60) * 60e9)) if args.rate else Inputs(frames=10**9)
        trace = execute(plan, pipe, length, options, accounts=accounts, on_frame=until)
        written = {file.name: file.stat().st_size for file in Path(folder).iterdir()}
    after = min(FIRST_S, args.minutes * 60 / 2)
    first, last = (next(s for s in watch.samples if s[0] >= t) for t in (after, watch.samples[-1][0]))
    grown, files, threads = watch.slope(1, after), last[2] - first[2], last[3] - first[3]
    used, blocks = watch.slope(4, after), watch.slope(5, after)
    balanced = all(a["released"] == a["completed"] + a["dropped"] + a["aborted"] for a in accounts.values())
    for source, account in accounts.items():
        print(f"{source}: {account}")
    waits = overheads(trace)["dispatch_ns"]
    assert waits is not None
    print(f"a ready job starts after {waits['p50'] / 1e3:.0f} us (median), {waits['p99'] / 1e3:.0f} us (p99)")
    print("written: " + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in sorted(written.items())))
    for at in range(len(watch.samples) // 10, len(watch.samples), max(len(watch.samples) // 10, 1)):
        row = watch.samples[at]
        print(
            f"{row[0]:6.0f} s: resident {row[1] / 2**20:8.2f} MiB, in use {row[4] / 2**20:8.2f} of C's heap,"
            f" {row[5] / 2**20:6.2f} of Python's"
        )
    print(f"resident {first[1] / 2**20:.2f} MiB at {first[0]:.0f} s, {last[1] / 2**20:.2f} MiB at {last[0]:.0f} s,")
    print(f"at most {max(s[2] for s in watch.samples)} descriptors, {max(s[3] for s in watch.samples)} threads")
    if len(watch.maps) > 1:
        before, after_ = watch.maps[0], watch.maps[-1]
        more = sorted(((size - before.get(name, 0), name) for name, size in after_.items()), reverse=True)
        for grown_, name in more[:5]:
            if grown_ > 0:
                print(f"  {name} grew by {grown_} KiB after the first minute")
    if len(watch.held) > 1:
        for line in watch.held[-1][1].compare_to(watch.held[1 if len(watch.held) > 2 else 0][1], "lineno")[:15]:
            print(f"  {line}")
    allowed = ALLOWED_BYTES
    rows = (
        (f"memory grew by {grown / 2**20:.2f} MiB (bar {allowed / 2**20:g} MiB)", grown < allowed),
        (
            f"in use: {used / 2**20:+.2f} MiB of C's heap, {blocks / 2**20:+.2f} MiB of Python's",
            max(used, blocks) < allowed,
        ),
        (f"descriptors {files:+d}, threads {threads:+d}", files <= 0 and threads <= 0),
        ("every frame accounted for", balanced),
    )
    for text, held in rows:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in rows) else 1


def _until(seconds: float, going: threading.Event) -> Any:
    """Return a callback that interrupts the run `seconds` after its first frame; `going` is set between."""
    began: list[float] = []

    def on_frame(report: Any) -> None:
        now = time.monotonic()
        if not began:
            began.append(now)
            going.set()
        elif now >= began[0] + seconds and going.is_set():
            going.clear()  # a second interrupt would not wait for what is under way
            os.kill(os.getpid(), signal.SIGINT)

    return on_frame


if __name__ == "__main__":
    sys.exit(main())
