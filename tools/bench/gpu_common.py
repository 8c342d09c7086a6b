"""What the GPU tools share: networks, timing by graphs, and a plain PyTorch form of a network for comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.pipeline import compile_network
from socsched.compiler.target import Build, resolve
from socsched.compiler.targets.cuda.runtime import GpuStage
from socsched.compiler.targets.cuda.target import TARGET
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from tools.bench.gpu_clock import Clock as Clock
from tools.bench.torch_networks import graph_of as graph_of
from tools.bench.torch_networks import pointpillars as pointpillars
from tools.bench.torch_networks import random_weights as random_weights
from tools.bench.torch_networks import torch_forward as torch_forward
from tools.bench.torch_networks import torch_milliseconds as torch_milliseconds


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


def stage_of(
    network: Network, weights: Mapping[str, np.ndarray[Any, Any]], arch: str
) -> tuple[GpuStage, tuple[str, ...]]:
    """Return a network built in fp16 as an artefact and loaded again, and the notes of its build."""
    artifact = artifact_of(network, weights, arch, Path(tempfile.mkdtemp()))
    return GpuStage(artifact), artifact.notes


def artifact_of(network: Network, weights: Mapping[str, np.ndarray[Any, Any]], arch: str, folder: Path) -> Artifact:
    """Return a network built in fp16 into `folder`."""
    made = compile_network(Build(folder, network, weights, resolve(target(arch)), "fp16"), TARGET)
    names = tuple(network.inputs), network.outputs
    return Artifact(
        *(network.name, network.name, "gpu", "gpu", "cuda", "", "fp16", 0, "", folder, made.files),
        *(names[0], made.inputs, names[1], made.outputs, "seeded", False, made.notes),
    )


def kernel_times(stage: GpuStage, shapes: tuple[tuple[int, ...], ...], inner: int = 20) -> list[tuple[str, float]]:
    """Return (kernel, microseconds) for each launch of a stage, each timed alone as a graph of `inner` launches."""
    import tvm_ffi

    from socsched.compiler.environment import tvm
    from socsched.compiler.layouts import NUMPY_DTYPES

    device, stream, machine = stage._device, stage._stream, stage._machine
    generator = np.random.default_rng(0)
    given = [
        tvm.runtime.tensor(generator.normal(0, 1, s).astype(NUMPY_DTYPES[t.dtype]), device=device)
        for s, t in zip(shapes, stage.inputs, strict=True)
    ]
    clock, found = Clock(stream), []

    def measure(function: Any, name: str, before: bool, result: Any, *operands: Any) -> int:
        if before and not name.startswith("vm.") and operands:
            function(*operands)
            stream.synchronize()
            stream.begin_capture()
            for _ in range(inner):
                function(*operands)
            graph = stream.end_capture()
            found.append((name, clock.milliseconds(lambda: graph.launch(stream), 11, 2) / inner * 1e3))
        return 0

    with tvm_ffi.use_raw_stream(device, stream.handle.value or 0):
        machine["main"](*given)
        machine.set_instrument(measure)
        machine["main"](*given)
        machine.set_instrument(lambda *arguments: 0)
    return found
