"""Compare compiled networks with ONNX Runtime on this machine, fp32: PointPillars, ResNet-18/50, MobileNetV2, a YOLO.

Both run the same dense random weights and inputs in the same process with the same number of threads, call by call in
turns, so that a busy machine slows both.  Each thread count gets a process of its own, since thread pools are set up
once.  Prints medians, minima, the ratio of the medians (below 1: ours is faster) and the largest difference of the
outputs relative to the largest output.

PointPillars is PFN + scatter + backbone + neck + heads of one frame, as four stages with us and as one model in ONNX
Runtime, which is given the decorated pillar features for free.  The cold line is the compilation of all four stages
into an empty cache, the warm one loading them from it.

    python -m tools.bench.lowering [--threads 1,4] [--repeat 21] [--networks pointpillars,resnet50] [--layers]

`--layers` adds every kernel of PointPillars with its GFLOP/s against the multiply-add peak measured in the same run
(Winograd layers, counted as direct ones, can exceed it).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Call = Callable[[], list[Array]]

PILLARS, SLOTS = 6000, 32


def main() -> None:
    """Measure one thread count, or start a process for each of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}", help="thread counts, comma separated")
    parser.add_argument("--repeat", type=int, default=21, help="timed calls of each")
    parser.add_argument("--networks", default="pointpillars,resnet18,resnet50,mobilenetv2,yolo")
    parser.add_argument("--layers", action="store_true", help="also every kernel of PointPillars")
    options = parser.parse_args()
    counts = options.threads.split(",")
    if len(counts) > 1:
        rest = ["--repeat", str(options.repeat), "--networks", options.networks, *["--layers"] * options.layers]
        for count in counts:
            subprocess.run([sys.executable, "-m", "tools.bench.lowering", "--threads", count, *rest], check=True)
        return
    os.environ["TVM_NUM_THREADS"] = counts[0]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SOCSCHED_CACHE"] = folder
        measure(int(counts[0]), options, Path(folder))


def measure(threads: int, options: argparse.Namespace, folder: Path) -> None:
    """Print a line a network."""
    print(f"{threads} thread(s), {options.repeat} calls each, multiply-add peak {peak():.0f} GFLOP/s a core; ms")
    heads = ("ours median", 13), ("min", 9), ("ORT median", 12), ("min", 9), ("ratio", 8), ("difference", 12)
    print("network".ljust(14) + "".join(head.rjust(width) for head, width in heads))
    for name in options.networks.split(","):
        ours, theirs = pointpillars(threads) if name == "pointpillars" else from_file(name, threads, folder)
        pairs = list(zip(ours(), theirs(), strict=True))
        difference = max(float(np.abs(a.reshape(b.shape) - b).max() / np.abs(b).max()) for a, b in pairs)
        times = alternate({"ours": ours, "ORT": theirs}, options.repeat)
        show(name, times, difference)
    if options.layers:
        layers(threads, options.repeat)


def show(name: str, times: dict[str, list[float]], difference: float) -> None:
    """Print one line of the table."""
    medians = {engine: float(np.median(values)) * 1e3 for engine, values in times.items()}
    least = {engine: min(values) * 1e3 for engine, values in times.items()}
    line = f"{name:14}{medians['ours']:13.2f}{least['ours']:9.2f}{medians['ORT']:12.2f}{least['ORT']:9.2f}"
    print(line + f"{medians['ours'] / medians['ORT']:8.2f}{difference:12.1e}", flush=True)


def alternate(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, list[float]]:
    """Return `repeat` durations (s) of each call, taken in turns after two rounds of warm-up.

    The pause lets the other's worker threads, which spin for a while after each call, go to sleep.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeat + 2):
        for name, call in calls.items():
            time.sleep(0.1)
            call()  # brings weights back into the caches that the other has filled
            start = time.perf_counter()
            call()
            if round_ > 1:
                times[name].append(time.perf_counter() - start)
    return times


def peak() -> float:
    """Return the GFLOP/s of one core on multiply-adds that stay in registers, the best of five runs."""
    from socsched.compiler.environment import tvm
    from socsched.compiler.loading.aligned import empty
    from socsched.compiler.target import resolve
    from socsched.compiler.targets.llvm import conv_kernels
    from socsched.compiler.targets.llvm.processor import vector_unit
    from socsched.compiler.targets.llvm.vector import Lying, Order, Window, tile

    spec = resolve({"kind": "llvm", "host": True})
    vector = vector_unit(spec)
    chosen = tile(vector, 4, 240)
    block, pixels = vector.block, chosen.pixels
    rows = 128
    source, target = Lying(8, block, rows, pixels, 0), Lying(chosen.blocks, block, rows, pixels, 0)
    kernel = conv_kernels.conv2d(source, target, Window((1, 1)), (), -1, chosen, Order())
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    run = tvm.compile(module, target=tvm.target.Target(dict(spec.tvm)))["main"]
    shapes = (source.shape, (chosen.blocks, 8, 1, 1, block, block), (chosen.blocks, block), (1, 1, 1, 1), target.shape)
    operands = [tvm.runtime.from_dlpack(empty(shape, np.dtype(np.float32))) for shape in shapes]
    pool = tvm.get_global_func("runtime.config_threadpool")
    pool(1, 1)
    flops, best = 2 * rows * pixels * chosen.blocks * block * 8 * block, 0.0
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(300):
            run(*operands)
        best = max(best, flops * 300 / (time.perf_counter() - start) / 1e9)
    pool(1, int(os.environ["TVM_NUM_THREADS"]))
    return best


def host_stage(name: str, model: str, params: dict[str, Any], threads: int) -> Any:
    """Return a stage compiled for this machine and loaded, and the layouts it wants."""
    from socsched.compiler.builder import compile_stage
    from socsched.compiler.loading.stages import load
    from socsched.descriptor.catalog import get_platform
    from socsched.descriptor.pipeline import Stage

    return load(
        compile_stage(Stage(name, name, model, params=params), get_platform("host").engines[0], "fp32", None, threads)
    )


def plain(results: Any, stage: Any) -> list[Array]:
    """Return a stage's outputs in NCHW."""
    from dataclasses import replace

    from socsched.compiler.layouts import convert

    pairs = zip(results, stage.outputs, strict=True)
    return [convert(a, t, replace(t, layout="NCHW")) if len(t.shape) == 4 else a for a, t in pairs]


def from_file(name: str, threads: int, folder: Path) -> tuple[Call, Call]:
    """Return calls of a network from an ONNX file: ours and ONNX Runtime's."""
    from socsched.compiler.layouts import convert
    from socsched.graph.operators import TensorType
    from tools.bench.reference_networks import NETWORKS

    path = NETWORKS[name](folder / f"{name}.onnx")
    session = onnx_session(path.read_bytes(), threads)
    source = session.get_inputs()[0]
    image = np.random.default_rng(0).standard_normal(source.shape).astype(np.float32)
    stage = host_stage(name, "onnx", {"file": str(path)}, threads)
    given = convert(image, TensorType(image.shape, "fp32", "NCHW"), stage.inputs[0])
    return lambda: plain(stage(given), stage), lambda: session.run(None, {source.name: image})


STAGES = ("pfn", "scatter", "backbone", "head")


def pointpillars(threads: int) -> tuple[Call, Call]:
    """Return calls of the whole network on one random frame: our stages, and one ONNX model; prints compile times."""
    start = time.perf_counter()
    stages = {name: host_stage(name, f"pointpillars.{name}", {}, threads) for name in STAGES}
    cold = time.perf_counter() - start
    start = time.perf_counter()
    stages = {name: host_stage(name, f"pointpillars.{name}", {}, threads) for name in STAGES}
    print(f"pointpillars compiled in {cold:.1f} s, loaded from the cache in {time.perf_counter() - start:.2f} s")
    voxels, counts, coords, decorated = frame()

    def ours() -> list[Array]:
        (features,) = stages["pfn"](voxels, counts, coords)
        (canvas,) = stages["scatter"](features, coords)
        (neck,) = stages["backbone"](canvas)
        return plain(stages["head"](neck), stages["head"])

    session = onnx_session(pointpillars_onnx(), threads)
    cells = np.stack([np.zeros(PILLARS), coords[:, 1], coords[:, 0]], 1).astype(np.int64)
    given = {"decorated": decorated, "cells": cells}
    return ours, lambda: session.run(None, given)


def frame() -> tuple[Array, Array, Array, Array]:
    """Return voxels [P, S, 4], counts, coordinates and the decorated features [P, S, 9] of a random frame."""
    from socsched.compiler.loading.aligned import empty
    from socsched.models.pointpillars.grid import KITTI

    generator = np.random.default_rng(0)
    counts = generator.integers(1, SLOTS + 1, PILLARS).astype(np.int32)
    cells = generator.choice(432 * 496, PILLARS, replace=False)
    coords = np.stack([cells % 432, cells // 432], 1).astype(np.int32)
    filled = (np.arange(SLOTS) < counts[:, None])[:, :, None]
    voxels = empty((PILLARS, SLOTS, 4), np.dtype(np.float32))
    voxels[...] = generator.normal(scale=20, size=voxels.shape) * filled
    mean = voxels[:, :, :3].sum(1, keepdims=True) / counts[:, None, None]
    centre = (coords + 0.5) * KITTI.pillar[0] + np.asarray(KITTI.low[:2])
    offsets = (voxels[:, :, :3] - mean, voxels[:, :, :2] - centre[:, None])
    decorated = (np.concatenate([voxels, *offsets], axis=2) * filled).astype(np.float32)
    return voxels, counts, coords, decorated


def pointpillars_onnx() -> bytes:
    """Return PFN, scatter, backbone, neck and heads as one ONNX model with the weights our stages have."""
    from onnx import TensorProto, helper, numpy_helper

    from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network
    from socsched.models.weights import draw_weights

    pfn, *images = networks = (pfn_network(SLOTS), backbone_network(), head_network())
    weights = {k: v for network in networks for k, v in draw_weights(network, 0).items()}
    weights["pfn.kernel"] = np.ascontiguousarray(weights.pop("pfn.weight").T)
    constants = {**weights, "empty": np.zeros((1, 496, 432, 64), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["decorated", "pfn.kernel"], ["product"]),
        helper.make_node("Add", ["product", "pfn.bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["rectified"]),
        helper.make_node("ReduceMax", ["rectified"], ["features"], axes=[1], keepdims=0),
        helper.make_node("ScatterND", ["empty", "cells", "features"], ["canvas_nhwc"]),
        helper.make_node("Transpose", ["canvas_nhwc"], [next(iter(images[0].inputs))], perm=[0, 3, 1, 2]),
        *(onnx_node(layer, weights) for network in images for layer in network.layers),
    ]
    assert pfn.outputs == ("features",) and tuple(images[1].inputs) == images[0].outputs
    inputs = {"decorated": (TensorProto.FLOAT, [PILLARS, SLOTS, 9]), "cells": (TensorProto.INT64, [PILLARS, 3])}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in images[1].outputs],
        [numpy_helper.from_array(array, key) for key, array in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())


def onnx_node(layer: Any, weights: dict[str, Array]) -> Any:
    """Return the ONNX node of a layer of these networks."""
    from onnx import helper

    inputs, attrs = [*layer.inputs, *layer.weights.values()], {}
    if layer.op in ("conv2d", "conv2d_transpose"):
        kernel = weights[layer.weights["weight"]].shape[2:]
        attrs = {"kernel_shape": kernel, "strides": [layer.attrs["stride"]] * 2}
        attrs["pads"] = [layer.attrs.get("padding", 0)] * 4
    elif layer.op == "concat":
        attrs = {"axis": layer.attrs["axis"]}
    name = {"conv2d": "Conv", "conv2d_transpose": "ConvTranspose", "relu": "Relu", "concat": "Concat"}[layer.op]
    return helper.make_node(name, inputs, [layer.name], **attrs)


def onnx_session(model: bytes, threads: int) -> Any:
    """Return an ONNX Runtime session with `threads` threads, all other settings by default."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def layers(threads: int, repeat: int) -> None:
    """Print every kernel of backbone and head: median ms, GFLOP/s counted as direct convolution."""
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.layouts import physical_shape
    from socsched.compiler.target import resolve
    from socsched.compiler.targets.llvm.fuse import fuse
    from socsched.compiler.targets.llvm.lower import lower
    from socsched.compiler.targets.llvm.processor import vector_unit
    from socsched.graph.counting import operators
    from socsched.graph.expand import fuse_network
    from socsched.models.pointpillars.network import backbone_network, head_network
    from socsched.models.weights import draw_weights

    spec = resolve({"kind": "llvm", "host": True})
    for network in (backbone_network(), head_network()):
        graph = fuse_network(network)
        lowered = lower(graph, draw_weights(network, 0), vector_unit(spec))
        machine = relax.VirtualMachine(relax.build(lowered.module, tvm.target.Target(dict(spec.tvm))), tvm.cpu())
        times, current = instrument(machine), []
        given = [
            tvm.runtime.tensor(np.random.default_rng(0).random(physical_shape(t), np.float32)) for t in lowered.inputs
        ]
        for _ in range(repeat):
            times.clear()
            machine["main"](*given)
            current.append(list(times))
        flops = [o.flops for o in operators(fuse(graph), "fp32") if o.flops and o.kind.startswith("conv")]
        merged = len([n for n, _ in current[0] if n.startswith("conv")]) < len(flops)
        work = iter([sum(flops)] if merged else flops)  # a head's convolutions are one kernel
        print(f"\n{network.name}, {threads} thread(s)")
        for index, (name, _) in enumerate(current[0]):
            ms = float(np.median([run[index][1] for run in current])) * 1e3
            rate = f"{next(work) / ms / 1e6:8.0f} GFLOP/s" if name.startswith("conv") else ""
            print(f"  {name:24}{ms:9.3f} ms{rate}")


def instrument(machine: Any) -> list[tuple[str, float]]:
    """Return a list that fills with (kernel, seconds) while the machine runs."""
    done: list[tuple[str, float]] = []
    began = [0.0]

    def note(function: Any, name: str, before: bool, result: Any, *rest: Any) -> int:
        if before:
            began[0] = time.perf_counter()
        elif not name.startswith("vm."):
            done.append((name, time.perf_counter() - began[0]))
        return 0

    machine.set_instrument(note)
    return done


if __name__ == "__main__":
    main()
