"""Find the fastest tile for every matrix product of PointPillars and ResNet-50 on this machine's GPU.

    python -m tools.generate.gpu_tiles [--arch sm_90] [--tries 60] [--jobs 16] [--only SUBSTRING] [-o FILE]

builds the `tries` most promising tiles (by the model in `compiler.targets.cuda.tiles`) of each shape in parallel,
checks that all give the same result on random data, times them as graphs of twenty launches, and rewrites the table:
shapes measured now replace their old entries, others stay.  A tile must beat the model's choice by 1 % to be written.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.environment import tvm
from socsched.compiler.targets.cuda import gemm, kernels
from socsched.compiler.targets.cuda.lower import lower
from socsched.compiler.targets.cuda.nvcc import find_nvcc, supply_cubins, write_cubin
from socsched.compiler.targets.cuda.passes import OPTIONS, tir_pipeline
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tile_table import INT8_TABLE, TABLE
from socsched.compiler.targets.cuda.tiles import Convolution, Tile, candidates, estimate, fastest_tile, round_up
from socsched.graph.expand import fuse_network
from tools import ROOT
from tools.bench import gpu_common as bench
from tools.bench.gpu_clock import Clock, Stream

TABLE_PATH = ROOT / "socsched/compiler/targets/cuda/tile_table.py"
HEADER = '''"""Measured tiles (`tiles.Tile`) by GPU and shape, of bytes in pairs; by tools/generate."""

from __future__ import annotations
'''
Table = dict[str, dict[str, tuple[int, ...]]]


def shapes(arch: str, networks: str) -> list[Convolution]:
    """Return every distinct product of the networks, named with commas between them."""
    found: dict[str, Convolution] = {}
    known = {"pointpillars": bench.pointpillars, "resnet50": bench.resnet50}
    for network in (known[name]() for name in networks.split(",")):
        zeros = {name: np.zeros(shape, np.float32) for name, shape in network.params.items()}
        for shape, _ in lower(fuse_network(network), zeros, arch, bound=False).products:
            found.setdefault(shape.key, shape)
    return list(found.values())


def build(job: tuple[Convolution, Tile, str, str]) -> str:
    """Compile one product with one tile to a library; return what went wrong, empty if nothing did."""
    shape, tile, arch, path = job
    try:
        functions = {"multiply": schedule(gemm.convolution(shape, tile), tile)}
        if tile.splits > 1:
            functions["finish"] = kernels.spread(gemm.reduction(shape, tile.splits))
        module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
        target = tvm.target.Target(bench.target(arch))

        def cubin(source: str) -> bytes:
            Path(f"{path}.cu").write_text(source)
            write_cubin(find_nvcc(), Path(f"{path}.cu"), Path(f"{path}.cubin"), arch)
            return Path(f"{path}.cubin").read_bytes()

        with supply_cubins(cubin), target, tvm.transform.PassContext(config=OPTIONS):
            tvm.compile(module, target=target, tir_pipeline=tir_pipeline()).export_library(path)
    except Exception as fault:
        return f"{type(fault).__name__}: {str(fault)[:300]}"
    return ""


def tries(shape: Convolution, arch: str, count: int) -> list[Tile]:
    """Return the tiles to build for a shape: the known one and its neighbours, the best by the model."""
    tiles = sorted(candidates(shape, arch), key=lambda tile: estimate(shape, tile, arch))
    fields = TABLE.get(arch, {}).get(shape.key)
    near: list[Tile] = []
    if fields is not None:
        known = Tile(*fields)
        near = [known, replace(known, store=8)]
        near += [replace(known, stages=known.stages + step) for step in (-1, 1, 2)]
        near += [replace(known, depth=depth, stages=n) for depth in (32, 64, 128) for n in (2, 3, 4, 5)]
    if shape.planes:
        tiles, near = ([replace(tile, splits=1, store=2) for tile in group] for group in (tiles, near))
    near = [tile for tile in near if tile.fits(shape) and tile.stages > 0 and tile.shared_bytes <= 227 << 10]
    return list(dict.fromkeys([*near, *spread(tiles, count)]))


class Bench:
    """Times libraries on one stream."""

    def __init__(self) -> None:
        self.device, self.stream = tvm.cuda(0), Stream()
        self.clock = Clock(self.stream)

    def operands(self, shape: Convolution) -> dict[str, Any]:
        """Return random operands of a product, the weights unpadded on the host."""
        generator = np.random.default_rng(0)

        def put(values: Any, dtype: Any) -> Any:
            return tvm.runtime.tensor(np.asarray(values, dtype), device=self.device)

        pixels, total = shape.height * shape.width, shape.total or shape.outputs
        return {
            "X": put(generator.normal(size=(pixels, shape.channels)), np.float16),
            "W": (generator.normal(size=(shape.n, shape.k)) / shape.k**0.5).astype(np.float16),
            "B": put(generator.normal(size=shape.outputs), np.float32),
            "R": put(generator.normal(size=(shape.pixels, total)), np.float16),
        }

    def measure(self, shape: Convolution, tile: Tile, path: str, data: dict[str, Any]) -> tuple[float, Any]:
        """Return (microseconds, result)."""
        import tvm_ffi

        module = tvm.runtime.load_module(path)
        length = round_up(shape.k, tile.depth * tile.splits)
        weight = tvm.runtime.tensor(np.pad(data["W"], ((0, 0), (0, length - shape.k))), device=self.device)
        total = shape.total or shape.outputs
        result = tvm.runtime.tensor(np.full((shape.pixels, total), np.nan, np.float16), device=self.device)
        more = [data["R"]] if shape.residual else []
        if tile.splits > 1:
            parts = tvm.runtime.empty((tile.splits, shape.m, shape.n), "float32", self.device)
            multiply, finish = module["multiply"], module["finish"]

            def run() -> None:
                multiply(data["X"], weight, parts)
                finish(parts, data["B"], *more, result)
        else:
            multiply = module["multiply"]

            def run() -> None:
                multiply(data["X"], weight, data["B"], *more, result)

        with tvm_ffi.use_raw_stream(self.device, self.stream.handle.value or 0):
            run()
            self.stream.synchronize()
            self.stream.begin_capture()
            for _ in range(20):
                run()
            graph = self.stream.end_capture()
            found = self.clock.milliseconds(lambda: graph.launch(self.stream), 7, 1) / 20 * 1e3
        return found, result.numpy()[:, shape.first : shape.first + shape.outputs].astype(np.float32)


def write(path: Path, header: str, tables: dict[str, Table]) -> None:
    """Write tables by name as a Python module."""
    lines = [header]
    for name, table in tables.items():
        lines.append(f"\n{name}: dict[str, dict[str, tuple[int, ...]]] = {{\n")
        for arch, entries in sorted(table.items()):
            if not entries:
                continue
            lines.append(f'    "{arch}": {{\n')
            lines += [f'        "{key}": {fields},\n' for key, fields in sorted(entries.items())]
            lines.append("    },\n")
        lines.append("}\n")
    path.write_text("".join(lines))


def record(shape: Convolution, tiles: list[tuple[float, Tile]], table: Table, arch: str) -> None:
    """Print the fastest of a shape's times, and put the tile into the table if it beats the model's choice by 1 %."""
    tiles.sort(key=lambda pair: pair[0])
    if not tiles:
        return
    expected = fastest_tile(shape, arch)
    expected = replace(expected, splits=1, store=2) if shape.planes else expected
    default = next((us for us, tile in tiles if tile == expected), float("inf"))
    rate = 2e-6 * shape.m * shape.n * shape.k / tiles[0][0]
    print(f"{shape.key:32} {len(tiles)} tried, {rate:.0f} T/s, the model's tile {default:.2f} us", flush=True)
    for microseconds, tile in tiles[:3]:
        print(f"    {microseconds:7.2f} us {tile}", flush=True)
    entries = table.setdefault(arch, {})
    entries.pop(shape.key, None)
    if tiles[0][0] <= 0.99 * default:
        entries[shape.key] = astuple(tiles[0][1])


def main() -> int:
    """Sweep and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--tries", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--networks", default="pointpillars,resnet50")
    parser.add_argument("--only", default="", help="part of a shape's name")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop building after this long")
    parser.add_argument("-o", "--output", type=Path, default=TABLE_PATH)
    args = parser.parse_args()
    chosen = [s for s in shapes(args.arch, args.networks) if args.only in s.key]
    folder, jobs = tempfile.mkdtemp(), []
    for number, shape in enumerate(chosen):
        picked = tries(shape, args.arch, args.tries)
        jobs += [(shape, t, args.arch, f"{folder}/{number}-{i}.so") for i, t in enumerate(picked)]
    start = time.time()
    rounds = sorted(range(len(jobs)), key=lambda j: int(jobs[j][3].rsplit("-", 1)[1][:-3]))  # the promising ones first
    faults: dict[int, str] = {}
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        answers = pool.imap(build, [jobs[j] for j in rounds], chunksize=1)
        for done, (j, fault) in enumerate(zip(rounds, answers, strict=False)):
            faults[j] = fault
            if time.time() - start > args.seconds:
                print(f"stopped after {done} of {len(jobs)}", flush=True)
                pool.terminate()
                break
    broken = [f for f in faults.values() if f]
    print(f"{len(faults)} built in {time.time() - start:.0f} s, {len(broken)} failed: {broken[:3]}", flush=True)
    tune(chosen, [(*jobs[j][:2], jobs[j][3]) for j, fault in faults.items() if not fault], args)
    return 0


def spread(tiles: list[Tile], count: int) -> list[Tile]:
    """Return the most promising tiles, at most two that differ only in depth and stages."""
    picked: list[Tile] = []
    seen: dict[tuple[int, ...], int] = {}
    for tile in tiles:
        family = (tile.rows, tile.columns, tile.warp_rows, tile.warp_columns, tile.splits)
        if seen.get(family, 0) < 2:
            seen[family] = seen.get(family, 0) + 1
            picked.append(tile)
        if len(picked) == count:
            break
    return picked


def tune(chosen: list[Convolution], built: list[tuple[Convolution, Tile, str]], args: argparse.Namespace) -> None:
    """Measure what was built and write the tables."""
    clock = Bench()
    table = {arch: dict(entries) for arch, entries in TABLE.items()}
    for shape in chosen:
        data, wanted = clock.operands(shape), None
        found: list[tuple[float, Tile]] = []
        for _, tile, path in (entry for entry in built if entry[0] == shape):
            microseconds, result = clock.measure(shape, tile, path, data)
            wanted = result if wanted is None else wanted
            if not np.abs(result - wanted).max() <= 4e-3 * np.abs(wanted).max():
                print(f"{shape.key}: {tile} disagrees", flush=True)
                continue
            found.append((microseconds, tile))
        record(shape, found, table, args.arch)
    write(args.output, HEADER, {"TABLE": table, "INT8_TABLE": INT8_TABLE})


if __name__ == "__main__":
    sys.exit(main())
