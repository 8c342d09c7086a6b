"""Time the GPU kernels of host functions on their own, each function one CUDA graph, launches queued in a row.

    python -m tools.bench.gpu_functions [--arch sm_90a] [--precision fp16]

Needs an NVIDIA GPU and nvcc, neither TVM nor PyTorch.  Scans are synthetic ones of KITTI's size, maps random with a few
hundred cells above the threshold.  Medians in microseconds.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.cuda.cuda_api import Stream
from socsched.compiler.targets.cuda.driver import Memory
from socsched.compiler.targets.cuda.function_run import GpuFunction
from socsched.descriptor.pipeline import Stage
from tools.bench.gpu_clock import Clock
from tools.bench.host_stages import synthetic_scan

MODELS = (
    "pointpillars.voxelise",
    "centerpoint.voxelise",
    "pointpillars.decode",
    "centerpoint.decode",
    "camera.preprocess",
    "camera.decode",
)


def inputs_of(function: GpuFunction) -> list[np.ndarray[Any, Any]]:
    """Return random inputs."""
    rng, made = np.random.default_rng(1), []
    for number, kind in enumerate(function.inputs):
        if kind.shape[0] < 0:
            made.append(np.ascontiguousarray(synthetic_scan(), np.float32))
        elif kind.dtype == "uint8":
            made.append(rng.integers(0, 256, kind.shape, np.uint8))
        else:
            shift = -4.0 if number == 0 else 0.0
            made.append(rng.normal(shift, 0.6, physical_shape(kind)).astype(NUMPY_DTYPES[kind.dtype]))
    return made


def microseconds(function: GpuFunction) -> float:
    """Return the median time of a function's kernels."""
    arrays, stream = inputs_of(function), Stream()
    given = [Memory(array.nbytes) for array in arrays]
    for memory, array in zip(given, arrays, strict=True):
        memory.write(array)
    sizes = [(physical_shape(t), np.dtype(NUMPY_DTYPES[t.dtype]).itemsize) for t in function.outputs]
    made = [Memory(int(np.prod(shape)) * size) for shape, size in sizes]
    rows = next((len(a) for a, t in zip(arrays, function.inputs, strict=True) if t.shape[0] < 0), 0)
    scratch, places = function.reserve(rows), ([m.address for m in given], [m.address for m in made])
    bound = function.bind(*places, scratch, rows)
    bound.launch(stream)
    stream.synchronize()
    stream.begin_capture()
    bound.launch(stream)
    graph = stream.end_capture()
    return Clock(stream).milliseconds(lambda: graph.launch(stream), inner=10) * 1e3


def main() -> int:
    """Print a line for each function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    args = parser.parse_args()
    engine = SimpleNamespace(id="gpu", kind="gpu", target={"kind": "cuda", "arch": args.arch})
    for model in MODELS:
        artifact = compile_stage(Stage(model, model, model), engine, args.precision)  # type: ignore[arg-type]
        print(f"{model:24} {args.precision} {microseconds(GpuFunction(artifact)):8.1f} us", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
