"""The network stages of PointPillars on a small canvas, as models of their own names, with inputs for them.

Emulators and software devices are a few hundred times slower than hardware; the code under test is generic in the
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.stages import load
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network, scatter_network
from socsched.models.registry import get_model

Array = np.ndarray[Any, Any]

NY, NX, PILLARS, SLOTS = 48, 56, 90, 12
NETWORKS: dict[str, Callable[[], Network]] = {
    "pfn": lambda: pfn_network(SLOTS),
    "scatter": lambda: scatter_network(NY, NX),
    "backbone": lambda: backbone_network(ny=NY, nx=NX),
    "head": lambda: head_network(NY // 2, NX // 2),
}
STAGES = tuple(NETWORKS)


def stage(name: str) -> Stage:
    """Return the small stage `name`, known to the registry from now on."""
    plugins.provide("socsched.models", f"small.{name}", f"small_stages:{name}")
    return Stage(name, name, f"small.{name}", precisions=("fp32", "fp16"))


def inputs(name: str) -> list[Array]:
    """Return plain inputs of stage `name` in port order, some pillars outside of the canvas."""
    rng = np.random.default_rng(5)
    cells = rng.permutation(NX * NY)[:PILLARS]
    coords = np.stack([cells % NX, cells // NX], 1).astype(np.int32)
    if name == "pfn":
        counts = rng.integers(1, SLOTS + 1, PILLARS).astype(np.int32)
        voxels = rng.normal(scale=3, size=(PILLARS, SLOTS, 4)).astype(np.float32)
        voxels[np.arange(SLOTS)[None] >= counts[:, None]] = 0
        return [voxels, counts, coords]
    if name == "scatter":
        coords[::7] = -1
        return [rng.normal(size=(PILLARS, 64)).astype(np.float32), coords]
    shape = {"backbone": (1, 64, NY, NX), "head": (1, 384, NY // 2, NX // 2)}[name]
    return [np.maximum(rng.normal(size=shape), 0).astype(np.float32)]


def plain(tensor: TensorType, array: Array) -> TensorType:
    """Return the type of `array`, which holds `tensor` in plain NCHW."""
    dtype = next(name for name, kind in NUMPY_DTYPES.items() if kind == array.dtype)
    return TensorType(tensor.shape, dtype, "NCHW") if len(tensor.shape) == 4 else TensorType(array.shape, dtype)


def halved(arrays: list[Array]) -> list[Array]:
    """Return `arrays` with floating-point ones in half precision."""
    return [array.astype(np.float16) if array.dtype == np.float32 else array for array in arrays]


def reference(stage: Stage, arrays: list[Array], precision: str = "fp32") -> list[Array]:
    """Return the outputs of the host's code for plain fp32 inputs, in plain layout."""
    compiled = load(compile_stage(stage, get_platform("host").engines[0], precision, threads=1))
    given = [convert(array, plain(t, array), t) for array, t in zip(arrays, compiled.inputs, strict=True)]
    found = zip(compiled(*given), compiled.outputs, strict=True)
    return [convert(array, tensor, plain(tensor, array)) for array, tensor in found]


def error(found: list[Array], expected: list[Array]) -> float:
    """Return the largest difference relative to the largest value of the same output."""
    assert [array.shape for array in found] == [array.shape for array in expected]
    return max(
        float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max()) for a, b in zip(found, expected, strict=True)
    )


def onnx_stage(name: str, folder: Path) -> tuple[Stage, list[Array]]:
    """Return the stage of a sample network written to an ONNX file in `folder`, and an input for it."""
    from tests.models.onnx_files import FILES

    path = FILES[name](folder / f"{name}.onnx")
    stage = Stage(name, name, "onnx", params={"file": str(path)}, precisions=("fp32", "fp16"))
    (port,) = get_model("onnx", stage.params).inputs
    return stage, [np.random.default_rng(7).standard_normal(port.type.shape).astype(np.float32)]


def _model(name: str) -> Callable[[Mapping[str, Any]], Model]:
    def make(params: Mapping[str, Any]) -> Model:
        network = NETWORKS[name]()
        ports = tuple(Port(port, tensor) for port, tensor in network.inputs.items())
        outputs = tuple(Port(port, TensorType((-1,), "fp32")) for port in network.outputs)
        return Model(f"small.{name}", ports, outputs, network=NETWORKS[name])

    return make


pfn, scatter, backbone, head = (_model(name) for name in STAGES)
