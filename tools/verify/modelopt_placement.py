"""Compare our placement of Q/DQ for TensorRT with that of NVIDIA's modelopt, tensor by tensor.

    python -m tools.verify.modelopt_placement write FOLDER        # the float networks and ours with Q/DQ
    python tools/verify/modelopt_placement.py compare FOLDER      # where nvidia-modelopt and torch are

modelopt quantises for TensorRT on GPUs, ours is for a DLA: int8 at the borders and at both inputs of a sum.
"""

import sys
from pathlib import Path
from typing import Any

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "head": ("pointpillars.head", {}),
    "backbone": ("pointpillars.backbone", {}),
    "camera": ("camera.detector", {"input_height": 64, "input_width": 96}),
}


def write(folder: Path) -> None:
    """Write NAME.onnx in fp32 and NAME.ours.onnx with Q/DQ of signed bytes and one step for all, shared as on a DLA."""
    import onnx

    from socsched.compiler.builder import network_of, weights_for
    from socsched.compiler.quantize.fixed_point import Scale
    from socsched.compiler.toolchains.onnx_model import to_onnx
    from socsched.compiler.toolchains.qdq import quantised
    from socsched.compiler.toolchains.tensorrt import shared
    from socsched.descriptor.pipeline import Stage
    from socsched.graph.expand import layer_types

    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, params) in NETWORKS.items():
        model, network = network_of(Stage(name, name, kind, params=params))
        plain = to_onnx(network, weights_for(model, network, None)[0], layer_types(network))
        names = (*network.inputs, *(layer.name for layer in network.layers))
        steps = shared(network, dict.fromkeys(names, 0.05))
        onnx.save(plain, str(folder / f"{name}.onnx"))
        scales = {value: Scale(step, True) for value, step in steps.items()}
        onnx.save(quantised(plain, scales, unsigned=False), str(folder / f"{name}.ours.onnx"))


def rounded(path: Path) -> tuple[set[str], set[str]]:
    """Return the activations that a model quantises, and the types of its zero points that are zero."""
    import onnx

    graph = onnx.load(str(path)).graph
    stored = {entry.name: onnx.numpy_helper.to_array(entry) for entry in graph.initializer}
    nodes = [node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] not in stored]
    zeros = {str(stored[n.input[2]].dtype) for n in nodes if n.input[2] in stored and not stored[n.input[2]].any()}
    return {node.input[0].removesuffix(".real") for node in nodes}, zeros


def compare(folder: Path) -> None:
    """Quantise every network by modelopt, calibrated on seeded noise, and print the tensors of both."""
    import numpy as np
    import onnx
    from modelopt.onnx.quantization import quantize

    for name in NETWORKS:
        file, theirs = folder / f"{name}.onnx", folder / f"{name}.modelopt.onnx"
        rng = np.random.default_rng(0)
        inputs = {
            value.name: rng.normal(size=[d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
            for value in onnx.load(str(file)).graph.input
        }
        quantize(str(file), quantize_mode="int8", calibration_data=inputs, calibration_method="max",
                 output_path=str(theirs), high_precision_dtype="fp32", calibration_eps=["cpu"])  # fmt: skip
        (own, zeros), (other, others) = rounded(folder / f"{name}.ours.onnx"), rounded(theirs)
        print(f"{name}: ours {len(own)}, modelopt {len(other)}, both {len(own & other)}; zero points {zeros}, {others}")
        print(f"  ours only: {', '.join(sorted(own - other)) or 'none'}")
        print(f"  modelopt only: {', '.join(sorted(other - own)) or 'none'}")


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
