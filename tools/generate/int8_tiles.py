"""Find the fastest tile for every int8 matrix product of PointPillars and ResNet-50 on this machine's GPU.

    python -m tools.generate.int8_tiles [--arch sm_90] [--tries 40] [--jobs 16] [--only SUBSTRING] [--seconds 200]
                                         [-o FILE]

does for int8 what gpu_tiles.py does for fp16: builds the most promising tiles of each shape in parallel, checks that
all give the same bytes, times them as graphs of twenty launches, and rewrites the table of int8 tiles.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import replace
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
from socsched.compiler.targets.cuda.nvcc import find_nvcc, supply_cubins, write_cubin
from socsched.compiler.targets.cuda.passes import OPTIONS, tir_pipeline
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tile_table import INT8_TABLE, TABLE
from socsched.compiler.targets.cuda.tiles import Convolution, Tile, candidates, estimate, round_up
from socsched.graph.expand import fuse_network
from tools.bench import gpu_common as bench
from tools.generate import gpu_tiles


def shapes(networks: str) -> list[Convolution]:
    """Return every distinct product of the networks, channels in pairs of bytes."""
    found: dict[str, Convolution] = {}
    known = {"pointpillars": bench.pointpillars, "resnet50": bench.resnet50}
    for network in (known[name]() for name in networks.split(",")):
        graph, zeros = fuse_network(network), bench.random_weights(network)
        scales = Scales({name: Scale(0.1, False) for name in graph.values})
        for shape, _ in lower_int8(quantise(graph, zeros, scales), zeros, "sm_80", bound=False).products:
            found.setdefault(shape.key, shape)
    return list(found.values())


def form_of(shape: Convolution) -> Bytes:
    """Return the form of a product as behind a ReLU; heads leave as sums."""
    stored = None if shape.planes else Stored("uint8", 0)
    added = (0, 77) if shape.residual else None
    return Bytes(False, Epilogue(stored, 20 if added else 22, shape.relu, added), "uint8" if added else "")


def build(job: tuple[Convolution, Tile, str, str]) -> str:
    """Compile one product with one tile to a library; return what went wrong, empty if nothing did."""
    shape, tile, arch, path = job
    form = form_of(shape)
    try:
        functions = {"multiply": schedule(gemm.convolution(shape, tile, form), tile, form.family)}
        if tile.splits > 1:
            functions["finish"] = kernels.spread(gemm.reduction(shape, tile.splits, form))
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
    """Return the tiles to build for a shape: the known tile, the best by the model, every patch."""
    known = INT8_TABLE.get(arch, {}).get(shape.key)
    near = [Tile(*known)] if known else []
    tiles = sorted(candidates(shape, arch), key=lambda tile: estimate(shape, tile, arch))
    if shape.planes:
        tiles = [replace(tile, splits=1, store=2) for tile in tiles]
    chosen = [*near, *gpu_tiles.spread(tiles, count)]
    return [tile for tile in dict.fromkeys(chosen) if tile.fits(shape)]


class Bench(gpu_tiles.Bench):
    """Times int8 libraries on one stream."""

    def operands(self, shape: Convolution) -> dict[str, Any]:
        """Return random operands of a product, the weights unpadded on the host."""
        generator, form = np.random.default_rng(0), form_of(shape)

        def put(array: Any) -> Any:
            return tvm.runtime.tensor(np.ascontiguousarray(array), device=self.device)

        def noise(rows: int, columns: int) -> Any:
            return generator.integers(0, 256, (rows, columns), np.uint8)

        table = np.zeros((form.epilogue.rows, shape.outputs), np.int32)
        if form.epilogue.stored is None:
            table[1] = generator.normal(size=shape.outputs).astype(np.float32).view(np.int32)
        else:
            table[1:] = [[-(1 << 20)], [1 << 20], [300]]
        return {
            "X": put(noise(shape.height * shape.width, 2 * shape.channels).view(np.float16)),
            "W": noise(shape.n, 2 * shape.k).view(np.float16),
            "B": put(table),
            "R": put(noise(shape.pixels, shape.total or shape.outputs)),
        }

    def measure(self, shape: Convolution, tile: Any, path: str, data: dict[str, Any]) -> tuple[float, Any]:
        """Return (microseconds, result)."""
        import tvm_ffi

        module, epilogue = tvm.runtime.load_module(path), form_of(shape).epilogue
        splits = tile.splits
        length = round_up(shape.k, tile.depth * splits)
        weight = tvm.runtime.tensor(np.pad(data["W"], ((0, 0), (0, length - shape.k))), device=self.device)
        empty = np.zeros((shape.pixels, shape.total or shape.outputs), epilogue.dtype)
        result = tvm.runtime.tensor(empty, device=self.device)
        more = [data["R"]] if shape.residual else []
        parts = tvm.runtime.empty((splits, shape.m, shape.n), "int32", self.device) if splits > 1 else None
        multiply, finish = module["multiply"], module["finish"] if splits > 1 else None

        def run() -> None:
            if finish is None:
                multiply(data["X"], weight, data["B"], *more, result)
                return
            multiply(data["X"], weight, parts)
            finish(parts, data["B"], *more, result)

        with tvm_ffi.use_raw_stream(self.device, self.stream.handle.value or 0):
            run()
            self.stream.synchronize()
            self.stream.begin_capture()
            for _ in range(20):
                run()
            graph = self.stream.end_capture()
            found = self.clock.milliseconds(lambda: graph.launch(self.stream), 7, 1) / 20 * 1e3
        return found, result.numpy()


def main() -> int:
    """Sweep and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--tries", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--networks", default="pointpillars,resnet50")
    parser.add_argument("--only", default="", help="part of a shape's name")
    parser.add_argument("--seconds", type=float, default=200, help="stop building after this long")
    parser.add_argument("-o", "--output", type=Path, default=gpu_tiles.TABLE_PATH)
    args = parser.parse_args()
    chosen = [shape for shape in shapes(args.networks) if args.only in shape.key]
    folder, jobs = tempfile.mkdtemp(), []
    for number, shape in enumerate(chosen):
        picked = enumerate(tries(shape, args.arch, args.tries))
        jobs += [(i, (shape, tile, args.arch, f"{folder}/{number}-{i}.so")) for i, tile in picked]
    jobs.sort(key=lambda entry: entry[0])  # the promising ones first
    start, built = time.time(), []
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for (_, job), fault in zip(jobs, pool.imap(build, [job for _, job in jobs]), strict=False):
            if fault:
                print(f"{job[0].key}: {job[1]}: {fault}", flush=True)
            else:
                built.append(job)
            if time.time() - start > args.seconds:
                pool.terminate()
                break
    print(f"{len(built)} of {len(jobs)} built in {time.time() - start:.0f} s", flush=True)
    tiles = {arch: dict(entries) for arch, entries in INT8_TABLE.items()}
    clock = Bench()
    for shape in chosen:
        data, wanted, found = clock.operands(shape), None, []
        for _, tile, _, path in (job for job in built if job[0] == shape):
            try:
                microseconds, result = clock.measure(shape, tile, path, data)
            except RuntimeError as fault:
                print(f"{shape.key}: {tile}: {str(fault)[:200]}", flush=True)
                continue
            wanted = result if wanted is None else wanted
            if np.array_equal(result, wanted):
                found.append((microseconds, tile))
            else:
                print(f"{shape.key}: {tile} disagrees", flush=True)
        gpu_tiles.record(shape, found, tiles, args.arch)
    gpu_tiles.write(args.output, gpu_tiles.HEADER, {"TABLE": TABLE, "INT8_TABLE": tiles})
    return 0


if __name__ == "__main__":
    sys.exit(main())
