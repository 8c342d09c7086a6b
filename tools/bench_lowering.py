"""Compare compiled PointPillars stages with ONNX Runtime on this machine: backbone with neck, head, and both, in fp32.

Both run the same weights and input in the same process, alternating call by call, so that a busy machine slows both.
Each thread count gets a process of its own, since thread pools are set up once.  Prints medians, minima, the ratio of
the medians (below 1: ours is faster) and the largest difference of the outputs.  Needs onnx and onnxruntime beside
socsched:

    pip install onnx onnxruntime
    python tools/bench_lowering.py [--threads 1,4] [--repeat 11] [--size 496x432]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from socsched.graph.network import Layer, Network

Array = np.ndarray[Any, Any]


def main() -> None:
    """Measure one thread count, or start a process for each of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,4", help="thread counts, comma separated")
    parser.add_argument("--repeat", type=int, default=11, help="timed calls of each")
    parser.add_argument("--size", default="496x432", help="canvas, height x width, multiples of 8")
    options = parser.parse_args()
    counts = options.threads.split(",")
    if len(counts) > 1:
        for count in counts:
            arguments = ["--threads", count, "--repeat", str(options.repeat), "--size", options.size]
            subprocess.run([sys.executable, __file__, *arguments], check=True)
        return
    os.environ["TVM_NUM_THREADS"] = counts[0]
    ny, nx = map(int, options.size.split("x"))
    measure(int(counts[0]), options.repeat, ny, nx)


def measure(threads: int, repeat: int, ny: int, nx: int) -> None:
    """Print a line for the backbone, the head and both."""
    from socsched.models.pointpillars.network import backbone_network, head_network
    from socsched.models.weights import seeded_weights

    print(f"canvas {ny}x{nx}, {threads} thread(s), {repeat} calls; ms")
    heads = ("TVM median", 12), ("min", 9), ("ORT median", 12), ("min", 9), ("ratio", 8), ("GFLOP/s", 9), ("diff", 11)
    print("stage".ljust(10) + "".join(head.rjust(width) for head, width in heads))
    canvas = np.abs(np.random.default_rng(0).normal(size=(1, 64, ny, nx))).astype(np.float32)
    total: dict[str, list[float]] = {"TVM": [0.0] * repeat, "ORT": [0.0] * repeat}
    source, flops_total = canvas, 0
    for network in (backbone_network(ny=ny, nx=nx), head_network(ny // 2, nx // 2)):
        weights = seeded_weights(network, 0)
        ours, flops, convert_out = compiled(network, weights, source)
        theirs = onnx_session(network, weights, source, threads)
        difference = max(np.abs(a - b).max() for a, b in zip(convert_out(ours()), theirs(), strict=True))
        times = alternate({"TVM": ours, "ORT": theirs}, repeat)
        total = {name: [a + b for a, b in zip(total[name], times[name], strict=True)] for name in times}
        flops_total += flops
        show(network.name.removeprefix("pointpillars."), times, flops, difference)
        source = theirs()[0]
    show("both", total, flops_total, None)


def show(name: str, times: dict[str, list[float]], flops: int, difference: float | None) -> None:
    """Print one line of the table."""
    medians = {engine: float(np.median(values)) * 1e3 for engine, values in times.items()}
    least = {engine: min(values) * 1e3 for engine, values in times.items()}
    line = f"{name:10}{medians['TVM']:12.1f}{least['TVM']:9.1f}{medians['ORT']:12.1f}{least['ORT']:9.1f}"
    line += f"{medians['TVM'] / medians['ORT']:8.2f}{flops / medians['TVM'] / 1e6:9.0f}"
    print(line + (f"{difference:11.1e}" if difference is not None else ""), flush=True)


def alternate(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, list[float]]:
    """Return `repeat` durations (s) of each call, taken in turns after one warm-up.

    The pause lets the other's worker threads, which spin for a while after each call, go to sleep.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeat + 1):
        for name, call in calls.items():
            time.sleep(0.2)
            start = time.perf_counter()
            call()
            if round_:
                times[name].append(time.perf_counter() - start)
    return times


def compiled(
    network: Network, weights: dict[str, Array], source: Array
) -> tuple[Callable[[], Any], int, Callable[[Any], list[Array]]]:
    """Return (call, operations, conversion of its results to plain NCHW) for our lowering."""
    from socsched.compile.aligned import from_tvm, to_tvm
    from socsched.compile.analyze import operators
    from socsched.compile.cpu.lower import lower
    from socsched.compile.environment import relax, tvm
    from socsched.compile.fusion import read
    from socsched.compile.layouts import convert
    from socsched.compile.relax_import import import_network
    from socsched.compile.targets import resolve, vector_unit
    from socsched.graph.operators import TensorType

    spec = resolve({"kind": "llvm", "host": True})
    graph = read(import_network(network), network)
    lowered = lower(graph, weights, vector_unit(spec))
    function = relax.VirtualMachine(relax.build(lowered.module, tvm.target.Target(dict(spec.tvm))), tvm.cpu())["main"]
    (kind,) = lowered.inputs
    operand = to_tvm(convert(source, TensorType(source.shape, "fp32", "NCHW"), kind), kind, "input")

    def plain(results: Any) -> list[Array]:
        pairs = zip(results, lowered.outputs, strict=True)
        return [convert(from_tvm(r), t, TensorType(t.shape, "fp32", "NCHW")) for r, t in pairs]

    return lambda: function(operand), sum(op.flops for op in operators(graph, "fp32")), plain


def onnx_session(network: Network, weights: dict[str, Array], source: Array, threads: int) -> Callable[[], Any]:
    """Return a call of the same network in ONNX Runtime."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    nodes = [onnx_node(layer, weights) for layer in network.layers]
    (name,) = network.inputs
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, source.shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in network.outputs],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {name: source})


def onnx_node(layer: Layer, weights: dict[str, Array]) -> Any:
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


if __name__ == "__main__":
    main()
