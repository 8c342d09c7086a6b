"""int8 stages on a real GPU: built by nvcc, loaded from their cubin, launched as graphs, equal to the definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gpu_networks
import int8_reference as reference
import numpy as np
import pytest
from int8_networks import conv, full_range, residual_block, scales_of, transposed, weights_of

from socsched.compiler.artifact import Artifact
from socsched.compiler.environment import tvm
from socsched.compiler.layouts import convert
from socsched.compiler.pipeline import compile_network
from socsched.compiler.quantize.network import quantise
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.target import Build, resolve
from socsched.compiler.targets.cuda import target as cuda
from socsched.compiler.targets.cuda.runtime import GpuStage
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

pytestmark = pytest.mark.needs("NVIDIA GPU")  # sm_80 or later

CASES: dict[str, tuple[Network, Mapping[str, bool]]] = {
    "unsigned": (conv(64, 64, 33, 41, 3, 1, 1, True), {"x": False}),
    "signed": (conv(40, 18, 23, 29, 3, 2, 1, True), {"x": True}),
    "split sums": (conv(512, 64, 7, 7, 3, 1, 1, True), {"x": False}),
    "transposed": (transposed(48, 24, 13, 21, (4, 2, 1)), {"x": True}),
    "residual block": (residual_block(), {}),
    "pyramid": (gpu_networks.pyramid(), {"x": False}),
}


@pytest.mark.parametrize("name", CASES)
def test_stage_equals_the_definition(name: str, tmp_path: Path) -> None:
    network, signed = CASES[name]
    major, minor = tvm.cuda(0).compute_version.split(".")
    target = {"kind": "cuda", "arch": f"sm_{major}{minor}", "max_threads_per_block": 1024, "thread_warp_size": 32}
    graph, weights = fuse_network(network), weights_of(network)
    scales = Scales(scales_of(graph, signed))
    q = quantise(graph, weights, scales)
    inputs = full_range(network, q)
    built = compile_network(Build(tmp_path, network, weights, resolve(target), "int8", scales), cuda.TARGET)
    given, made, files, notes = built.inputs, built.outputs, built.files, built.notes
    artifact = Artifact(
        *(name, name, "gpu", "gpu", "cuda", "", "int8", 0, "", tmp_path, files),
        *(tuple(network.inputs), given, network.outputs, made, "seeded", False),
        notes=notes,
    )
    stage = GpuStage(artifact)
    arrays = [convert(inputs[n], TensorType(t.shape, "fp32", "NCHW"), t) for n, t in zip(inputs, given, strict=True)]
    for _ in range(2):  # the graph as captured, and again
        found = stage(*(np.ascontiguousarray(array) for array in arrays))
        for array, t, expected in zip(found, made, reference.outputs(q, inputs), strict=True):
            assert np.array_equal(convert(array, t, TensorType(t.shape, "fp32", "NCHW")), expected)
