"""Sweeps: configurations a second by cores, here and on a local Ray; ten thousand configurations by both engines.

    python -m tools.bench.sweep [--configurations 48] [--cores 1,2,4] [--no-ray]
    python -m tools.bench.sweep --ten-thousand

The first plans and simulates perception-stack for 60 s, every configuration with its own plan, after a warm-up of each
worker.  The ceiling is the rate of as many independent processes, in the same round.  Efficiency is the rate over the
ceiling, and over that of one local worker times the workers; overhead of Ray is against the local engine with as many.
Ceiling, local and Ray take turns; medians over rounds are printed.
The second runs `socsched sweep` on one study with both engines and compares the tables byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing as mp
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from socsched.descriptor.study_file import load_study
from socsched.pool import cores
from socsched.study.engines import engine
from socsched.study.inputs import gather
from socsched.study.store import create
from socsched.study.sweep import Progress, configurations, do_jobs
from socsched.study.work import Done, Job, open_inputs, perform, plan_key

RATE = """schema_version: "1"
name: rate
parameters:
  platform: jetson-agx-orin-64gb
  mode: MODE_50W
  pipeline: perception-stack
  pipeline.chains.lidar-to-command.deadline: {{between: [200 ms, 300 ms], steps: {count}}}
simulate: {{duration: 60 s}}
"""
TEN_THOUSAND = """schema_version: "1"
name: ten-thousand
title: How much load, which policy and which mode of AGX Orin perception-stack stands
parameters:
  platform: jetson-agx-orin-64gb
  mode: all
  pipeline: perception-stack
  policy: [edf, fp, fifo, llf]
  load: {between: [0.8, 2.0], steps: 25}
  seed: {between: [0, 24000], steps: 25}
simulate: {duration: 5 s}
holds: {misses: 0.05}
"""


def rate(name: str, workers: int, count: int, folder: Path) -> tuple[float, float]:
    """Return configurations a second with so many workers, their start and first plans left out, and how busy they are.

    Busy is the time workers had jobs over the time there was: what is missing, the engine and the last jobs took.
    """
    (folder / "rate.yaml").write_text(RATE.format(count=count + 3 * workers))
    study = load_study(folder / "rate.yaml")
    inputs, points = gather(study), configurations(study)
    out = folder / f"{name}{workers}-{time.monotonic_ns()}"
    store, team = create(out, "bench", False), engine(name, inputs, out / "inputs", workers)
    open_inputs(inputs, out / "inputs")
    digest = inputs.digest()
    warm = 3 * workers
    groups = [(key := plan_key(digest, point), [Job(key, (point,), 1)]) for point in points]
    with team:
        do_jobs(groups[:warm], out, store, team, Progress(len(points), 0, None))
        started = time.perf_counter()
        spent, finished = 0.0, team.finished

        def heard(timeout_s: float) -> Sequence[tuple[Job, Done]]:
            nonlocal spent
            found = finished(timeout_s)
            spent += sum(done.spent_s for _, done in found)
            return found

        team.finished = heard  # type: ignore[method-assign]
        do_jobs(groups[warm:], out, store, team, Progress(len(points), 0, None))
        seconds = time.perf_counter() - started
    store.close()
    assert len(store.rows) == len(points) and not any(row["error"] for row in store.rows.values())
    return count / seconds, spent / seconds / workers


def ceiling(workers: int, seconds: float, folder: Path) -> float:
    """Return configurations a second of processes that share nothing, each for some time after its first one."""
    (folder / "rate.yaml").write_text(RATE.format(count=1000))
    with mp.get_context("spawn").Pool(workers) as pool:
        shares = [(str(folder / "rate.yaml"), number, seconds) for number in range(workers)]
        return sum(pool.map(_alone, shares, chunksize=1))


def _alone(share: tuple[str, int, float]) -> float:
    file, number, seconds = share
    study = load_study(file)
    opened, points = open_inputs(gather(study)), configurations(study)
    begun, done = 0.0, -1
    for at, point in enumerate(points[number * 100 :]):
        perform(opened, Job(f"{number}.{at}", (point,), 1), None)
        done += 1
        if not begun:
            begun = time.perf_counter()
        elif time.perf_counter() - begun > seconds:
            break
    return done / (time.perf_counter() - begun)


def scaling(sizes: Sequence[int], count: int, rounds: int, with_ray: bool) -> None:
    """Print the rates by engine and workers."""
    names = ("ceiling", "local", "ray") if with_ray else ("ceiling", "local")
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for size in sizes:
                for name in names:
                    place = Path(folder)
                    one = (ceiling(size, 8, place), 1.0) if name == "ceiling" else rate(name, size, count, place)
                    found.setdefault((name, size), []).append(one)
                    print(f"  {name} {size}: {one[0]:.3f}/s, busy {one[1]:.1%}", file=sys.stderr, flush=True)

    def median(name: str, size: int, which: int = 0) -> float:
        return statistics.median(one[which] for one in found[name, size])

    print(
        f"plan + 60 s of perception-stack, {count} configurations, medians of {rounds}, load {os.getloadavg()[0]:.1f}"
    )
    for size in sizes:
        most, local = median("ceiling", size), median("local", size)
        line = f"{size} workers: ceiling {most:.3f}/s; local {local:.3f}/s, {local / most:.1%} of the ceiling"
        line += f", {local * sizes[0] / size / median('local', sizes[0]):.1%} of {size}/{sizes[0]} times {sizes[0]}"
        line += f", workers busy {median('local', size, 1):.1%}"
        if with_ray:
            pairs = zip(found["local", size], found["ray", size], strict=True)
            over = statistics.median(here[0] / there[0] - 1 for here, there in pairs)
            line += f"; ray {median('ray', size):.3f}/s, {over:+.1%} time, workers busy {median('ray', size, 1):.1%}"
        print(line)


def ten_thousand(with_ray: bool) -> int:
    """Run the study with both engines; return 0 when the tables are the same."""
    digests = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ten-thousand.yaml").write_text(TEN_THOUSAND)
        for name in ("local", "ray") if with_ray else ("local",):
            command = [
                sys.executable,
                "-m",
                "socsched",
                "sweep",
                f"{folder}/ten-thousand.yaml",
                "-o",
                f"{folder}/{name}",
            ]
            started = time.perf_counter()
            code = subprocess.run([*command, "--engine", name], stdout=subprocess.DEVNULL).returncode
            seconds = time.perf_counter() - started
            data = (Path(folder) / name / "table.parquet").read_bytes()
            digests.append(hashlib.sha256(data).hexdigest())
            print(f"{name}: exit code {code}, {seconds:.1f} s, {10_000 / seconds:.0f}/s, table {digests[-1][:16]}")
    same = len(set(digests)) == 1
    print("the tables are the same, byte for byte" if same else "THE TABLES DIFFER")
    return 0 if same else 1


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=48)
    parser.add_argument("--cores", default=",".join(str(n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores()))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--ten-thousand", action="store_true")
    chosen = parser.parse_args()
    if chosen.ten_thousand:
        return ten_thousand(not chosen.no_ray)
    sizes = [int(size) for size in chosen.cores.split(",")]
    scaling(sizes, chosen.configurations, chosen.rounds, not chosen.no_ray)
    return 0


if __name__ == "__main__":
    sys.exit(main())
