"""Count the operators of well-known networks that the GPU rules take, and compile their fp16 code with nvcc.

    python -m tools.verify.gpu_coverage [--arch sm_87] [--only mobilenetv2] [--run]

A row for each network: its operators before and after fusion, those with a rule, the share of multiply-adds that
products and depthwise convolutions with a rule compute, the kernels, the largest number of registers a thread, and the
reasons for operators left to TVM's general schedules.  Needs no GPU.  With --run, on a machine with one, also the time
of a CUDA graph and the largest difference from the processor in fp32, relative to the largest output.  Exit code 1
where a kernel uses a stack or spills or a result is wrong, 3 without nvcc.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

from socsched.compiler.layouts import physical_shape
from socsched.compiler.passes.fusion import read
from socsched.compiler.passes.relax_import import import_network
from socsched.compiler.targets.cuda.fuse import fuse
from socsched.compiler.targets.cuda.nvcc import device_source, find_nvcc
from socsched.compiler.targets.cuda.passes import build_executable
from socsched.compiler.targets.cuda.rules import unruled
from socsched.errors import MachineError
from socsched.graph.fusion import Graph, Group
from socsched.models.onnx_import import load
from tools.bench.reference_networks import NETWORKS

TOLERANCE = 3e-2
"""Largest error of --run: networks of up to 125 operators with fp16 activations between them."""


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_87", help="architecture, sm_80 or later")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="these networks")
    parser.add_argument("--run", action="store_true", help="also run on this machine's GPU")
    args = parser.parse_args()
    try:
        find_nvcc()
    except MachineError as missing:
        print(f"{missing}: {missing.hint}", file=sys.stderr)
        return 3
    print(f"{'network':14} operators  fused  with rule  multiply-adds  kernels  registers")
    with tempfile.TemporaryDirectory() as folder:
        fits = [_fits(name, args.arch, Path(folder)) for name in args.only]
        if args.run:
            fits += [_runs(name, args.arch, Path(folder)) for name in args.only]
    return 0 if all(fits) else 1


def _fits(name: str, arch: str, folder: Path) -> bool:
    network, weights = load(NETWORKS[name](folder / f"{name}.onnx"))
    graph = read(import_network(network), network)
    fused = fuse(graph)
    alone = unruled(fused)
    work = {group.output: _products(fused, group) for group in fused.groups}
    ruled = sum(count for output, count in work.items() if output not in alone) / max(sum(work.values()), 1)
    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    source = folder / f"{name}.cu"
    source.write_text(device_source(build_executable(network, weights, target, "fp16").executable.mod))
    command = [find_nvcc(), f"-arch={arch}", "-Xptxas", "-v", "-cubin", "-o", str(folder / "cubin"), str(source)]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    kernels = report.count("Compiling entry function")
    clean = report.count("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == kernels
    registers = max(int(count) for count in re.findall(r"Used (\d+) registers", report))
    counts = f"{len(graph.groups):9}  {len(fused.groups):5}  {len(fused.groups) - len(alone):9}"
    print(f"{name:14} {counts}  {ruled:13.2%}  {kernels:7}  {registers:9}{'' if clean else '  stack or spills'}")
    for reason in dict.fromkeys(alone.values()):
        print(f"    {list(alone.values()).count(reason)} x {reason}")
    return clean


def _runs(name: str, arch: str, folder: Path) -> bool:
    import numpy as np

    from tools.bench import gpu_common, gpu_int8

    network, weights = load(NETWORKS[name](folder / f"{name}.onnx"))
    stage, _ = gpu_common.stage_of(network, weights, arch)
    generator = np.random.default_rng(5)
    drawn = {n: generator.standard_normal(t.shape).astype(np.float16) for n, t in network.inputs.items()}
    found = gpu_int8.on(stage, drawn)
    wanted = gpu_int8.on_processor(network, weights, {n: array.astype(np.float32) for n, array in drawn.items()})
    error = max(
        float(np.abs(f.astype(np.float32) - w).max() / np.abs(w).max()) if np.isfinite(f).all() else float("inf")
        for f, w in zip(found, wanted, strict=True)
    )
    ready = stage.captured(*(physical_shape(t) for t in stage.inputs))
    ms = gpu_common.Clock(stage._stream).milliseconds(lambda: stage.launch(ready), 40)
    print(f"{name:14} {ms:.4f} ms, largest error {error:.1e}{'' if error <= TOLERANCE else '  WRONG'}", flush=True)
    return error <= TOLERANCE


def _products(graph: Graph, group: Group) -> int:
    """Return the multiply-adds of an operator, 0 for those without products."""
    shape, a = graph.values[group.output].shape, group.attrs
    if group.kind in ("conv2d", "conv2d_transpose"):
        taps = 1 if group.kind == "conv2d_transpose" else a["kernel_h"] * a["kernel_w"]
        return int(prod(shape) * taps * a["in_channels"] / a["groups"])
    return int(prod(shape) * a["in_channels"]) if group.kind in ("dense", "matmul") else 0


if __name__ == "__main__":
    sys.exit(main())
