"""Compare PointPillars in int8 with ONNX Runtime's own int8 on this machine: backbone, neck and heads as one network.

ONNX Runtime's model is made by its own static quantisation (QDQ, one weight scale a channel, unsigned activations) from
the fp32 network, calibrated on the same inputs.  Weights are dense and random; calls alternate, so that a busy machine
slows both, and each thread count gets a process of its own.  Prints medians, minima, the ratio of the medians (below 1:
ours is faster) and each one's relative error against ONNX Runtime in fp32.  Needs onnx and onnxruntime:

    python -m tools.bench.int8 [--threads 1,4] [--repeat 21] [--size 496x432]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from socsched.graph.network import Network
from tools.bench.lowering import alternate, onnx_node

Array = np.ndarray[Any, Any]


def main() -> None:
    """Measure one thread count, or start a process for each of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,4", help="thread counts, comma separated")
    parser.add_argument("--repeat", type=int, default=21, help="timed calls of each")
    parser.add_argument("--size", default="496x432", help="canvas, height x width, multiples of 8")
    options = parser.parse_args()
    counts = options.threads.split(",")
    if len(counts) > 1:
        for count in counts:
            arguments = ["--threads", count, "--repeat", str(options.repeat), "--size", options.size]
            subprocess.run([sys.executable, "-m", "tools.bench.int8", *arguments], check=True)
        return
    os.environ["TVM_NUM_THREADS"] = counts[0]
    ny, nx = map(int, options.size.split("x"))
    measure(int(counts[0]), options.repeat, ny, nx)


def whole(ny: int, nx: int) -> Network:
    """Return backbone, neck and heads as one network."""
    from socsched.models.pointpillars.network import backbone_network, head_network

    backbone, head = backbone_network(ny=ny, nx=nx), head_network(ny // 2, nx // 2)
    params = {**backbone.params, **head.params}
    return Network("pointpillars", backbone.inputs, (*backbone.layers, *head.layers), head.outputs, params)


def measure(threads: int, repeat: int, ny: int, nx: int) -> None:
    """Print a line for each of ours and ONNX Runtime's, and the ratio."""
    from socsched.models.weights import draw_weights

    network = whole(ny, nx)
    weights = draw_weights(network, 0)
    generator = np.random.default_rng(0)
    canvases = [np.abs(generator.normal(size=(1, 64, ny, nx))).astype(np.float32) for _ in range(2)]
    print(f"canvas {ny}x{nx}, {threads} thread(s), {repeat} calls; ms")
    ours, flops, plain = compiled(network, weights, canvases)
    exact, theirs = onnx_sessions(network, weights, canvases, threads)
    times = alternate({"int8": ours, "ORT int8": theirs, "ORT fp32": exact}, repeat)
    expected = exact()
    errors = {"int8": error(plain(ours()), expected), "ORT int8": error(theirs(), expected), "ORT fp32": 0.0}
    medians = {name: float(np.median(found)) * 1e3 for name, found in times.items()}
    for name, found in times.items():
        rate = flops / medians[name] / 1e6
        print(f"{name:10}{medians[name]:10.1f}{min(found) * 1e3:10.1f}{rate:9.0f} GOP/s  error {errors[name]:.4f}")
    print(f"ratio to ONNX Runtime's int8: {medians['int8'] / medians['ORT int8']:.2f}", flush=True)


def error(found: list[Array], expected: list[Array]) -> float:
    """Return the root mean square of the difference over that of the expected outputs, the worst output's."""
    return max(float(np.sqrt(((a - b) ** 2).mean() / (b**2).mean())) for a, b in zip(found, expected, strict=True))


def compiled(
    network: Network, weights: dict[str, Array], canvases: list[Array]
) -> tuple[Callable[[], Any], int, Callable[[Any], list[Array]]]:
    """Return (call, operations, conversion of its results to plain NCHW) of the int8 lowering."""
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.layouts import convert
    from socsched.compiler.loading.aligned import from_tvm, to_tvm
    from socsched.compiler.quantize.calibrate import calibrate
    from socsched.compiler.quantize.network import quantise
    from socsched.compiler.target import resolve
    from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
    from socsched.compiler.targets.llvm.int8_lower import lower_int8
    from socsched.graph.counting import operators
    from socsched.graph.expand import fuse_network
    from socsched.graph.operators import TensorType

    spec = resolve({"kind": "llvm", "host": True})
    scales = calibrate(network, weights, [{"canvas": canvas} for canvas in canvases])
    graph = fuse_network(network)
    lowered = lower_int8(quantise(graph, weights, scales), weights, *dot_for(spec))
    executable = relax.build(lowered.module, tvm.target.Target(int8_options(spec)))
    function = relax.VirtualMachine(executable, tvm.cpu())["main"]
    (kind,) = lowered.inputs
    operand = to_tvm(convert(canvases[0], TensorType(canvases[0].shape, "fp32", "NCHW"), kind), kind, "input")

    def plain(results: Any) -> list[Array]:
        pairs = zip(results, lowered.outputs, strict=True)
        return [convert(from_tvm(r), t, TensorType(t.shape, "fp32", "NCHW")) for r, t in pairs]

    return lambda: function(operand), sum(op.flops for op in operators(graph, "int8")), plain


def onnx_sessions(
    network: Network, weights: dict[str, Array], canvases: list[Array], threads: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calls of the network in ONNX Runtime: in fp32, and in int8 by its own quantisation."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper, save
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(canvases)

        def get_next(self) -> dict[str, Array] | None:
            canvas = next(self.left, None)
            return None if canvas is None else {"canvas": canvas}

    graph = helper.make_graph(
        [onnx_node(layer, weights) for layer in network.layers],
        "network",
        [helper.make_tensor_value_info("canvas", TensorProto.FLOAT, canvases[0].shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in network.outputs],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    calls = []
    with tempfile.TemporaryDirectory() as folder:
        exact, quantised = (str(Path(folder) / name) for name in ("fp32.onnx", "int8.onnx"))
        save(model, exact)
        form = {"quant_format": QuantFormat.QDQ, "per_channel": True}
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(exact, quantised, Reader(), **form, **types)
        for path in (exact, quantised):
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            calls.append(lambda session=session: session.run(None, {"canvas": canvases[0]}))
    return calls[0], calls[1]


if __name__ == "__main__":
    main()
