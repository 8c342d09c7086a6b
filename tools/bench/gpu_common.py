"""What the GPU tools share: networks, and their artefacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.pipeline import compile_network
from socsched.compiler.target import Build, resolve
from socsched.compiler.targets.cuda.target import TARGET
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.network import backbone_network, head_network


def pointpillars() -> Network:
    """Return backbone, neck and heads on the 496 x 432 grid as one network."""
    body, head = backbone_network(), head_network()
    params = {**body.params, **head.params}
    return Network("pointpillars", body.inputs, (*body.layers, *head.layers), head.outputs, params)


def random_weights(network: Network, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights of variance 2 / fan-in, halved where an addition follows so that values keep their size."""
    generator = np.random.default_rng(seed)
    transposed = {layer.weights["weight"] for layer in network.layers if layer.op == "conv2d_transpose"}
    found = {}
    for name, shape in network.params.items():
        if len(shape) == 1:
            found[name] = generator.normal(0, 0.1, shape).astype(np.float32)
            continue
        fan_in = shape[0] if name in transposed else int(np.prod(shape[1:]))
        gain = 0.5 if name.endswith(".c.weight") else 2.0
        array = generator.normal(0, (gain / fan_in) ** 0.5, shape)
        found[name] = array.astype(np.float16).astype(np.float32)  # both sides start from the same values
    return found


def target(arch: str) -> dict[str, Any]:
    """Return an engine's target entry for an architecture."""
    return {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}


@dataclass
class _Net:
    layers: list[Layer] = field(default_factory=list)
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(
        self, op: str, name: str, *inputs: str, shape: tuple[int, ...] = (), relu: bool = False, **attrs: Any
    ) -> str:
        weights = {}
        if shape:
            self.params |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
            weights = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
        self.layers.append(Layer(name, op, inputs, weights, attrs))
        if not relu:
            return name
        self.layers.append(Layer(f"{name}.relu", "relu", (name,)))
        return f"{name}.relu"


def resnet50(size: int = 224) -> Network:
    """Return ResNet-50 (He et al., CVPR 2016) with batch norm folded, stride in the 3x3 convolution, batch 1."""
    net = _Net()
    x = net.add("conv2d", "stem", "image", shape=(64, 3, 7, 7), relu=True, stride=2, padding=3)
    x, wide = net.add("max_pool", "pool", x, kernel=3, stride=2, padding=1), 64
    for stage, (blocks, narrow) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            name, stride = f"{stage}.{block}", 2 if stage and not block else 1
            y = net.add("conv2d", f"{name}.a", x, shape=(narrow, wide, 1, 1), relu=True, stride=1, padding=0)
            y = net.add("conv2d", f"{name}.b", y, shape=(narrow, narrow, 3, 3), relu=True, stride=stride, padding=1)
            y = net.add("conv2d", f"{name}.c", y, shape=(4 * narrow, narrow, 1, 1), stride=1, padding=0)
            if not block:
                x = net.add("conv2d", f"{name}.d", x, shape=(4 * narrow, wide, 1, 1), stride=stride, padding=0)
            x, wide = net.add("add", f"{name}.sum", y, x, relu=True), 4 * narrow
    x = net.add("global_avg_pool", "mean", x)
    net.layers.append(Layer("flat", "reshape", (x,), {}, {"shape": (1, wide)}))
    x = net.add("dense", "classes", "flat", shape=(1000, wide))
    image = TensorType((1, 3, size, size), "fp32", "NCHW")
    return Network("resnet50", {"image": image}, tuple(net.layers), (x,), net.params)


def artifact_of(network: Network, weights: Mapping[str, np.ndarray[Any, Any]], arch: str, folder: Path) -> Artifact:
    """Return a network built in fp16 into `folder`."""
    made = compile_network(Build(folder, network, weights, resolve(target(arch)), "fp16"), TARGET)
    names = tuple(network.inputs), network.outputs
    return Artifact(
        *(network.name, network.name, "gpu", "gpu", "cuda", "", "fp16", 0, "", folder, made.files),
        *(names[0], made.inputs, names[1], made.outputs, "seeded", False, made.notes),
    )
