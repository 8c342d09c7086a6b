"""Predicted against measured times of networks on this machine, which the probe has never seen.

Usage: python -m tools.verify.host_predictions FOLDER... [--every N] [--most-gflop G] [--seconds S] [--each]

FOLDER holds ONNX files, packed with xz or not.  Each network is compiled and its kernels are timed one by one in slices
that something else did not disturb (`socsched.executor.probe.calls`); their sum is the measured time, at one thread and
at all.  So the figures hold beside other programs; the load average stands beside them.  The host functions follow, at
sizes that the probe has not measured.
"""

from __future__ import annotations

import argparse
import lzma
import os
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
from socsched.cost.fitted import estimate
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Platform
from socsched.errors import SocschedError
from socsched.executor.cpu_programs import cpu_program
from socsched.executor.probe import calls
from socsched.executor.probe.functions import Case, anchor_maps, centre_maps, median_ms, small, synthetic_scan
from socsched.models.registry import get_model
from socsched.models.work import stage_work


def main() -> None:
    """Print a line a network and number of threads, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1, help="every N-th file")
    parser.add_argument("--first", type=int, default=0, help="leave out the first files")
    parser.add_argument("--most-gflop", type=float, default=20.0, help="leave out networks of more operations")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring each")
    parser.add_argument("--each", action="store_true", help="a line a family of every network")
    options = parser.parse_args()
    platform = load_platform("host")
    files = [file for folder in options.folders for file in sorted(folder.glob("*.onnx*"))]
    rows: dict[int, list[tuple[float, float, float]]] = {}
    for name, file in unpacked(files[options.first :: options.every]):
        try:
            for threads, predicted, error, measured in network(name, file, platform, options):
                rows.setdefault(threads, []).append((predicted, error, measured))
                print(line(f"{name} x{threads}", predicted, error, measured), flush=True)
        except (SocschedError, OSError) as problem:
            print(f"{name:34} left out: {str(problem)[:90]}", flush=True)
    known = []
    for device, *figures in functions(platform):
        known.append((figures[0], figures[1], figures[2]))
        print(line(device, *known[-1]), flush=True)
    for threads, found in sorted(rows.items()):
        print(f"{threads} thread(s): {summary(found)}, load {os.getloadavg()[0]:.1f}")
    print(f"host functions: {summary(known, 'sizes')}, load {os.getloadavg()[0]:.1f}")


def functions(platform: Platform) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, predicted time (ns), relative error and measured time of host functions at other sizes."""
    compiled, engine = compiled_stages(), platform.engines[0]
    if not isinstance(compiled, NativeStages):
        return
    generator = np.random.default_rng(3)
    image = generator.integers(0, 256, (3, 1080, 1920, 3), np.uint8)
    boxes = generator.normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    sizes: list[tuple[str, dict[str, Any], list[list[Any]] | None]] = [
        ("pointpillars.voxelise", {"points": 15000, "pillars": 4500}, [[synthetic_scan(15000, 4500)]]),
        ("pointpillars.voxelise", {"points": 18000, "pillars": 7200}, [[synthetic_scan(18000, 7200)]]),
        ("pointpillars.decode", {"candidates": 80}, None),
        ("centerpoint.decode", {"candidates": 350}, [centre_maps(seed=3)]),
        *(
            ("camera.preprocess", {**steps, "input_height": height, "input_width": width}, [[one] for one in image])
            for steps in (dict[str, Any](), {"steps": "resize"})
            for height, width in ((288, 512), (480, 800))
        ),
        ("camera.preprocess", {"steps": "normalise", "input_height": 288, "input_width": 512}, [[small(288, 512)]]),
        (
            "camera.decode",
            {"candidates": 75},
            [[boxes]],
        ),
    ]
    for name, params, frames in sizes:
        model = get_model(name, params)
        case = Case(model, frames or [anchor_maps(model, 400)], compiled)
        work = stage_work(Stage(name, name, name, params=params), "fp32")
        found = estimate(work, platform, engine, platform.modes[0], 1)
        yield model.device, float(found.time_ns), found.error, median_ms(case, 15) * 1e6


def unpacked(files: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield name and file of networks, unpacked for as long as they are used."""
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            name = file.name.removesuffix(".xz").removesuffix(".onnx")
            if file.suffix == ".xz":
                plain = Path(folder) / f"{name}.onnx"
                plain.write_bytes(lzma.decompress(file.read_bytes()))
                yield name, plain
                plain.unlink()
            else:
                yield name, file


def network(
    name: str, file: Path, platform: Platform, options: argparse.Namespace
) -> Iterator[tuple[int, float, float, float]]:
    """Yield threads, predicted time (ns), its relative error and the measured time (ns)."""
    stage, engine = Stage(name, name, "onnx", params={"file": str(file)}), platform.engines[0]
    work = stage_work(stage, "fp32")
    if work.flops > options.most_gflop * 1e9:
        return
    start = time.monotonic()
    timed = calls.program(cpu_program(compile_stage(stage, engine, "fp32"), 1))
    took = time.monotonic() - start
    cpus = sorted(os.sched_getaffinity(0))
    for threads in dict.fromkeys((1, len(cpus))):
        low = timed.times(cpus[-threads:], options.seconds).low
        found = estimate(work, platform, engine, platform.modes[0], threads)
        yield threads, float(found.time_ns), found.error, float(low.sum())
    if options.each:
        print(f"  compiled in {took:.1f} s; kernels (us): {top(timed.names, low.tolist())}")


def top(kernels: Sequence[str], times: Sequence[float]) -> str:
    """Return the kernels that take the most time together, by name."""
    sums: dict[str, float] = {}
    for kernel, one in zip(kernels, times, strict=True):
        sums[kernel.rstrip("0123456789")] = sums.get(kernel.rstrip("0123456789"), 0.0) + one
    return ", ".join(f"{k} {v / 1e3:.0f}" for k, v in sorted(sums.items(), key=lambda item: -item[1])[:8])


def line(name: str, predicted: float, error: float, measured: float) -> str:
    """Return one line of the table."""
    inside = abs(predicted - measured) <= error * predicted
    text = f"{name:34}{predicted / 1e6:10.3f} ms ±{error:4.0%}{measured / 1e6:10.3f} ms{measured / predicted:7.2f}"
    return text + ("" if inside else "  outside")


def summary(found: list[tuple[float, float, float]], what: str = "networks") -> str:
    """Return mean absolute error, share inside and median half width."""
    off = statistics.mean(abs(p - m) / m for p, _, m in found)
    inside = sum(abs(p - m) <= e * p for p, e, m in found)
    width = statistics.median(error for _, error, _ in found)
    return f"{len(found)} {what}, MAPE {off:.1%}, {inside} inside, median half width ±{width:.0%}"


if __name__ == "__main__":
    main()
