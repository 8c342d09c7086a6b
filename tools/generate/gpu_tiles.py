"""Find the fastest tile for every matrix product of PointPillars and ResNet-50 on this machine's GPU.

    python -m tools.generate.gpu_tiles [--precision fp16|int8] [--arch sm_90] [--tries 60] [--jobs 16] [--seconds 200]
                                       [--only SUBSTRING] [-o FILE]

builds the `tries` most promising tiles (by the model in `compiler.targets.cuda.tiles`) of each shape in parallel,
checks that all give the same result on random data (in int8 the same bytes), times them as graphs of twenty launches,
and rewrites the table: shapes measured now replace their old entries, others stay.  A tile must beat the model's choice
by 1 % to be written.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.environment import tvm
from socsched.compiler.quantize.epilogue import Epilogue, Stored
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.network import quantise
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.targets.cuda import gemm, kernels
from socsched.compiler.targets.cuda.gemm import Bytes
from socsched.compiler.targets.cuda.int8_lower import lower_int8
from socsched.compiler.targets.cuda.lower import lower
from socsched.compiler.targets.cuda.passes import OPTIONS, tir_pipeline
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tile_table import INT8_TABLE, TABLE
from socsched.compiler.targets.cuda.tiles import Convolution, Tile, candidates, estimate, fastest_tile, round_up
from socsched.compiler.targets.cuda.toolkits import supply_cubins, write_cubin
from socsched.errors import MachineError
from socsched.graph.expand import fuse_network
from socsched.models import onnx_import
from tools import ROOT
from tools.bench.gpu_networks import export
from tools.bench.gpu_networks import target as engine_target
from tools.verify.gpu_code import find_nvcc

TABLE_PATH = ROOT / "socsched/compiler/targets/cuda/tile_table.py"
HEADER = '''"""Measured tiles (`tiles.Tile`) by GPU and shape, of bytes in pairs; by tools/generate."""

from __future__ import annotations
'''
Table = dict[str, dict[str, tuple[int, ...]]]
TABLES: dict[str, Table] = {"fp16": TABLE, "int8": INT8_TABLE}
LAUNCHES = 20


def shapes(arch: str, networks: str, precision: str) -> list[Convolution]:
    """Return every distinct product of networks of `network_zoo` (with commas), in int8 with channels in pairs."""
    found: dict[str, Convolution] = {}
    for name in networks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            export(name, file := Path(folder) / f"{name}.onnx")
            network, weights = onnx_import.load(file)
        graph = fuse_network(network)
        if precision == "int8":
            scales = Scales({name: Scale(0.1, False) for name in graph.values})
            lowered = lower_int8(quantise(graph, weights, scales), weights, "sm_80", bound=False)
        else:
            lowered = lower(graph, weights, arch, bound=False)
        for shape, _ in lowered.products:
            found.setdefault(shape.key, shape)
    return list(found.values())


def form_of(shape: Convolution, precision: str) -> Bytes | None:
    """Return the form of an int8 product as behind a ReLU, heads leaving as sums; None of an fp16 one."""
    if precision != "int8":
        return None
    stored = None if shape.planes else Stored("uint8", 0)
    added = (0, 77) if shape.residual else None
    return Bytes(False, Epilogue(stored, 20 if added else 22, shape.relu, added), "uint8" if added else "")


def build(job: tuple[Convolution, Tile, str, str, str]) -> str:
    """Compile one product with one tile to a library; return what went wrong, empty if nothing did."""
    shape, tile, precision, arch, path = job
    form = form_of(shape, precision)
    given = () if form is None else (form,)
    try:
        family = () if form is None else (form.family,)
        functions = {"multiply": schedule(gemm.convolution(shape, tile, *given), tile, *family)}
        if tile.splits > 1:
            functions["finish"] = kernels.spread(gemm.reduction(shape, tile.splits, *given))
        module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
        target = tvm.target.Target(engine_target(arch))

        def cubin(source: str) -> bytes:
            Path(f"{path}.cu").write_text(source)
            write_cubin(find_nvcc(), Path(f"{path}.cu"), Path(f"{path}.cubin"), arch)
            return Path(f"{path}.cubin").read_bytes()

        with supply_cubins(cubin), target, tvm.transform.PassContext(config=OPTIONS):
            tvm.compile(module, target=target, tir_pipeline=tir_pipeline()).export_library(path)
    except Exception as fault:
        return f"{type(fault).__name__}: {str(fault)[:300]}"
    return ""


def tries(shape: Convolution, precision: str, arch: str, count: int) -> list[Tile]:
    """Return the tiles to build for a shape: the known one and its neighbours, the best by the model."""
    tiles = sorted(candidates(shape, arch), key=lambda tile: estimate(shape, tile, arch))
    fields = TABLES[precision].get(arch, {}).get(shape.key)
    near: list[Tile] = []
    if fields is not None:
        known = Tile(*fields)
        near = [known, replace(known, store=8)]
        near += [replace(known, stages=known.stages + step) for step in (-1, 1, 2)]
        near += [replace(known, depth=depth, stages=n) for depth in (32, 64, 128) for n in (2, 3, 4, 5)]
    if shape.planes:
        tiles, near = ([replace(tile, splits=1, store=2) for tile in group] for group in (tiles, near))
    near = [tile for tile in near if tile.fits(shape) and tile.stages > 0 and tile.shared_bytes <= 227 << 10]
    return [tile for tile in dict.fromkeys([*near, *spread(tiles, count)]) if tile.fits(shape)]


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


@cache
def cudart() -> Any:
    """Return the CUDA runtime library; MachineError if it is not installed."""
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MachineError("libcudart.so is not installed", "install the CUDA runtime")


def call(function: str, *arguments: Any) -> None:
    """Call a function of the CUDA runtime; MachineError unless it succeeds."""
    status = getattr(cudart(), function)(*arguments)
    if status:
        raise MachineError(f"CUDA: {function} failed ({status})", "see nvidia-smi and dmesg")


class Bench:
    """Times libraries on a stream of its own, by CUDA's events."""

    def __init__(self, precision: str) -> None:
        self.precision, self.device = precision, tvm.cuda(0)
        self.stream, *self.events = (ctypes.c_void_p() for _ in range(3))
        call("cudaStreamCreateWithPriority", ctypes.byref(self.stream), 1, 0)  # 1: beside the default stream
        for event in self.events:
            call("cudaEventCreate", ctypes.byref(event))

    def operands(self, shape: Convolution) -> dict[str, Any]:
        """Return random operands of a product, the weights unpadded on the host."""
        generator, form = np.random.default_rng(0), form_of(shape, self.precision)
        pixels, total = shape.height * shape.width, shape.total or shape.outputs

        def put(array: Any) -> Any:
            return tvm.runtime.tensor(np.ascontiguousarray(array), device=self.device)

        def noise(rows: int, columns: int) -> Any:
            return generator.integers(0, 256, (rows, columns), np.uint8)

        if form is None:
            return {
                "X": put(generator.normal(size=(pixels, shape.channels)).astype(np.float16)),
                "W": (generator.normal(size=(shape.n, shape.k)) / shape.k**0.5).astype(np.float16),
                "B": put(generator.normal(size=shape.outputs).astype(np.float32)),
                "R": put(generator.normal(size=(shape.pixels, total)).astype(np.float16)),
            }
        table = np.zeros((form.epilogue.rows, shape.outputs), np.int32)
        if form.epilogue.stored is None:
            table[1] = generator.normal(size=shape.outputs).astype(np.float32).view(np.int32)
        else:
            table[1:] = [[-(1 << 20)], [1 << 20], [300]]
        return {
            "X": put(noise(pixels, 2 * shape.channels).view(np.float16)),
            "W": noise(shape.n, 2 * shape.k).view(np.float16),
            "B": put(table),
            "R": put(noise(shape.pixels, total)),
        }

    def measure(self, shape: Convolution, tile: Tile, path: str, data: dict[str, Any]) -> tuple[float, Any]:
        """Return (microseconds, result)."""
        import tvm_ffi

        module, form = tvm.runtime.load_module(path), form_of(shape, self.precision)
        length = round_up(shape.k, tile.depth * tile.splits)
        weight = tvm.runtime.tensor(np.pad(data["W"], ((0, 0), (0, length - shape.k))), device=self.device)
        empty = np.zeros((shape.pixels, shape.total or shape.outputs), form.epilogue.dtype if form else np.float16)
        result = tvm.runtime.tensor(empty, device=self.device)
        more = [data["R"]] if shape.residual else []
        parts = tvm.runtime.empty((tile.splits, shape.m, shape.n), "int32" if form else "float32", self.device)
        multiply, finish = module["multiply"], module["finish"] if tile.splits > 1 else None

        def run() -> None:
            if finish is None:
                multiply(data["X"], weight, data["B"], *more, result)
                return
            multiply(data["X"], weight, parts)
            finish(parts, data["B"], *more, result)

        with tvm_ffi.use_raw_stream(self.device, self.stream.value or 0):
            run()
            microseconds = self.time(run) / LAUNCHES * 1e3
        return microseconds, result.numpy()[:, shape.first : shape.first + shape.outputs]

    def time(self, run: Callable[[], None]) -> float:
        """Return the median milliseconds of a graph of twenty launches."""
        graph, executable, elapsed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        call("cudaStreamSynchronize", self.stream)
        call("cudaStreamBeginCapture", self.stream, 1)  # 1: other threads may go on allocating
        for _ in range(LAUNCHES):
            run()
        call("cudaStreamEndCapture", self.stream, ctypes.byref(graph))
        call("cudaGraphInstantiate", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        times = []
        for _ in range(8):
            call("cudaEventRecord", self.events[0], self.stream)
            call("cudaGraphLaunch", executable, self.stream)
            call("cudaEventRecord", self.events[1], self.stream)
            call("cudaStreamSynchronize", self.stream)
            call("cudaEventElapsedTime", ctypes.byref(elapsed), *self.events)
            times.append(elapsed.value)
        call("cudaGraphExecDestroy", executable)
        call("cudaGraphDestroy", graph)
        return statistics.median(times[1:])


def same(result: Any, wanted: Any) -> bool:
    """Return whether results agree: bytes and sums exactly, halves as far as their sums do in another order."""
    if result.dtype != np.float16:
        return bool(np.array_equal(result, wanted))
    pair = (array.astype(np.float32) for array in (result, wanted))
    found, expected = pair
    return bool(np.abs(found - expected).max() <= 4e-3 * np.abs(expected).max())


def write(path: Path, tables: dict[str, Table]) -> None:
    """Write tables by name as a Python module."""
    lines = [HEADER]
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
    parser.add_argument("--precision", default="fp16", choices=tuple(TABLES))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--tries", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--networks", default="pointpillars,resnet50")
    parser.add_argument("--only", default="", help="part of a shape's name")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop building after this long")
    parser.add_argument("-o", "--output", type=Path, default=TABLE_PATH)
    args = parser.parse_args()
    chosen = [s for s in shapes(args.arch, args.networks, args.precision) if args.only in s.key]
    folder, ranked = tempfile.mkdtemp(), []
    for number, shape in enumerate(chosen):
        picked = enumerate(tries(shape, args.precision, args.arch, args.tries))
        ranked += [(i, (shape, tile, args.precision, args.arch, f"{folder}/{number}-{i}.so")) for i, tile in picked]
    jobs = [job for _, job in sorted(ranked, key=lambda entry: entry[0])]  # the promising ones first
    start, built = time.time(), []
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for job, fault in zip(jobs, pool.imap(build, jobs), strict=False):
            if fault:
                print(f"{job[0].key}: {job[1]}: {fault}", flush=True)
            else:
                built.append(job)
            if time.time() - start > args.seconds:
                pool.terminate()
                break
    print(f"{len(built)} of {len(jobs)} built in {time.time() - start:.0f} s", flush=True)
    clock, tables = (
        Bench(args.precision),
        {name: {arch: dict(rows) for arch, rows in t.items()} for name, t in TABLES.items()},
    )
    for shape in chosen:
        data, wanted, found = clock.operands(shape), None, []
        for _, tile, *_, path in (job for job in built if job[0] == shape):
            microseconds, result = clock.measure(shape, tile, path, data)
            wanted = result if wanted is None else wanted
            if same(result, wanted):
                found.append((microseconds, tile))
            else:
                print(f"{shape.key}: {tile} disagrees", flush=True)
        record(shape, found, tables[args.precision], args.arch)
    write(args.output, {"TABLE": tables["fp16"], "INT8_TABLE": tables["int8"]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
