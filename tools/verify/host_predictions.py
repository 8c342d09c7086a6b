"""Predicted against measured times on this machine, of networks and sizes which the probe has never seen.

Usage: python -m tools.verify.host_predictions prepare WORK FOLDER... [--count N] [--most-gflop G] [--precisions P,...]
       python -m tools.verify.host_predictions measure WORK [--within S] [--seconds S] [--busy]
       python -m tools.verify.host_predictions table WORK [--each] [--again] [--docs]

`prepare` compiles N networks of the ONNX files (packed with xz or not) in FOLDERs: the first of at most G * 10^9
operations, in an order drawn with a fixed seed.  `measure` times what is compiled and has no row yet, for some S
seconds each: kernels one by one in slices that nothing else disturbed (`socsched.executor.probe.calls`), whose sum is a
job's time, on one thread and on all, then some on a processor while another network repeats on the other, and the host
functions at sizes that the probe has not measured.  Each row states what a plan would have predicted at that moment;
those of several threads are a group of their own ("apart") where the processors of a virtual machine lie farther apart
meanwhile than predictions place them.  With `--busy` a loop occupies a processor from before the probe on, and the rows
are kept apart.
`table` sums up (`--again`: with predictions of the present code and of the probe in the cache for the networks), and
with `--docs` writes the table into docs/planning.md.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from socsched.api.loading import load_platform
from socsched.compiler.builder import compile_stage
from socsched.compiler.native.host_stages import NativeStages, compiled_stages
from socsched.cost.contention import contention_model
from socsched.cost.cost import is_within
from socsched.cost.fitted import estimate
from socsched.cost.power import dram_capacity
from socsched.descriptor import host
from socsched.descriptor.kernel_times import alike
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine, Platform, contention_of
from socsched.errors import SocschedError
from socsched.executor.probe import calls
from socsched.executor.probe.functions import Case, anchor_maps, centre_maps, median_ms, scans, shifted, small
from socsched.executor.programs import cpu_program
from socsched.files import write_file
from socsched.models.registry import get_model
from socsched.models.work import stage_work

Row = dict[str, Any]
"""group ("fp32 x1"), name, predicted and measured (ns), error (relative), load, and the kernels' times by name."""
PAIRS = 8
"""Pairs of networks that are measured at once."""
APART = ", apart"
"""Ends the name of a group measured while the processors lay farther apart than where predictions place them."""
PAGE, MARK = Path("docs/planning.md"), "<!-- host -->"


def main() -> None:
    """Run one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    for step in (prepare, measure, table):
        one = steps.add_parser(step.__name__)
        one.set_defaults(step=step)
        one.add_argument("work", type=Path)
        if step is prepare:
            one.add_argument("folders", nargs="+", type=Path)
            one.add_argument("--count", type=int, default=30)
            one.add_argument("--most-gflop", type=float, default=6.0)
            one.add_argument("--precisions", default="fp32,int8")
        elif step is measure:
            one.add_argument("--within", type=float, default=90.0)
            one.add_argument("--seconds", type=float, default=0.4)
            one.add_argument("--busy", action="store_true")
        else:
            one.add_argument("--each", action="store_true")
            one.add_argument("--again", action="store_true")
            one.add_argument("--docs", action="store_true", help=f"write the tables into {PAGE}")
    options = parser.parse_args()
    options.step(options)


def prepare(options: argparse.Namespace) -> None:
    """Compile networks that are not compiled yet; keep their work and programs."""
    engine, left = host.detect().engines[0], options.count
    options.work.mkdir(parents=True, exist_ok=True)
    files = sorted(file for folder in options.folders for file in folder.glob("*.onnx*"))
    random.Random(0).shuffle(files)
    for file in files:
        name = file.name.removesuffix(".xz").removesuffix(".onnx")
        kept = {one: options.work / f"{name}.{one}.pickle" for one in options.precisions.split(",")}
        if left and not all(one.exists() for one in kept.values()):
            with tempfile.TemporaryDirectory() as folder:
                plain = Path(folder) / "network.onnx"
                plain.write_bytes(lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes())
                try:
                    if not compiled(name, plain, kept, engine, options.most_gflop):
                        continue
                except SocschedError as problem:
                    print(f"{name:30} left out: {str(problem)[:90]}", flush=True)
                    continue
        left -= left > 0


def compiled(name: str, file: Path, kept: dict[str, Path], engine: Engine, most: float) -> bool:
    """Compile a network in each precision, unless it has more than `most` * 10^9 operations."""
    for precision, target in kept.items():
        start, stage = time.monotonic(), Stage(name, name, "onnx", params={"file": str(file)})
        work = stage_work(stage, precision)
        if not 0 < work.flops <= most * 1e9:
            return False
        if not target.exists():
            content = cpu_program(compile_stage(stage, engine, precision), 1)
            target.write_bytes(pickle.dumps((work, content)))
            print(f"{name:30} {precision}: compiled in {time.monotonic() - start:.1f} s", flush=True)
    return True


def measure(options: argparse.Namespace) -> None:
    """Add rows for what is compiled and has none, and then for host functions."""
    end = time.monotonic() + options.within
    loop = multiprocessing.get_context("spawn").Process(target=occupy, daemon=True) if options.busy else None
    if loop:
        loop.start()
        time.sleep(5)
    try:
        record = options.work / ("busy.jsonl" if options.busy else "quiet.jsonl")
        known = {(row["group"].partition(",")[0], row["name"]) for row in read(record)}
        with record.open("a") as file:
            for row in rows(options, known):
                file.write(json.dumps({**row, "load": round(os.getloadavg()[0], 1)}) + "\n")
                file.flush()
                if time.monotonic() > end:
                    print("not all yet: call again")
                    return
    finally:
        if loop:
            loop.terminate()


def occupy() -> None:
    """Keep a processor busy."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    while True:
        pass


def rows(options: argparse.Namespace, known: set[tuple[str, str]]) -> Iterator[Row]:
    """Yield a row a network, precision and number of threads, then one a size of a host function."""
    cpus = sorted(os.sched_getaffinity(0))
    sets = [cpus[-count:] for count in dict.fromkeys((1, len(cpus)))]
    for file in sorted(options.work.glob("*.pickle")):
        name, precision, _ = file.name.rsplit(".", 2)
        left = [some for some in sets if (f"{precision} x{len(some)}", name) not in known]
        if not left:
            continue
        work, content = pickle.loads(file.read_bytes())
        timed = calls.program(content)
        for some in left:
            platform = load_platform("host", integers=True)
            engine = platform.engines[0]
            low = timed.times(some, options.seconds).low
            of = estimate(work, platform, engine, platform.modes[0], len(some))
            kernels: dict[str, float] = {}
            for kernel, one in zip(timed.names, low.tolist(), strict=True):
                kernels[kernel] = kernels.get(kernel, 0.0) + one
            group = f"{precision} x{len(some)}" + (APART if are_apart(engine, some) else "")
            row = {"group": group, "name": name, "predicted": of.time_ns, "error": of.error}
            yield {**row, "measured": float(low.sum()), "kernels": kernels}
    platform = load_platform("host", integers=True)
    if len(cpus) > 1:
        yield from beside(options, platform, cpus[-2:], known)
    native = compiled_stages()
    if isinstance(native, NativeStages):
        for label, name, params, frames in sizes():
            if ("host functions", label) in known:
                continue
            model = get_model(name, params)
            case = Case(model, frames or shifted(anchor_maps(model, 400)), native)
            work = stage_work(Stage(name, name, name, params=params), "fp32")
            of = estimate(work, platform, platform.engines[0], platform.modes[0], 1)
            row = {"group": "host functions", "name": label, "predicted": of.time_ns, "error": of.error}
            yield {**row, "measured": median_ms(case, 15) * 1e6}


def are_apart(engine: Engine, cpus: Sequence[int]) -> bool:
    """Return whether processors lie farther from each other than where predictions place them."""
    kernels = (one for times in engine.kernel_times for one in times.kernels if one.threads == len(cpus))
    near = min((one.handover for one in kernels if one.handover), default=0.0)
    handover = calls.hand_over_ns(cpus) if near else 0.0
    return handover > near and not alike(handover, near)


def beside(
    options: argparse.Namespace, platform: Platform, cpus: Sequence[int], known: set[tuple[str, str]]
) -> Iterator[Row]:
    """Yield a row for networks on the first processor while the next one repeats on the second, as plans share them."""
    some = sorted(options.work.glob("*.fp32.pickle"))
    files = random.Random(1).sample(some, min(PAIRS, len(some)))
    mode, (engine, *_) = platform.modes[0], platform.engines
    model = contention_model(contention_of(platform), dram_capacity(platform, mode), {})
    for file, other in zip(files, [*files[1:], files[0]], strict=True):
        name = f"{file.name.split('.')[0]} + {other.name.split('.')[0]}"
        if ("fp32 beside", name) in known:
            continue
        (work, content), (second, _) = (pickle.loads(one.read_bytes()) for one in (file, other))
        mine, yours = (estimate(one, platform, engine, mode, 1) for one in (work, second))
        timed = calls.program(content)
        alone = float(timed.times(cpus[:1], options.seconds).low.sum())
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        rival = context.Process(target=repeat, args=(other, cpus[1], ready), daemon=True)
        rival.start()
        try:
            ready.wait()
            together = float(timed.times(cpus[:1], options.seconds).low.sum())
        finally:
            rival.kill()
            rival.join()
        shared = sum(
            model.paces([(engine.id, one), (engine.id, two)])[0] * two.time_ns / max(yours.time_ns, 1)
            for one in mine.segments
            for two in yours.segments
        )
        factor = shared / sum(one.time_ns for one in mine.segments)
        row = {"group": "fp32 beside", "name": name, "predicted": factor * mine.time_ns, "error": mine.error}
        yield {**row, "measured": together, "slower": together / alone, "predicted_slower": factor}


def repeat(file: Path, processor: int, ready: Any) -> None:
    """Compute a network on a processor again and again."""
    timed = calls.program(pickle.loads(file.read_bytes())[1])
    timed.times([processor], 0.1)
    ready.set()
    while True:
        timed.times([processor], 1.0)


def sizes() -> Iterator[tuple[str, str, dict[str, Any], list[list[Any]]]]:
    """Yield label, name, parameters and frames of host functions at sizes that the probe has not measured."""
    generator = np.random.default_rng(3)
    for points, pillars in ((15000, 4500), (18000, 7200)):
        size = {"points": points, "pillars": pillars}
        yield f"voxelise {points}", "pointpillars.voxelise", size, scans(points, pillars)
    yield "anchor-decode", "pointpillars.decode", {"candidates": 80}, []
    yield "center-decode", "centerpoint.decode", {"candidates": 350}, shifted(centre_maps(seed=3))
    image = generator.integers(0, 256, (3, 1080, 1920, 3), np.uint8)
    for height, width in ((288, 512), (480, 800)):
        shape = {"input_height": height, "input_width": width}
        for steps in ({}, {"steps": "resize"}, {"steps": "normalise"}):
            frames = [[small(height, width)]] if steps.get("steps") == "normalise" else [[one] for one in image]
            label = f"camera {steps.get('steps', 'preprocess')} {width}"
            yield label, "camera.preprocess", {**steps, **shape}, frames
    boxes = generator.normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    yield "camera-decode", "camera.decode", {"candidates": 75}, shifted([boxes])


def read(record: Path) -> list[Row]:
    """Return the rows of a record, none if there is no file."""
    return [json.loads(text) for text in record.read_text().splitlines()] if record.exists() else []


def table(options: argparse.Namespace) -> None:
    """Print the sums of both records, and each row on request; write them into the page on request."""
    page = []
    for title, record in (("alone", "quiet.jsonl"), ("beside a busy loop on a core", "busy.jsonl")):
        groups: dict[str, list[Row]] = {}
        for row in read(options.work / record):
            if options.again and "kernels" in row:
                row |= anew(options.work, row)
            groups.setdefault(row["group"], []).append(row)
            if options.each:
                print(line(row))
        page += [f"| {title} | {group} | {summary(some)} |" for group, some in sorted(groups.items())]
    known = host.recalled(host.probe_key())
    lines = [
        f"{known.conditions.model}, {known.conditions.cores} cores, probe of {known.conditions.date}:" if known else "",
        "",
        "| machine | what | number | median ratio | MAPE | inside | median half width | load |",
        "|" + "---|" * 8,
        *page,
    ]
    print("\n".join(lines))
    if options.docs:
        before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
        write_file(PAGE, MARK.join((before, "\n".join(("", *lines, "")), after)))


def anew(folder: Path, row: Row) -> Row:
    """Return the present prediction for a network's row."""
    precision, threads = row["group"].removesuffix(APART).split(" x")
    work, _ = pickle.loads((folder / f"{row['name']}.{precision}.pickle").read_bytes())
    platform = host.detect()
    of = estimate(work, platform, platform.engines[0], platform.modes[0], int(threads))
    return {"predicted": of.time_ns, "error": of.error}


def line(row: Row) -> str:
    """Return a row as text, with the kernels that take the most time."""
    ratio, error = row["predicted"] / row["measured"], row["error"]
    times = f"{row['predicted'] / 1e6:9.3f} ms ±{error:4.0%}{row['measured'] / 1e6:9.3f} ms"
    text = f"{row['group']:15}{row['name']:30}{times}"
    sums: dict[str, float] = {}
    for kernel, one in row.get("kernels", {}).items():
        sums[kernel.rstrip("0123456789")] = sums.get(kernel.rstrip("0123456789"), 0.0) + one
    most = ", ".join(f"{k} {v / 1e3:.0f}" for k, v in sorted(sums.items(), key=lambda item: -item[1])[:5])
    return f"{text} {ratio:5.2f} {'       ' if within(row) else 'outside'} {most}"


def within(row: Row) -> bool:
    """Return whether a measured time is in its interval."""
    return is_within(row["measured"] / row["predicted"], row["error"])


def summary(some: Sequence[Row]) -> str:
    """Return number, median ratio, mean absolute error, share inside, median half width and loads, as cells."""
    ratios = [row["predicted"] / row["measured"] for row in some]
    off = statistics.mean(abs(ratio - 1) for ratio in ratios)
    inside = sum(map(within, some)) / len(some)
    width = statistics.median(row["error"] for row in some)
    loads = [row["load"] for row in some]
    cells = (len(some), f"{statistics.median(ratios):.2f}", f"{off:.1%}", f"{inside:.0%}", f"±{width:.0%}")
    return " | ".join(map(str, (*cells, f"{min(loads)}–{max(loads)}")))


if __name__ == "__main__":
    main()
