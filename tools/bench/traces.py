"""Measure the processing of a simulated trace: figures, Perfetto file and trace file, against record-by-record code.

The trace is synthetic: a pipeline like the shipped perception stack (sensors, gangs, segments, conversions, sampled
links, counters that change with every slice).  The record-by-record code is the tests' oracle, run on a shorter trace
of the same kind because it is slow; both run in this process, in turn, medians of `--repeat`.

    python -m tools.bench.traces [--slices 1000000] [--old-slices 50000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace import io, metrics, perfetto
from socsched.trace.columns import Columns, InstantColumns, JobColumns, SliceColumns
from socsched.trace.trace import Trace
from tests.sim.builders import chain, engine, plan, sensor, task
from tests.trace import reference_io, reference_metrics, reference_perfetto

MS = 1_000_000


def main() -> None:
    """Print one line a step and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--old-slices", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    made = pipeline()
    print(f"{'step':<28}{'slices':>9}{'jobs':>9}{'steps':>9}{'us/slice':>10}{'us/job':>9}{'bytes/slice':>13}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace"
        zipped = file.with_suffix(".json.gz")
        for name, slices, figures, write, files in (
            ("columns", options.slices, metrics.result, perfetto.write_perfetto, io),
            ("records", options.old_slices, reference_metrics.result, reference_perfetto.write_perfetto, reference_io),
        ):
            trace = synthetic(made, slices)
            if name == "records":
                assert trace.jobs and trace.slices and trace.counters and trace.releases and trace.instants
            for step, what, written in (
                ("metrics", partial(figures, trace, made), None),
                ("perfetto", partial(write, trace, made, file), file),
                ("trace file, save", partial(files.save, trace, zipped), zipped),
                ("trace file, load", partial(files.load, zipped), None),
            ):
                report(f"{step}, {name}", trace, median(what, options.repeat), written)


def report(name: str, trace: Trace, wall: float, file: Path | None) -> None:
    """Print time by slice and by job, and the size of what was written."""
    columns = trace.columns
    slices, jobs = len(columns.slices), len(columns.jobs)
    steps = sum(len(times) for times, _ in columns.counters.values())
    size = f"{file.stat().st_size / slices:>13.1f}" if file else ""
    row = f"{name:<28}{slices:>9}{jobs:>9}{steps:>9}{wall / slices * 1e6:>10.3f}{wall / jobs * 1e6:>9.3f}{size}"
    print(row, flush=True)


def median(what: Callable[[], Any], repeat: int) -> float:
    """Return the median wall time."""
    walls = []
    for _ in range(repeat):
        start = time.perf_counter()
        what()
        walls.append(time.perf_counter() - start)
    return statistics.median(walls)


def pipeline() -> Plan:
    """Return a plan like the shipped perception stack: two detectors, tracker, planner on three engines."""
    tasks = [
        task("voxels", after=("lidar",), period_ns=100 * MS, engine="cpu", lanes=(0, 1)),
        task("detect3d", after=("voxels",), period_ns=100 * MS, engine="gpu"),
        task("decode3d", after=("detect3d",), period_ns=100 * MS, engine="cpu"),
        task("resize", after=("camera",), period_ns=33 * MS, engine="cpu", lanes=(2,)),
        task("resize->detect2d", kind="conversion", after=("resize",), period_ns=33 * MS, engine="cpu", lanes=(2,)),
        task("detect2d", after=("resize->detect2d",), period_ns=33 * MS, engine="dla"),
        task("track", reads=("decode3d", "detect2d"), period_ns=20 * MS, engine="cpu", lanes=(3,)),
        task("plan", reads=("track",), period_ns=50 * MS, engine="cpu", lanes=(3,)),
        task("control", reads=("plan",), period_ns=10 * MS, engine="cpu", lanes=(4,)),
    ]
    engines = [engine("cpu", lanes=8, idle_mw=500, dynamic_mw=9000), engine("gpu", dynamic_mw=20000), engine("dla")]
    paths = [("lidar", "detect3d", "decode3d", "track", "plan", "control"), ("camera", "detect2d", "track", "plan")]
    chains = [chain(f"c{number}", path, 150 * MS) for number, path in enumerate(paths)]
    return plan(tasks, engines, sensors=[sensor("lidar", 100 * MS), sensor("camera", 33 * MS)], chains=chains)


def synthetic(made: Plan, slices: int) -> Trace:
    """Return a trace of about so many slices: `SEGMENTS` of them a job, releases with jitter, 1 % of frames late."""
    rng = np.random.default_rng(1)
    segments = {"detect3d": 6, "detect2d": 4, "voxels": 2}
    rate = sum(segments.get(t.name, 1) / t.period_ns for t in made.tasks)
    duration = int(slices / rate)
    names = tuple(t.name for t in made.tasks)
    releases, parts = {}, []
    for source in ("lidar", "camera", *(t.name for t in made.tasks if t.timer)):
        period = next(x.period_ns for x in (*made.sensors, *made.tasks) if x.name == source)
        releases[source] = np.arange(duration // period) * period + rng.integers(0, MS, duration // period)
    done: dict[str, np.ndarray] = dict(releases)
    for number, t in enumerate(made.tasks):
        ready = releases[t.name] if t.timer else done[t.after[0]]
        base = next((releases[s.name] for s in made.sensors if len(releases[s.name]) == len(ready)), ready)
        start = ready + rng.integers(0, MS, len(ready))
        late = rng.random(len(ready)) < 0.01
        finish = start + rng.integers(MS, 5 * MS, len(ready)) + late * 90 * MS
        done[t.name] = finish
        parts.append((number, ready, base + t.deadline_ns, start, finish))
    count = [len(part[1]) for part in parts]
    task_of = np.repeat([part[0] for part in parts], count)
    frame = np.concatenate([np.arange(n) for n in count])
    ready, deadline, start, finish = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3, 4))
    order = np.argsort(ready, kind="stable")
    sampled, frames = np.full(len(order), -1, np.int64), np.zeros(0, np.int64)
    for number, t in enumerate(made.tasks):
        if t.reads:
            at = np.flatnonzero(task_of[order] == number)
            taken = [
                np.searchsorted(np.maximum.accumulate(done[r]), start[order][at], side="right") - 1 for r in t.reads
            ]
            sampled[at] = len(frames) + np.arange(len(at)) * len(t.reads)
            frames = np.concatenate((frames, np.stack(taken, 1).reshape(-1)))
    zero = np.zeros(len(order), np.int64)
    plain = [column[order] for column in (task_of, frame, ready, deadline, start, finish, finish - start)]
    jobs = JobColumns(*plain, zero, zero, zero, zero + 1, sampled, frames)
    pieces = np.array([segments.get(name, 1) for name in names])[jobs.task]
    owner = np.repeat(np.arange(len(order)), pieces)
    at = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    width = ((jobs.finish_ns - jobs.start_ns) // pieces)[owner]
    begin = jobs.start_ns[owner] + at * width
    end = np.where(at == pieces[owner] - 1, jobs.finish_ns[owner], begin + width)
    engines = tuple(e.id for e in made.engines)
    engine_of = np.array([engines.index(t.engine) for t in made.tasks])[jobs.task[owner]]
    masks = np.array([sum(1 << lane for lane in t.lanes) for t in made.tasks])[jobs.task[owner]]
    title = np.where(pieces[owner] == 1, jobs.task[owner], len(names) + at)
    columns = [column[np.argsort(begin, kind="stable")] for column in (engine_of, masks, owner, title, begin, end)]
    late = np.flatnonzero(jobs.finish_ns > jobs.deadline_ns)
    late = late[np.argsort(jobs.finish_ns[late], kind="stable")]
    over = jobs.finish_ns[late] - jobs.deadline_ns[late]
    notes = InstantColumns(jobs.finish_ns[late], late * 0, jobs.task[late], jobs.frame[late], over)
    edges = np.unique(np.concatenate((begin, end)))
    counters = {name: (edges, rng.integers(0, 30_000, len(edges)) / 8) for name in ("power_mw", "bandwidth_gbps")}
    kernels = tuple(f"kernel{number}" for number in range(6))
    reads = tuple(t.reads for t in made.tasks)
    parts_of = (names, reads, engines, (*names, *kernels), names, jobs, SliceColumns(*columns), notes)
    return Trace.from_columns("simulated", duration, 0, Columns(*parts_of, counters, releases))


if __name__ == "__main__":
    main()
