"""Predict the cycles of aarch64 convolution kernels from their code, in fp32 and in half-precision arithmetic.

    python -m tools.bench.mca_aarch64 [--cpu neoverse-n1] [--dispatch 8] [--mcpu cortex-a78ae] [--mca llvm-mca-19]

A static prediction, no measurement: LLVM's machine code analyser runs the compiled inner loop of every kernel on its
model of a processor with all data in the first-level cache.  `neoverse-n1` is the model of the Cortex-A76 (its server
twin); the Cortex-A78 has the same two vector pipes and latencies.  It dispatches eight micro-operations a cycle
(Neoverse N1 Software Optimization Guide, section 4.1), which LLVM 16 to 19 have too; newer models say three, to guide
the compiler: `--dispatch 3` shows how much depends on that.  `-mcpu=cortex-a76` and `cortex-a78` are refused: LLVM
times them as a Cortex-A57, whose fp32 vector instructions take two steps, so that half precision looks four times as
fast.  Needs llvm-mca 16 or newer (Debian: llvm-19); without it the tool reports that and exits with 0.

Of every PointPillars layer and every way to compute it: the instructions, multiply-adds and cycles of an iteration of
the inner loop; its share of the peak (two vector multiply-adds a cycle); and cycles for 1000 multiply-adds of the
direct convolution, with what surrounds the loop (additions into fp32 totals, by the analyser) and Winograd's transforms
(by their count of vector instructions, `compiler.targets.llvm.half`).  `*` marks what is compiled for fp16.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from socsched.cli.doctor import LLVM_MCA
from socsched.compiler.environment import tvm
from socsched.compiler.targets.llvm import conv_kernels, half, winograd
from socsched.compiler.targets.llvm.half import Layer, Method
from socsched.compiler.targets.llvm.vector import NEON, NEON_HALF, Lying, Order, Vector, Window, tile
from tests.compiler.aarch64_loops import instructions, products

DISPATCH = {"neoverse-n1": 8}
PROBE = [f"fmla v{register}.4s, v0.4s, v1.s[0]" for register in range(8, 24)]
BLOCK = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution: channels, square kernel, stride (that of its output for a transposed one), output size."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    height: int
    width: int
    transposed: bool = False
    count: int = 1

    @property
    def work(self) -> int:
        """Multiply-adds of all such layers as direct convolutions."""
        own = 1 if self.transposed else self.kernel**2
        return self.count * self.height * self.width * self.inputs * self.outputs * own

    def __str__(self) -> str:
        name = "transposed" if self.transposed else "stride"
        size = f"{self.inputs}-{self.outputs}, {self.height}x{self.width}"
        return f"{self.kernel}x{self.kernel} {name} {self.stride} {size}"


SHAPES = (
    Shape(64, 64, 3, 2, 248, 216),
    Shape(64, 64, 3, 1, 248, 216, count=3),
    Shape(64, 128, 3, 2, 124, 108),
    Shape(128, 128, 3, 1, 124, 108, count=5),
    Shape(128, 256, 3, 2, 62, 54),
    Shape(256, 256, 3, 1, 62, 54, count=5),
    Shape(64, 128, 1, 1, 248, 216, transposed=True),
    Shape(128, 128, 2, 2, 248, 216, transposed=True),
    Shape(256, 128, 4, 4, 248, 216, transposed=True),
    Shape(384, 72, 1, 1, 248, 216),
)
"""The layers of PointPillars on the 496 x 432 grid: backbone, neck and heads."""


class Analyser:
    """LLVM's machine code analyser for one processor model."""

    def __init__(self, program: str, cpu: str, dispatch: int = 0) -> None:
        self.program, self.cpu, self.dispatch = program, cpu, dispatch

    def cycles(self, lines: list[str], iterations: int = 200) -> float:
        """Return the cycles of one iteration of straight-line code, branches included; RuntimeError on bad code."""
        if not lines:
            return 0.0
        command = [self.program, "-mtriple=aarch64", f"-mcpu={self.cpu}", "-mattr=+fullfp16"]
        command += [f"-dispatch={self.dispatch}"] if self.dispatch else []
        command += [f"-iterations={iterations}", "-"]
        done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
        found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        if found is None:
            raise RuntimeError(f"{self.program}: {done.stderr.strip()[-500:]}")
        return int(found[1]) / iterations

    @property
    def knows(self) -> bool:
        """Say whether its fp32 multiply-adds on 128 bits are one step each: not so of a Cortex-A57."""
        half = [line.replace("4s", "8h").replace(".s[", ".h[") for line in PROBE]
        return self.cycles(PROBE) < 1.1 * self.cycles(half)


def analyser(program: str | None, cpu: str, dispatch: int = 0) -> Analyser | str:
    """Return an analyser that knows `cpu`, or why there is none."""
    found = [name for name in ([program] if program else LLVM_MCA) if shutil.which(name)]
    if not found:
        return "llvm-mca is not installed: apt-get install llvm-19"
    for name in found:
        candidate = Analyser(name, cpu, dispatch or DISPATCH.get(cpu, 0))
        if candidate.knows:
            return candidate
    return f"{', '.join(found)}: no model of its own for {cpu}; take llvm-mca 16 or newer and neoverse-n1 or cortex-a55"


def ways(shape: Shape) -> Iterator[tuple[Method, Vector]]:
    """Every way to compute a layer, fp32 first."""
    direct = [(Method(0, "float32"), NEON), (Method(0, "float16"), NEON_HALF)]
    if shape.kernel == 3 and shape.stride == 1:
        yield from ((Method(4, "float32"), NEON), (Method(2, "float16"), NEON_HALF))
        yield Method(4, "float16"), NEON_HALF
    yield from direct


def chosen(shape: Shape) -> Method:
    """Return the method the rules choose for fp16."""
    if shape.kernel != 3 or shape.stride != 1:
        return Method(0, "float16")
    choices = [Method(0, "float16"), *(Method(m, t) for m, t in half.WINOGRAD)]
    return half.best(choices, layer_of(shape), NEON_HALF)


def layer_of(shape: Shape) -> Layer:
    """Return a shape as the rules see it."""
    return Layer(shape.inputs, shape.outputs, shape.kernel**2, (shape.height, shape.width))


def kernel(shape: Shape, method: Method, vector: Vector) -> Any:
    """Return the kernel as the rules make it."""
    act = ("relu",)
    scale = shape.stride if shape.transposed else 1
    rows, columns = shape.height // scale, shape.width // scale
    target = Lying(shape.outputs // BLOCK, BLOCK, shape.height, shape.width, 1, dtype=vector.dtype)
    blocks = shape.inputs // BLOCK
    if shape.transposed:
        source = Lying(blocks, BLOCK, rows, columns, 1, dtype=vector.dtype)
        return conv_kernels.conv2d_transpose(source, target, scale, act, tile(vector, target.blocks, columns))
    pad = shape.kernel // 2
    source = Lying(blocks, BLOCK, rows * shape.stride, columns * shape.stride, pad, dtype=vector.dtype)
    if method.m:
        count = winograd.tiles(rows, columns, method.m)
        division = winograd.Division(method.m, *winograd.group(count, target.blocks, vector), method.dtype)
        return winograd.conv2d_winograd(source, target, act, -1, division)
    window = Window((shape.kernel,) * 2, (shape.stride,) * 2, (pad, pad))
    division = tile(vector, target.blocks, columns), Order(1, True)
    return conv_kernels.conv2d(conv_kernels.Convolution(source, target, window, *division), act, -1)


def steps(shape: Shape, method: Method) -> int:
    """Return the number of iterations of the inner loop per execution of the surrounding code."""
    blocks, kernel = shape.inputs // BLOCK, 1 if shape.transposed or method.m else shape.kernel**2
    if method.dtype == "float16":
        return half.runs(blocks * kernel, BLOCK, half.TERMS)[1]
    return shape.kernel if kernel > 1 else blocks


def transforms(shape: Shape, method: Method) -> float:
    """Return Winograd's vector instructions besides the products, an output pixel, input and output channel."""
    if not method.m:
        return 0.0
    layer = layer_of(shape)
    whole = half.instructions(method, layer, NEON_HALF)
    lanes = NEON_HALF.lanes if method.dtype == "float16" else NEON.lanes
    products_only = (method.m + 2) ** 2 / lanes * winograd.tiles(*layer.size, method.m) / (shape.height * shape.width)
    totals = half._WIDENING / half.terms(shape.inputs, 1, BLOCK, half.TERMS) if method.dtype == "float16" else 0.0
    return whole - products_only * (1 + totals)


Prediction = tuple[int, int, float, float, float]
"""Instructions, multiply-adds and cycles of the inner loop, its share of the peak, and cycles a direct multiply-add."""


def predict(shape: Shape, method: Method, vector: Vector, target: Any, mca: Analyser) -> Prediction:
    """Return the prediction for a layer computed by one method."""
    module = tvm.IRModule({"kernel": kernel(shape, method, vector).with_attr("global_symbol", "kernel")})
    loops = products(tvm.compile(module, target=target).mod.inspect_source("asm"))
    loop = max(loops, key=lambda loop: sum("fmla" in line for line in loop.body))
    body = instructions(loop.body)
    lanes = 8 if method.dtype == "float16" else 4
    added = sum("fmla" in line for line in body)
    cycles, around = mca.cycles(body), mca.cycles(instructions(loop.around))
    own = 1 if shape.transposed else shape.kernel**2
    each = own
    if method.m:
        each = (method.m + 2) ** 2 * winograd.tiles(shape.height, shape.width, method.m) / (shape.height * shape.width)
    whole = (cycles + around / steps(shape, method)) / (added * lanes) * each + transforms(shape, method) / 2
    return len(body), added * lanes, cycles, added / 2 / cycles, whole / own


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", default="neoverse-n1", help="the analyser's processor model")
    parser.add_argument("--dispatch", type=int, default=0, help="micro-operations a cycle, by default the processor's")
    parser.add_argument("--mcpu", default="cortex-a78ae", help="processor to compile for, as LLVM calls it")
    parser.add_argument("--mca", help="the analyser, by default the newest llvm-mca found")
    args = parser.parse_args()
    mca = analyser(args.mca, args.cpu, args.dispatch)
    if isinstance(mca, str):
        print(f"skipped: {mca}")
        return 0
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": args.mcpu, "num-cores": 4})
    width = f", {mca.dispatch} micro-operations a cycle" if mca.dispatch else ""
    print(f"{mca.program}, model {mca.cpu}{width}, code for {args.mcpu}: static prediction, not measured")
    loop = f"{'instr.':>6} {'MAC':>5} {'cycles':>7} {'peak':>5}"
    print(f"{'layer':36} {'computed':14} {loop} {'cycles/1000 MAC':>16} {'to fp32':>8}")
    total = {"float32": 0.0, "float16": 0.0}
    for shape in SHAPES:
        best = None
        for method, vector in ways(shape):
            count, macs, cycles, share, each = predict(shape, method, vector, target, mca)
            if method.dtype == "float32":
                best = min(best or each, each)
            if method == chosen(shape):
                total["float16"] += shape.work * each
            assert best is not None
            name = f"{'F(' + str(method.m) + 'x' + str(method.m) + ')' if method.m else 'direct'} {method.dtype[5:]}"
            mark = "*" if method == chosen(shape) else "-" if (method.m, method.dtype) == (4, "float16") else ""
            figures = f"{count:6} {macs:5} {cycles:7.1f} {share:5.2f} {1000 * each:16.1f} {each / best:8.2f}"
            print(f"{shape!s:36} {name:14} {figures} {mark}", flush=True)
        total["float32"] += shape.work * (best or 0.0)
    print(f"all layers of PointPillars: {total['float32'] / 1e6:.0f} million cycles of a core in fp32, ", end="")
    print(f"{total['float16'] / 1e6:.0f} in fp16, ratio {total['float16'] / total['float32']:.2f}")
    print("- not taken: too inaccurate (see compile.cpu.half)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
