"""Run the CUDA lowering of every PointPillars network stage on this machine's GPU and compare it with the CPU lowering.

    python -m tools.verify.cuda [--arch sm_90] [--pillars 6000]

needs an NVIDIA GPU, its driver, nvcc and a C++ compiler.  Inputs are random; a stage fails when an output differs from
the CPU's fp32 result by more than the tolerance of its precision, relative to the largest output.  Times are for
information (tools/bench/gpu.py measures): fp16 by the rules, fp32 by general schedules.  Exit code 1 when a stage
fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from types import SimpleNamespace

os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")

import numpy as np

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.targets.cuda.passes import build_executable
from socsched.descriptor.pipeline import Stage
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights

STAGES = ("pfn", "scatter", "backbone", "head")
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}


def inputs(name: str, pillars: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return random inputs of a stage in port order."""
    cells = rng.choice(432 * 496, pillars, replace=False)
    coords = np.stack([cells % 432, cells // 432], 1).astype(np.int32)
    if name == "pfn":
        counts = rng.integers(1, 33, pillars).astype(np.int32)
        voxels = rng.normal(size=(pillars, 32, 4)).astype(np.float32)
        voxels[np.arange(32)[None] >= counts[:, None]] = 0
        return [voxels, counts, coords]
    if name == "scatter":
        return [rng.random((pillars, 64), np.float32), coords]
    shape = {"backbone": (1, 64, 496, 432), "head": (1, 384, 248, 216)}[name]
    values = rng.random(shape, np.float32)
    return [values * (rng.random(shape, np.float32) < 0.1)]


def reference(name: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the stage's fp32 outputs by the CPU lowering, in plain layout."""
    host = SimpleNamespace(id="cpu", kind="cpu", target={"kind": "llvm", "host": True})
    stage = load(compile_stage(Stage(name, name, f"pointpillars.{name}"), host, "fp32"))
    given = [convert(a, _plain(t, a), t) for a, t in zip(arrays, stage.inputs, strict=True)]
    found = zip(stage(*given), stage.outputs, strict=True)
    return [convert(array, t, TensorType(t.shape, t.dtype, _layout(t.shape))) for array, t in found]


def _plain(tensor: TensorType, array: np.ndarray) -> TensorType:
    return TensorType(array.shape, tensor.dtype, _layout(array.shape))


def _nchw(array: np.ndarray, tensor: TensorType) -> np.ndarray:
    return convert(array, tensor, TensorType(tensor.shape, tensor.dtype, _layout(tensor.shape)))


def _layout(shape: tuple[int, ...]) -> str:
    return "NCHW" if len(shape) == 4 else ""


def on_gpu(executable: object, arrays: list[np.ndarray], repeats: int = 10) -> tuple[list[np.ndarray], float]:
    """Return the outputs of an executable on the first GPU and the median time of a call in ms."""
    device = tvm.cuda(0)
    function = relax.VirtualMachine(executable, device)["main"]
    given = [tvm.runtime.tensor(array, device=device) for array in arrays]
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        found = function(*given)
        device.sync()
        times.append((time.perf_counter() - start) * 1e3)
    outputs = [found] if hasattr(found, "numpy") else list(found)
    return [output.numpy() for output in outputs], statistics.median(times[2:])


def main() -> int:
    """Compare stage by stage and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--pillars", type=int, default=6000)
    args = parser.parse_args()
    gpu = {"kind": "cuda", "arch": args.arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    if not tvm.cuda(0).exist:
        print("no CUDA device: TVM sees no GPU (driver, libcudart.so.13)", file=sys.stderr)
        return 3
    failed = 0
    for name in STAGES:
        model = get_model(f"pointpillars.{name}", {})
        network = model.network()
        weights = draw_weights(network, 0)
        rng = np.random.default_rng(0)
        arrays = inputs(name, args.pillars, rng)
        expected = reference(name, arrays)
        for precision in ("fp32", "fp16"):
            cast = [a.astype(np.float16) if precision == "fp16" and a.dtype == np.float32 else a for a in arrays]
            start = time.perf_counter()
            built = build_executable(network, weights, gpu, precision)
            seconds = time.perf_counter() - start
            given = [convert(a, _plain(t, a), t) for a, t in zip(cast, built.inputs, strict=True)]
            lying, median = on_gpu(built.executable, given)
            found = [_nchw(array, t) for array, t in zip(lying, built.outputs, strict=True)]
            error = max(
                float(np.abs(f.astype(np.float64) - e).max() / max(np.abs(e).max(), 1e-30))
                for f, e in zip(found, expected, strict=True)
            )
            good = error <= TOLERANCE[precision]
            failed += not good
            line = f"{name:9} {precision}  error {error:.1e}  {median:8.3f} ms  built in {seconds:5.1f} s"
            print(f"{line}  {'ok' if good else 'FAILED'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
